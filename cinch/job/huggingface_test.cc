#include "cinch/job/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "cinch/core/error.h"

namespace cinch::job {
namespace {
namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class HuggingFaceTest : public ::testing::Test {
 protected:
  HuggingFaceTest() { fs::create_directories(folder_); }
  ~HuggingFaceTest() override { fs::remove_all(folder_); }

  void config(const std::string& json) const { std::ofstream(folder_ / "config.json") << json; }
  Job job(const std::string& json, const std::vector<std::string>& overrides = {}) const {
    config(json);
    return from_folder(folder_, overrides);
  }
  /// What a config.json is refused with, "" if it is not.
  std::string refusal(const std::string& json, const std::vector<std::string>& overrides = {}) const {
    try {
      job(json, overrides);
    } catch (const ConfigError& error) {
      return std::string(error.what()) + " | " + error.hint();
    }
    return "";
  }

  fs::path folder_ = fs::path(::testing::TempDir()) / ("huggingface." + std::to_string(::getpid()));
};

std::string gpt2(const std::string& more) {
  return R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2")" + more + "}";
}
std::string of(const std::string& type, const std::string& more) {
  return R"({"model_type": ")" + type + "\"" + more + "}";
}
fs::path example(const std::string& name) { return fs::path(CINCH_SOURCE_DIR) / "tests/data/huggingface" / name; }

TEST_F(HuggingFaceTest, MissingKeysAreThoseOfTransformers) {
  const Job made = job(of("gpt2", ""));
  const auto& gpt = std::get<GptConfig>(made.model);
  EXPECT_EQ(gpt.layers, 12);
  EXPECT_EQ(gpt.hidden_size, 768);
  EXPECT_EQ(gpt.heads, 12);
  EXPECT_EQ(gpt.context_length, 1024);
  EXPECT_EQ(gpt.vocab_size, 50257);
  EXPECT_EQ(gpt.dropout, 0.1);
  EXPECT_EQ(gpt.attention_dropout, 0.1);
  EXPECT_TRUE(gpt.tie_weights);
  EXPECT_EQ(gpt.activation, Activation::kGeluTanh);
  EXPECT_TRUE(std::holds_alternative<SyntheticData>(made.data));
  EXPECT_EQ(made.train.batch_size, 1);
  EXPECT_EQ(made.train.steps, 1);
  EXPECT_EQ(made.train.run_dir, "");
  EXPECT_EQ(made.train.optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(made.weights, "");
}

TEST_F(HuggingFaceTest, OverridesWinAndContextIsCapped) {
  const Job made = job(gpt2(R"(, "n_positions": 8192)"), {"train.batch_size=8", "model.layers=2"});
  const auto& gpt = std::get<GptConfig>(made.model);
  EXPECT_EQ(gpt.layers, 2);
  EXPECT_EQ(made.train.batch_size, 8);
  EXPECT_EQ(gpt.context_length, kDefaultContext);
  EXPECT_EQ(folder_info(folder_).longest_context, 8192);
  const Job longer = job(gpt2(R"(, "n_positions": 8192)"), {"model.context_length=4096"});
  EXPECT_EQ(std::get<GptConfig>(longer.model).context_length, 4096);
  EXPECT_THAT(refusal(gpt2(""), {"model.context_length=1025"}),
              HasSubstr("n_positions is 1024, less than the context length 1025"));
}

/// As transformers hands it to torch.nn.Embedding, which counts from the end if it is negative.
TEST_F(HuggingFaceTest, PaddingIsTransformers) {
  const auto bert = [&](const std::string& more) { return std::get<BertConfig>(job(of("bert", more)).model); };
  const auto llama = [&](const std::string& more) { return std::get<LlamaConfig>(job(of("llama", more)).model); };
  EXPECT_EQ(bert("").padding_token, 0);
  EXPECT_EQ(bert(R"(, "pad_token_id": 5)").padding_token, 5);
  EXPECT_EQ(bert(R"(, "pad_token_id": null)").padding_token, -1);
  EXPECT_EQ(llama("").padding_token, -1);
  EXPECT_EQ(llama(R"(, "pad_token_id": 0)").padding_token, 0);
  EXPECT_EQ(llama(R"(, "pad_token_id": -1)").padding_token, 31999);
  EXPECT_THAT(refusal(of("llama", R"(, "pad_token_id": 32000)")), HasSubstr("pad_token_id is 32000, no token of"));
  EXPECT_THAT(refusal(of("bert", R"(, "pad_token_id": -30523)")), HasSubstr("pad_token_id is -30523"));
}

TEST_F(HuggingFaceTest, AJobFileNamesAFolder) {
  config(gpt2(R"(, "n_layer": 3, "activation_function": "gelu")"));
  std::ofstream(folder_ / "model.safetensors") << "not read";
  const std::string text =
      "[model]\nhuggingface = \"" + folder_.string() +
      "\"\nheads = 6\n[data]\nkind = \"synthetic\"\n[train]\nbatch_size = 2\nsteps = 3\nlearning_rate = 1e-3\n";
  const Job made = parse(text, "job.toml");
  EXPECT_EQ(std::get<GptConfig>(made.model).layers, 3);
  EXPECT_EQ(std::get<GptConfig>(made.model).heads, 6);
  EXPECT_EQ(std::get<GptConfig>(made.model).activation, Activation::kGelu);
  EXPECT_EQ(made.weights, folder_.string());
  const std::string written = to_toml(made);
  EXPECT_THAT(written, AllOf(HasSubstr("kind = \"gpt\""), HasSubstr("weights = \"" + folder_.string() + "\"")));
  fs::remove(folder_ / "config.json");
  EXPECT_EQ(to_toml(parse(written, "written")), written);
  EXPECT_THROW(parse("[model]\nkind = \"gpt\"\nhuggingface = \"x\"\n", "job.toml"), ConfigError);
  EXPECT_THROW(parse("[model]\nhuggingface = 3\n", "job.toml"), ConfigError);
  EXPECT_THROW(parse("[model]\nhuggingface = \"/nowhere\"\n", "job.toml"), ConfigError);
}

TEST_F(HuggingFaceTest, WhatIsNotComputedIsRefusedByName) {
  EXPECT_THAT(refusal(of("t5", "")),
              AllOf(HasSubstr("config.json: model_type names t5"), HasSubstr("LlamaForCausalLM")));
  EXPECT_THAT(refusal(R"({"architectures": ["Gemma2ForCausalLM"]})"),
              HasSubstr("architectures names Gemma2ForCausalLM"));
  EXPECT_THAT(refusal(R"({"architectures": ["Qwen2ForCausalLM"]})"), HasSubstr("architectures names Qwen2ForCausalLM"));
  EXPECT_THAT(refusal(R"({"architectures": ["BertModel"], "model_type": "vit"})"), HasSubstr("model_type is vit"));
  EXPECT_THAT(refusal("{}"), HasSubstr("architectures is missing"));
  EXPECT_THAT(refusal(gpt2(R"(, "activation_function": "relu")")), HasSubstr("activation_function is \"relu\""));
  EXPECT_THAT(refusal(gpt2(R"(, "n_inner": 5)")), HasSubstr("n_inner is 5"));
  EXPECT_THAT(refusal(gpt2(R"(, "embd_pdrop": 0.2)")), HasSubstr("embd_pdrop is 0.2"));
  EXPECT_THAT(refusal(gpt2(R"(, "layer_norm_epsilon": 1e-6)")), HasSubstr("layer_norm_epsilon is 1e-06"));
  EXPECT_THAT(refusal(gpt2(R"(, "scale_attn_weights": false)")), HasSubstr("scale_attn_weights is false"));
  EXPECT_THAT(refusal(gpt2(R"(, "scale_attn_by_inverse_layer_idx": true)")), HasSubstr("inverse_layer_idx is true"));
  EXPECT_THAT(refusal(gpt2(R"(, "add_cross_attention": true)")), HasSubstr("add_cross_attention is true"));
  EXPECT_THAT(refusal(gpt2(R"(, "quantization_config": {"bits": 4})")),
              HasSubstr(R"(quantization_config is {"bits":4})"));
  EXPECT_THAT(refusal(gpt2(R"(, "pruned_heads": {"1": [2]})")), HasSubstr("pruned_heads"));
  EXPECT_THAT(refusal(of("bert", R"(, "hidden_act": "relu")")), HasSubstr("hidden_act is \"relu\""));
  EXPECT_THAT(refusal(of("bert", R"(, "position_embedding_type": "relative_key")")), HasSubstr("relative_key"));
  EXPECT_THAT(refusal(of("bert", R"(, "is_decoder": true)")), HasSubstr("is_decoder is true"));
  EXPECT_THAT(refusal(R"({"architectures": ["BertForSequenceClassification"], "problem_type": "regression"})"),
              HasSubstr("problem_type is \"regression\""));
  EXPECT_THAT(refusal(R"({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "x"}})"),
              HasSubstr("one class"));
  EXPECT_THAT(refusal(R"({"architectures": ["BertForSequenceClassification"], "classifier_dropout": 0.3})"),
              HasSubstr("classifier_dropout is 0.3"));
  EXPECT_THAT(refusal(of("vit", R"(, "qkv_bias": false)")), HasSubstr("qkv_bias is false"));
  EXPECT_THAT(refusal(of("llama", R"(, "rope_scaling": {"rope_type": "llama3", "factor": 8.0})")),
              HasSubstr("rope_scaling has factor = 8.0"));
  EXPECT_THAT(refusal(of("llama", R"(, "rope_parameters": {"rope_type": "yarn"})")), HasSubstr("rope_type = \"yarn\""));
  EXPECT_THAT(refusal(of("llama", R"(, "attention_bias": true)")), HasSubstr("attention_bias is true"));
  EXPECT_THAT(refusal(of("llama", R"(, "mlp_bias": true)")), HasSubstr("mlp_bias is true"));
  EXPECT_THAT(refusal(of("llama", R"(, "attention_dropout": 0.1)")), HasSubstr("attention_dropout is 0.1"));
  EXPECT_THAT(refusal(of("llama", R"(, "num_attention_heads": 33)")), HasSubstr("does not divide hidden_size 4096"));
  EXPECT_THAT(refusal(of("mistral", R"(, "sliding_window": 1024)")), HasSubstr("sliding_window is 1024"));
  EXPECT_THAT(refusal(of("mistral", ""), {"model.context_length=8192"}), HasSubstr("sliding_window is 4096"));
  EXPECT_THAT(refusal(of("resnet", R"(, "depths": [3, 4, 6, 4])")), HasSubstr("depths is [3, 4, 6, 4]"));
  EXPECT_THAT(refusal(of("resnet", R"(, "hidden_sizes": [1])")), HasSubstr("hidden_sizes is [1]"));
  EXPECT_THAT(refusal(of("resnet", R"(, "downsample_in_bottleneck": true)")), HasSubstr("downsample_in_bottleneck"));
}

TEST_F(HuggingFaceTest, FilesThatAreNoConfigAreRefused) {
  EXPECT_THAT(refusal(""), HasSubstr("config.json: this is no JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("{\"a\": \xff}"), HasSubstr("this is no JSON"));
  EXPECT_THAT(refusal(gpt2(R"(, "n_layer": 3, "n_layer": 4)")), HasSubstr("n_layer occurs twice"));
  EXPECT_THAT(refusal(gpt2(R"(, "n_embd": 768, "hidden_size": 769)")), HasSubstr("n_embd is given twice"));
  EXPECT_THAT(refusal(gpt2(R"(, "n_layer": "12")")), HasSubstr("n_layer wants a whole number; found \"12\""));
  EXPECT_THAT(refusal(gpt2(R"(, "n_layer": 12.0)")), HasSubstr("n_layer wants a whole number; found 12.0"));
  EXPECT_THAT(refusal(gpt2(R"(, "n_layer": -1)")), HasSubstr("n_layer is -1; it must be from 1"));
  EXPECT_THAT(refusal(gpt2(R"(, "n_layer": 18446744073709551615)")), HasSubstr("n_layer is 18446744073709551615"));
  EXPECT_THAT(refusal(gpt2(R"(, "n_embd": 2147483640, "n_layer": 9999)")), HasSubstr("64 bits"));
  EXPECT_THAT(refusal(gpt2(R"(, "resid_pdrop": true)")), HasSubstr("resid_pdrop wants a number; found true"));
  EXPECT_THAT(refusal(gpt2(R"(, "tie_word_embeddings": 1)")), HasSubstr("tie_word_embeddings wants true or false"));
  EXPECT_THAT(refusal(R"({"architectures": "BertModel"})"), HasSubstr("architectures wants a list"));
  EXPECT_THAT(refusal(std::string(100, '[')), HasSubstr("config.json"));
  EXPECT_THAT(refusal(R"({"a": )" + std::string(100, '[') + std::string(100, ']') + "}"), HasSubstr("nest deeper"));
  fs::resize_file(folder_ / "config.json", 1'000'000'000);  // Sparse: no byte of it is read.
  EXPECT_THROW(from_folder(folder_), ConfigError);
  fs::remove(folder_ / "config.json");
  EXPECT_THROW(from_folder(folder_), ConfigError);
  EXPECT_THROW(from_folder(folder_ / "absent"), ConfigError);
}

TEST_F(HuggingFaceTest, FoldersAsTransformersWritesThem) {
  const Job gpt = from_folder(example("gpt2"));
  EXPECT_EQ(std::get<GptConfig>(gpt.model).hidden_size, 16);
  EXPECT_EQ(gpt.weights, example("gpt2").string());
  EXPECT_EQ(from_folder(example("gpt2_sharded")).weights, example("gpt2_sharded").string());
  EXPECT_EQ(folder_info(example("bert_base")).architecture, "BertModel");
  EXPECT_TRUE(folder_info(example("bert_base")).base);
  EXPECT_FALSE(folder_info(example("resnet18")).has_weights);
  EXPECT_EQ(std::get<ResNetConfig>(from_folder(example("resnet18")).model).classes, 3);
}

TEST_F(HuggingFaceTest, EveryFamilyBecomesAJob) {
  const auto base = std::get<BertConfig>(from_folder(example("bert_base")).model);
  EXPECT_EQ(base.hidden_size, 16);
  EXPECT_EQ(base.intermediate_size, 24);
  EXPECT_EQ(base.context_length, 12);
  EXPECT_EQ(base.vocab_size, 11);
  EXPECT_EQ(base.norm_eps, 0.01);
  EXPECT_EQ(base.classes, 0);
  EXPECT_EQ(std::get<BertConfig>(from_folder(example("bert_masked")).model).classes, 0);
  EXPECT_EQ(std::get<BertConfig>(from_folder(example("bert_classifier")).model).classes, 3);
  const auto vit = std::get<VitConfig>(from_folder(example("vit")).model);
  EXPECT_EQ(vit.patch_size, 4);
  EXPECT_EQ(vit.image_size, 8);
  EXPECT_EQ(vit.classes, 3);
  EXPECT_EQ(vit.dropout, 0);
  const auto llama = std::get<LlamaConfig>(from_folder(example("llama")).model);
  EXPECT_EQ(llama.heads, 4);
  EXPECT_EQ(llama.key_value_heads, 2);
  EXPECT_EQ(llama.head_size, 4);
  EXPECT_EQ(llama.rope_theta, 100);
  EXPECT_EQ(llama.context_length, 64);
  EXPECT_FALSE(llama.tie_weights);
  EXPECT_TRUE(std::get<LlamaConfig>(from_folder(example("llama_tied")).model).tie_weights);
  EXPECT_EQ(std::get<LlamaConfig>(from_folder(example("mistral")).model).layers, 2);
}
}  // namespace
}  // namespace cinch::job
