#include "cinch/job/internal/scale.h"

#include <algorithm>
#include <variant>

namespace cinch::job::internal {
namespace {
// A transformer's layer: four projections of attention and a feed-forward, with biases, and two norms.
Wide encoder_layer(Wide hidden, Wide intermediate) {
  return 4 * hidden * (hidden + 1) + 2 * hidden * intermediate + hidden + intermediate + 4 * hidden;
}

Scale scale(const GptConfig& gpt) {
  const Wide hidden = gpt.hidden_size, context = gpt.context_length;
  const Wide embeddings = (Wide(gpt.vocab_size) * (gpt.tie_weights ? 1 : 2) + context) * hidden;
  return {"hidden_size", embeddings + gpt.layers * encoder_layer(hidden, 4 * hidden) + 2 * hidden,
          std::max({context * gpt.vocab_size, context * hidden * 4, context * context * gpt.heads})};
}

Scale scale(const ResNetConfig& resnet) {
  // All between the first convolution and the classifier (1512.03385, table 1).
  const Wide blocks = resnet.depth == 18    ? 11'167'104
                      : resnet.depth == 34  ? 21'275'264
                      : resnet.depth == 50  ? 23'498'624
                      : resnet.depth == 101 ? 42'490'752
                                            : 58'134'400;
  const Wide features = resnet.depth < 50 ? 512 : 2048;
  const Wide pixels = Wide(resnet.image_size) * resnet.image_size;
  return {"classes", Wide(resnet.channels) * 64 * 49 + blocks + (features + 1) * resnet.classes,
          std::max(pixels * std::max<Wide>(resnet.channels, 64), Wide(resnet.classes))};
}

Scale scale(const MlpConfig& mlp) {
  Wide sum = 0;
  for (std::size_t i = 1; i < mlp.sizes.size(); ++i) sum += (Wide(mlp.sizes[i - 1]) + 1) * mlp.sizes[i];
  return {"sizes", sum, static_cast<Wide>(*std::max_element(mlp.sizes.begin(), mlp.sizes.end()))};
}

Scale scale(const BertConfig& bert) {
  const Wide hidden = bert.hidden_size, context = bert.context_length, intermediate = bert.intermediate_size;
  const Wide embeddings = (Wide(bert.vocab_size) + context + bert.token_types + 2) * hidden;
  const Wide head =
      hidden * (hidden + 1) + (bert.classes > 0 ? (hidden + 1) * bert.classes : 2 * hidden + bert.vocab_size);
  const Wide scores = bert.classes > 0 ? Wide(bert.classes) : context * bert.vocab_size;
  return {"hidden_size", embeddings + bert.layers * encoder_layer(hidden, intermediate) + head,
          std::max({scores, context * hidden, context * intermediate, context * context * bert.heads})};
}

Scale scale(const VitConfig& vit) {
  const Wide hidden = vit.hidden_size, side = vit.image_size, intermediate = vit.intermediate_size;
  const Wide patch = Wide(vit.patch_size) * vit.patch_size * vit.channels;
  const Wide length = side / vit.patch_size * (side / vit.patch_size) + 1;
  return {"hidden_size",
          (patch + 1 + length + 1 + 2) * hidden + vit.layers * encoder_layer(hidden, intermediate) +
              (hidden + 1) * vit.classes,
          std::max({side * side * vit.channels, length * hidden, length * intermediate, length * length * vit.heads,
                    Wide(vit.classes)})};
}

Scale scale(const LlamaConfig& llama) {
  const Wide hidden = llama.hidden_size, context = llama.context_length, intermediate = llama.intermediate_size;
  const Wide queries = Wide(llama.heads) * llama.head_size, keys = Wide(llama.key_value_heads) * llama.head_size;
  const Wide layer = 2 * hidden * (queries + keys) + 3 * hidden * intermediate + 2 * hidden;
  return {"hidden_size", Wide(llama.vocab_size) * hidden * (llama.tie_weights ? 1 : 2) + llama.layers * layer + hidden,
          std::max({context * llama.vocab_size, context * hidden, context * queries, context * intermediate,
                    context * context * llama.heads})};
}

Scale scale(const UnetConfig& unet) {
  // Two 3 × 3 convolutions with batch norm, at each level on both ways; on the way up one of 2 × 2 before them.
  const auto pair = [](Wide in, Wide out) { return 9 * (in + out) * out + 4 * out; };
  Wide sum = 0, in = unet.channels;
  for (std::int64_t level = 0; level <= unet.levels; ++level) {
    const Wide channels = Wide(unet.base_channels) * (std::int64_t{1} << level);
    sum += pair(in, channels);
    if (level < unet.levels) sum += 8 * channels * channels + channels + pair(2 * channels, channels);
    in = channels;
  }
  const Wide pixels = Wide(unet.image_size) * unet.image_size;
  return {"base_channels", sum + (Wide(unet.base_channels) + 1) * unet.classes,
          pixels * std::max({Wide(unet.channels), 2 * Wide(unet.base_channels), Wide(unet.classes)})};
}

Scale scale(const LstmConfig& lstm) {
  const Wide hidden = lstm.hidden_size, context = lstm.context_length, words = lstm.vocab_size;
  const Wide embeddings = words * hidden + (lstm.tie_weights ? Wide(0) : words * (hidden + 1));
  return {"hidden_size", embeddings + lstm.layers * 8 * hidden * (hidden + 1),
          std::max({context * words, context * hidden * 4})};
}
}  // namespace

Scale scale_of(const ModelConfig& model) {
  return std::visit([](const auto& config) { return scale(config); }, model);
}
}  // namespace cinch::job::internal
