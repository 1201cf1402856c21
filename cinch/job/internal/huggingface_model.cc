// Keys, their defaults and what they mean: huggingface/transformers, models/*/configuration_*.py and modeling_*.py.

#include "cinch/job/internal/huggingface_model.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cinch/core/text.h"
#include "cinch/job/huggingface.h"

namespace cinch::job::internal {
namespace {
using nlohmann::json;

/// The context that is wanted, if that is known, and the longest that the model has.
struct Context {
  std::optional<std::int64_t> wanted;
  std::int64_t longest = 0;
};

using Read = toml::table (*)(const JsonConfig& config, Context& context);
struct Architecture {
  std::string_view name, model_type;
  bool base;
  Read read;
};

std::int64_t default_context(std::int64_t longest, Context& context) {
  context.longest = longest;
  return std::min(longest, kDefaultContext);
}

/// Of learned positions, which end: rotary ones are computed for any.
std::int64_t learned_context(const JsonConfig& config, const char* key, std::int64_t longest, Context& context) {
  if (context.wanted && *context.wanted > longest) {
    config.fail(key, fmt::format("is {}, less than the context length {}", longest, *context.wanted));
  }
  return default_context(longest, context);
}

std::int64_t classes_of(const JsonConfig& config) {
  std::int64_t classes = config.integer({"num_labels", "_num_labels"}, 2);
  if (const json* labels = config.find({"id2label"})) {
    if (!labels->is_object() || labels->empty()) config.fail("id2label", "wants an object with a name for every class");
    classes = static_cast<std::int64_t>(labels->size());
  }
  config.want("problem_type", "single_label_classification", {"single_label_classification"});
  if (classes == 1) config.fail("id2label", "names one class, which makes a regression; cinch trains classifiers");
  return classes;
}

toml::table gpt2(const JsonConfig& config, Context& context) {
  const std::int64_t hidden = config.integer({"n_embd", "hidden_size"}, 768);
  const double dropout = config.number({"resid_pdrop"}, 0.1);
  const std::int64_t inner = config.integer({"n_inner"}, 4 * hidden);
  if (inner != 4 * hidden) config.fail("n_inner", fmt::format("is {}; cinch has 4 × n_embd = {}", inner, 4 * hidden));
  if (const double other = config.number({"embd_pdrop"}, 0.1); other != dropout) {
    config.fail("embd_pdrop", fmt::format("is {}, resid_pdrop {}; cinch has one rate for both", other, dropout));
  }
  if (const double eps = config.number({"layer_norm_epsilon"}, 1e-5); eps != 1e-5) {
    config.fail("layer_norm_epsilon", fmt::format("is {}; cinch has 1e-05", eps));
  }
  config.want("activation_function", "gelu_new", {"gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu"});
  config.want("scale_attn_weights", true, true, "cinch divides attention scores by the root of the head's size");
  config.want("scale_attn_by_inverse_layer_idx", false, false, "cinch scales attention alike in all layers");
  config.want("reorder_and_upcast_attn", false, false, "cinch computes attention in one dtype");
  const std::int64_t positions = config.integer({"n_positions", "max_position_embeddings"}, 1024);
  const bool exact = config.text({"activation_function"}, "gelu_new") == "gelu";
  return toml::table{{"kind", "gpt"},
                     {"layers", config.integer({"n_layer", "num_hidden_layers"}, 12)},
                     {"hidden_size", hidden},
                     {"heads", config.integer({"n_head", "num_attention_heads"}, 12)},
                     {"context_length", learned_context(config, "n_positions", positions, context)},
                     {"vocab_size", config.integer({"vocab_size"}, 50257)},
                     {"dropout", dropout},
                     {"attention_dropout", config.number({"attn_pdrop"}, 0.1)},
                     {"tie_weights", config.boolean("tie_word_embeddings", true)},
                     {"activation", exact ? "gelu" : "gelu_tanh"}};
}

toml::table bert_like(const JsonConfig& config, const char* kind, double dropout) {
  config.want("hidden_act", "gelu", {"gelu"});
  const std::int64_t hidden = config.integer({"hidden_size"}, 768);
  return toml::table{{"kind", kind},
                     {"layers", config.integer({"num_hidden_layers"}, 12)},
                     {"hidden_size", hidden},
                     {"heads", config.integer({"num_attention_heads"}, 12)},
                     {"intermediate_size", config.integer({"intermediate_size"}, 3072)},
                     {"dropout", config.number({"hidden_dropout_prob"}, dropout)},
                     {"attention_dropout", config.number({"attention_probs_dropout_prob"}, dropout)},
                     {"norm_eps", config.number({"layer_norm_eps"}, 1e-12)}};
}

/// The row of the embedding that torch.nn.Embedding does not train, counted from the end if negative; -1: there is
/// none.
std::int64_t padding_token(const JsonConfig& config, std::optional<std::int64_t> unsaid, std::int64_t vocab_size) {
  const char* const kKey = "pad_token_id";
  if (config.is_null(kKey) || (!unsaid && config.find({kKey}) == nullptr)) return -1;
  const std::int64_t token = config.integer({kKey}, unsaid, -vocab_size);
  if (token >= vocab_size) {
    config.fail(kKey, fmt::format("is {}, no token of vocab_size {}", token, vocab_size),
                "null says that none is padding.");
  }
  return token < 0 ? vocab_size + token : token;
}

toml::table bert(const JsonConfig& config, std::int64_t classes, Context& context) {
  config.want("position_embedding_type", "absolute", {"absolute"});
  config.want("tie_word_embeddings", true, true, "cinch's masked-language head shares the embedding");
  toml::table model = bert_like(config, "bert", 0.1);
  const double dropout = *model["dropout"].value<double>();
  if (const double head = config.number({"classifier_dropout"}, dropout); classes > 0 && head != dropout) {
    config.fail("classifier_dropout",
                fmt::format("is {}, hidden_dropout_prob {}; cinch has one rate for both", head, dropout));
  }
  const std::int64_t positions = config.integer({"max_position_embeddings"}, 512);
  model.insert("context_length", learned_context(config, "max_position_embeddings", positions, context));
  const std::int64_t vocab_size = config.integer({"vocab_size"}, 30522);
  model.insert("vocab_size", vocab_size);
  model.insert("padding_token", padding_token(config, 0, vocab_size));
  model.insert("token_types", config.integer({"type_vocab_size"}, 2));
  model.insert("classes", classes);
  return model;
}
toml::table bert_masked(const JsonConfig& config, Context& context) { return bert(config, 0, context); }
toml::table bert_classifier(const JsonConfig& config, Context& context) {
  return bert(config, classes_of(config), context);
}

toml::table vit(const JsonConfig& config, Context&) {
  config.want("qkv_bias", true, true, "cinch's queries, keys and values have biases");
  toml::table model = bert_like(config, "vit", 0);
  model.insert("patch_size", config.integer({"patch_size"}, 16));
  model.insert("image_size", config.integer({"image_size"}, 224));
  model.insert("channels", config.integer({"num_channels"}, 3));
  model.insert("classes", classes_of(config));
  return model;
}

void check_rope(const JsonConfig& config, const char* name) {
  const json* rope = config.find({name});
  if (rope == nullptr) return;
  if (!rope->is_object()) config.fail(name, "wants an object");
  for (const auto& [key, value] : rope->items()) {
    const bool kind = key == "type" || key == "rope_type";
    if (key == "rope_theta" || (kind && (value == "default" || value.is_null()))) continue;
    config.fail(name,
                fmt::format("has {} = {}; cinch computes plain rotary positions", printable(key.substr(0, 40)),
                            printable(value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 40))),
                "Remove the key if the memory of the plain kind is what you want to know: it is the same.");
  }
}

double rope_theta(const JsonConfig& config) {
  check_rope(config, "rope_scaling");
  check_rope(config, "rope_parameters");
  const json* rope = config.find({"rope_parameters"});
  if (rope == nullptr || !rope->contains("rope_theta")) return config.number({"rope_theta"}, 10000);
  const json& theta = rope->at("rope_theta");
  if (!theta.is_number()) config.fail("rope_parameters", "wants a number as rope_theta");
  return theta.get<double>();
}

toml::table rotary(const JsonConfig& config, std::int64_t inner, std::int64_t default_kv, std::int64_t positions,
                   Context& context) {
  config.want("hidden_act", "silu", {"silu", "swish"});
  config.want("attention_bias", false, false, "cinch's attention has no biases");
  config.want("mlp_bias", false, false, "cinch's feed-forward has no biases");
  if (const double dropout = config.number({"attention_dropout"}, 0); dropout != 0) {
    config.fail("attention_dropout", fmt::format("is {}; cinch's llama has no dropout", dropout));
  }
  const std::int64_t heads = config.integer({"num_attention_heads"}, 32),
                     hidden = config.integer({"hidden_size"}, 4096);
  const bool all = default_kv == 0 || config.is_null("num_key_value_heads");
  const std::int64_t kv = config.integer({"num_key_value_heads"}, all ? heads : default_kv);
  const std::int64_t vocab_size = config.integer({"vocab_size"}, 32000);
  if (!config.find({"head_dim"}) && hidden % heads != 0) {
    config.fail("num_attention_heads", fmt::format("is {}, which does not divide hidden_size {}", heads, hidden));
  }
  return toml::table{
      {"kind", "llama"},
      {"layers", config.integer({"num_hidden_layers"}, 32)},
      {"hidden_size", hidden},
      {"heads", heads},
      {"key_value_heads", kv},
      {"head_size", config.integer({"head_dim"}, hidden / heads)},
      {"intermediate_size", config.integer({"intermediate_size"}, inner)},
      {"context_length", default_context(config.integer({"max_position_embeddings"}, positions), context)},
      {"vocab_size", vocab_size},
      {"padding_token", padding_token(config, std::nullopt, vocab_size)},
      {"rope_theta", rope_theta(config)},
      {"norm_eps", config.number({"rms_norm_eps"}, 1e-6)},
      {"tie_weights", config.boolean("tie_word_embeddings", false)}};
}
toml::table llama(const JsonConfig& config, Context& context) { return rotary(config, 11008, 0, 2048, context); }

toml::table mistral(const JsonConfig& config, Context& context) {
  toml::table model = rotary(config, 14336, 8, 4096 * 32, context);
  const std::int64_t length = context.wanted.value_or(*model["context_length"].value<std::int64_t>());
  if (config.is_null("sliding_window")) return model;
  if (const std::int64_t window = config.integer({"sliding_window"}, 4096); window < length) {
    config.fail("sliding_window",
                fmt::format("is {}, less than the context length {}; cinch attends to all of it", window, length),
                fmt::format("Set model.context_length to at most {}.", window));
  }
  return model;
}

toml::table resnet(const JsonConfig& config, Context&) {
  struct Known {
    std::int64_t depth;
    bool bottleneck;
    std::array<std::int64_t, 4> blocks;
  };
  static constexpr std::array<Known, 5> kKnown{{{18, false, {2, 2, 2, 2}},
                                                {34, false, {3, 4, 6, 3}},
                                                {50, true, {3, 4, 6, 3}},
                                                {101, true, {3, 4, 23, 3}},
                                                {152, true, {3, 8, 36, 3}}}};
  config.want("layer_type", "bottleneck", {"basic", "bottleneck"});
  config.want("hidden_act", "relu", {"relu"});
  config.want("downsample_in_first_stage", false, false, "cinch's first stage keeps the size");
  config.want("downsample_in_bottleneck", false, false, "cinch's bottlenecks stride in their 3 × 3 convolution");
  if (const std::int64_t stem = config.integer({"embedding_size"}, 64); stem != 64) {
    config.fail("embedding_size", fmt::format("is {}; cinch has 64", stem));
  }
  const bool bottleneck = config.text({"layer_type"}, "bottleneck") == "bottleneck";
  const std::vector<std::int64_t> widths = config.integers("hidden_sizes", {256, 512, 1024, 2048});
  const std::vector<std::int64_t> depths = config.integers("depths", {3, 4, 6, 3});
  const std::vector<std::int64_t> expected =
      bottleneck ? std::vector<std::int64_t>{256, 512, 1024, 2048} : std::vector<std::int64_t>{64, 128, 256, 512};
  if (widths != expected) {
    config.fail("hidden_sizes",
                fmt::format("is [{}]; cinch has [{}]", fmt::join(widths, ", "), fmt::join(expected, ", ")));
  }
  const auto* found = std::ranges::find_if(kKnown, [&](const Known& known) {
    return known.bottleneck == bottleneck && std::ranges::equal(known.blocks, depths);
  });
  if (found == kKnown.end()) {
    config.fail("depths", fmt::format("is [{}], of no ResNet that cinch has", fmt::join(depths, ", ")),
                "Known here: 18 and 34 of basic layers, 50, 101 and 152 of bottlenecks.");
  }
  return toml::table{{"kind", "resnet"},
                     {"depth", found->depth},
                     {"classes", classes_of(config)},
                     {"channels", config.integer({"num_channels"}, 3)},
                     {"image_size", config.integer({"image_size"}, 224)}};
}

// The base model of each type comes last: what a config without `architectures` is.
constexpr std::array<Architecture, 13> kArchitectures{{
    {"GPT2LMHeadModel", "gpt2", false, gpt2},
    {"GPT2Model", "gpt2", true, gpt2},
    {"BertForMaskedLM", "bert", false, bert_masked},
    {"BertForSequenceClassification", "bert", false, bert_classifier},
    {"BertModel", "bert", true, bert_masked},
    {"ViTForImageClassification", "vit", false, vit},
    {"ViTModel", "vit", true, vit},
    {"LlamaForCausalLM", "llama", false, llama},
    {"LlamaModel", "llama", true, llama},
    {"MistralForCausalLM", "mistral", false, mistral},
    {"MistralModel", "mistral", true, mistral},
    {"ResNetForImageClassification", "resnet", false, resnet},
    {"ResNetModel", "resnet", true, resnet},
}};

const Architecture& architecture_of(const JsonConfig& config) {
  std::vector<std::string_view> names;
  names.reserve(kArchitectures.size());
  for (const Architecture& known : kArchitectures) names.push_back(known.name);
  const std::string type = config.text({"model_type"}, "");
  std::string name;
  if (const json* list = config.find({"architectures"})) {
    if (!list->is_array() || list->empty() || !list->front().is_string()) {
      config.fail("architectures", "wants a list with the name of a model");
    }
    name = list->front().get<std::string>();
  }
  const std::string hint = fmt::format("Known here: {}.", fmt::join(names, ", "));
  if (name.empty() && type.empty()) config.fail("architectures", "is missing", hint);
  const Architecture* found = nullptr;
  for (const Architecture& known : kArchitectures) {
    if (name.empty() ? known.model_type == type : known.name == name) found = &known;
  }
  if (found == nullptr) {
    config.fail(
        name.empty() ? "model_type" : "architectures",
        fmt::format("names {}, which cinch does not have", printable((name.empty() ? type : name).substr(0, 80))),
        hint);
  }
  if (!type.empty() && found->model_type != type) {
    config.fail("model_type",
                fmt::format("is {}, but architectures names {}", printable(type.substr(0, 80)), found->name));
  }
  return *found;
}
}  // namespace

HuggingFaceModel read_huggingface_model(const JsonConfig& config, std::optional<std::int64_t> context) {
  const Architecture& architecture = architecture_of(config);
  config.want_absent("quantization_config", "cinch trains weights of floating point");
  config.want("is_decoder", false, false, "cinch's encoders see all tokens");
  config.want("is_encoder_decoder", false, false, "cinch's models are one or the other");
  config.want("add_cross_attention", false, false, "cinch has no cross-attention");
  if (const json* pruned = config.find({"pruned_heads"}); pruned != nullptr && !pruned->empty()) {
    config.fail("pruned_heads", "is not empty; cinch's layers have all heads");
  }
  Context length{context};
  HuggingFaceModel model;
  model.architecture = architecture.name;
  model.base = architecture.base;
  model.section = architecture.read(config, length);
  model.longest_context = length.longest;
  return model;
}
}  // namespace cinch::job::internal
