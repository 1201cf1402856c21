#include "cinch/data/source.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "cinch/core/error.h"
#include "cinch/data/internal/sources.h"

namespace cinch::data {
namespace {

/// The shape of one sample; throws ConfigError for a model that this kind of data cannot feed.
SampleShape shape_for(const job::DataConfig& data, const job::ModelConfig& model) {
  SampleShape shape = shape_of(model);
  const bool next_token = shape.tokens() && shape.masked == 0 && !shape.targets.empty();
  if (std::holds_alternative<job::TextData>(data) && !next_token) {
    throw ConfigError("data.kind", 0, "data.kind", "text only feeds a model that predicts the next token",
                      "Text goes with model.kind = \"gpt\", \"llama\" or \"lstm\".");
  }
  if (std::holds_alternative<job::CsvData>(data) && (shape.tokens() || !shape.targets.empty())) {
    throw ConfigError("data.kind", 0, "data.kind", "rows of pixels only feed a model that gives an image one class",
                      "Csv goes with model.kind = \"mlp\", \"resnet\" or \"vit\".");
  }
  return shape;
}
}  // namespace

namespace {
std::int64_t product(const std::vector<std::int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

template <class Config>
SampleShape next_words(const Config& model) {
  return {.inputs = {model.context_length},
          .targets = {model.context_length},
          .vocabulary = model.vocab_size,
          .classes = model.vocab_size};
}
SampleShape shape(const job::GptConfig& gpt) { return next_words(gpt); }
SampleShape shape(const job::LlamaConfig& llama) { return next_words(llama); }
SampleShape shape(const job::LstmConfig& lstm) { return next_words(lstm); }
SampleShape shape(const job::BertConfig& bert) {
  SampleShape sample{.inputs = {bert.context_length}, .vocabulary = bert.vocab_size, .classes = bert.classes};
  if (bert.classes > 0) return sample;
  sample.targets = sample.inputs;
  sample.classes = bert.vocab_size;
  sample.masked = std::max<std::int64_t>(1, bert.context_length * 15 / 100);  // 1810.04805, section 3.1.
  return sample;
}
SampleShape shape(const job::MlpConfig& mlp) { return {.inputs = {mlp.sizes.front()}, .classes = mlp.sizes.back()}; }
SampleShape shape(const job::UnetConfig& unet) {
  return {.inputs = {unet.channels, unet.image_size, unet.image_size},
          .targets = {unet.image_size, unet.image_size},
          .classes = unet.classes};
}
template <class Config>  // ResNet and ViT
SampleShape shape(const Config& images) {
  return {.inputs = {images.channels, images.image_size, images.image_size}, .classes = images.classes};
}
}  // namespace

std::int64_t SampleShape::features() const { return product(inputs); }
std::int64_t SampleShape::labels() const { return product(targets); }

SampleShape shape_of(const job::ModelConfig& model) {
  return std::visit([](const auto& config) { return shape(config); }, model);
}

Batch make_batch(const SampleShape& shape, std::int64_t batch_size) {
  const auto batched = [&](std::vector<std::int64_t> sizes) {
    sizes.insert(sizes.begin(), batch_size);
    return sizes;
  };
  Batch batch;
  batch.inputs = at::empty(batched(shape.inputs), shape.tokens() ? at::kLong : at::kFloat);
  batch.targets = at::empty(batched(shape.targets), at::kLong);
  batch.targets_per_row = shape.counted();
  batch.target_count = batch_size * batch.targets_per_row;
  return batch;
}

std::string format_state(const std::string& kind, std::uint64_t position) {
  return kind + " position=" + std::to_string(position);
}

std::uint64_t parse_state(const std::string& kind, std::string_view state) {
  const std::string prefix = kind + " position=";
  std::uint64_t position = 0;
  if (state.starts_with(prefix)) {
    const char* end = state.data() + state.size();
    const auto [stop, error] = std::from_chars(state.data() + prefix.size(), end, position);
    if (error == std::errc() && stop == end) return position;
  }
  throw DataError("data position", 0, "saved by other data: '" + std::string(state) + "', now '" + kind + "'",
                  "Resume with the data, seed and model of the run that was saved.");
}

std::unique_ptr<Source> open(const job::DataConfig& data, const job::ModelConfig& model, std::int64_t batch_size,
                             std::uint64_t seed, Split split) {
  const SampleShape shape = shape_for(data, model);
  if (split == Split::kHeldOut && !holds_out(data)) return nullptr;
  if (const auto* text = std::get_if<job::TextData>(&data)) return open_text(*text, shape, batch_size, seed, split);
  if (const auto* csv = std::get_if<job::CsvData>(&data)) return open_csv(*csv, shape, batch_size, seed, split);
  return open_synthetic(shape, batch_size, seed, split);
}

bool holds_out(const job::DataConfig& data) {
  if (const auto* text = std::get_if<job::TextData>(&data)) return text->held_out > 0;
  if (const auto* csv = std::get_if<job::CsvData>(&data)) return csv->held_out > 0;
  return true;
}

Batch example_batch(const job::DataConfig& data, const job::ModelConfig& model, std::int64_t batch_size) {
  auto batch = make_batch(shape_for(data, model), batch_size);
  batch.inputs.zero_();  // a dry run computes with small tensors: token 0 and class 0 exist
  batch.targets.zero_();
  const std::int64_t labels = batch.targets.numel() / batch_size;
  if (batch.targets_per_row < labels) {
    batch.targets.narrow(1, batch.targets_per_row, labels - batch.targets_per_row).fill_(kIgnored);
  }
  return batch;
}
}  // namespace cinch::data
