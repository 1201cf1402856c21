#include "cinch/job/internal/read_model.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cinch/job/internal/keys.h"
#include "cinch/job/internal/ranges.h"

namespace cinch::job::internal {
namespace {
constexpr IntegerRange kLayers{1, 10'000};
constexpr IntegerRange kLevels{1, 10};
constexpr IntegerRange kToken{-1, kLargest};  ///< -1: none.

GptConfig read_gpt(const Section& model) {
  GptConfig gpt;
  gpt.layers = model.integer("layers", kLayers);
  gpt.hidden_size = model.integer("hidden_size", kSize);
  gpt.heads = model.integer("heads", kSize);
  gpt.context_length = model.integer("context_length", kSize);
  gpt.vocab_size = model.integer("vocab_size", kSize, gpt.vocab_size);
  gpt.dropout = model.number("dropout", kShare, gpt.dropout);
  gpt.attention_dropout = model.number("attention_dropout", kShare, gpt.attention_dropout);
  gpt.tie_weights = model.boolean("tie_weights", gpt.tie_weights);
  gpt.activation = static_cast<Activation>(model.choice("activation", kActivations, 0));
  return gpt;
}

ResNetConfig read_resnet(const Section& model) {
  ResNetConfig resnet;
  resnet.depth = model.integer("depth", kSize, resnet.depth);
  constexpr std::array<std::int64_t, 5> kDepths{18, 34, 50, 101, 152};
  if (std::ranges::find(kDepths, resnet.depth) == kDepths.end()) {
    model.fail("depth", fmt::format("is {}; there are {}", resnet.depth, fmt::join(kDepths, ", ")));
  }
  resnet.classes = model.integer("classes", kSize);
  resnet.channels = model.integer("channels", kSize, resnet.channels);
  resnet.image_size = model.integer("image_size", kSize);
  return resnet;
}

MlpConfig read_mlp(const Section& model) {
  MlpConfig mlp;
  mlp.sizes = model.integers("sizes", kSize);
  if (mlp.sizes.size() < 2) {
    model.fail("sizes",
               fmt::format("has {} entries; it needs at least two: the inputs and the classes", mlp.sizes.size()));
  }
  mlp.dropout = model.number("dropout", kShare, mlp.dropout);
  return mlp;
}

// What BERT and ViT have alike.
template <typename Config>
void read_encoder(const Section& model, Config& config) {
  config.layers = model.integer("layers", kLayers);
  config.hidden_size = model.integer("hidden_size", kSize);
  config.heads = model.integer("heads", kSize);
  config.intermediate_size = model.integer("intermediate_size", kSize, 4 * config.hidden_size);
  config.dropout = model.number("dropout", kShare, config.dropout);
  config.attention_dropout = model.number("attention_dropout", kShare, config.attention_dropout);
  config.norm_eps = model.number("norm_eps", kPositive, config.norm_eps);
}

BertConfig read_bert(const Section& model) {
  BertConfig bert;
  read_encoder(model, bert);
  bert.context_length = model.integer("context_length", kSize, bert.context_length);
  bert.vocab_size = model.integer("vocab_size", kSize, bert.vocab_size);
  bert.token_types = model.integer("token_types", kSize, bert.token_types);
  bert.classes = model.integer("classes", kCount, bert.classes);
  bert.padding_token = model.integer("padding_token", kToken, bert.padding_token);
  return bert;
}

VitConfig read_vit(const Section& model) {
  VitConfig vit;
  read_encoder(model, vit);
  vit.patch_size = model.integer("patch_size", kSize, vit.patch_size);
  vit.image_size = model.integer("image_size", kSize, vit.image_size);
  vit.channels = model.integer("channels", kSize, vit.channels);
  vit.classes = model.integer("classes", kSize);
  return vit;
}

LlamaConfig read_llama(const Section& model) {
  LlamaConfig llama;
  llama.layers = model.integer("layers", kLayers);
  llama.hidden_size = model.integer("hidden_size", kSize);
  llama.heads = model.integer("heads", kSize);
  llama.key_value_heads = model.integer("key_value_heads", kSize, llama.heads);
  if (!model.has("head_size") && llama.hidden_size % llama.heads != 0) {
    model.fail("heads", fmt::format("is {}, which does not divide hidden_size {}", llama.heads, llama.hidden_size),
               "Choose heads that do, or say head_size.");
  }
  llama.head_size = model.integer("head_size", kSize, llama.hidden_size / llama.heads);
  llama.intermediate_size = model.integer("intermediate_size", kSize);
  llama.context_length = model.integer("context_length", kSize);
  llama.vocab_size = model.integer("vocab_size", kSize);
  llama.padding_token = model.integer("padding_token", kToken, llama.padding_token);
  llama.rope_theta = model.number("rope_theta", kPositive, llama.rope_theta);
  llama.norm_eps = model.number("norm_eps", kPositive, llama.norm_eps);
  llama.tie_weights = model.boolean("tie_weights", llama.tie_weights);
  return llama;
}

UnetConfig read_unet(const Section& model) {
  UnetConfig unet;
  unet.base_channels = model.integer("base_channels", kSize, unet.base_channels);
  unet.levels = model.integer("levels", kLevels, unet.levels);
  unet.classes = model.integer("classes", kSize);
  unet.channels = model.integer("channels", kSize, unet.channels);
  unet.image_size = model.integer("image_size", kSize);
  return unet;
}

LstmConfig read_lstm(const Section& model) {
  LstmConfig lstm;
  lstm.layers = model.integer("layers", kLayers);
  lstm.hidden_size = model.integer("hidden_size", kSize);
  lstm.context_length = model.integer("context_length", kSize);
  lstm.vocab_size = model.integer("vocab_size", kSize, lstm.vocab_size);
  lstm.dropout = model.number("dropout", kShare, lstm.dropout);
  lstm.tie_weights = model.boolean("tie_weights", lstm.tie_weights);
  return lstm;
}
}  // namespace

ModelConfig read_model(const Section& model, std::size_t kind) {
  switch (kind) {
    case 0:
      return read_gpt(model);
    case 1:
      return read_resnet(model);
    case 2:
      return read_mlp(model);
    case 3:
      return read_bert(model);
    case 4:
      return read_vit(model);
    case 5:
      return read_llama(model);
    case 6:
      return read_unet(model);
    default:
      return read_lstm(model);
  }
}
}  // namespace cinch::job::internal
