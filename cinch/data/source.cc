#include "cinch/data/source.h"

#include <charconv>
#include <numeric>

#include "cinch/core/error.h"
#include "cinch/data/internal/sources.h"

namespace cinch::data {
namespace {

/// The shape of one sample; throws ConfigError for a model that this kind of data cannot feed.
SampleShape shape_for(const job::DataConfig& data, const job::ModelConfig& model) {
  SampleShape shape = shape_of(model);
  if (std::holds_alternative<job::TextData>(data) && !shape.tokens) {
    throw ConfigError("data.kind", 0, "data.kind", "text cannot feed a model of images", "Text goes with model.kind = \"gpt\".");
  }
  if (std::holds_alternative<job::CsvData>(data) && shape.tokens) {
    throw ConfigError("data.kind", 0, "data.kind", "rows of pixels cannot feed a model of text",
                      "Csv goes with model.kind = \"mlp\" or \"resnet\".");
  }
  return shape;
}
}  // namespace

std::int64_t SampleShape::features() const {
  return std::accumulate(inputs.begin(), inputs.end(), std::int64_t{1}, std::multiplies<>());
}

SampleShape shape_of(const job::ModelConfig& model) {
  if (const auto* gpt = std::get_if<job::GptConfig>(&model)) return {{gpt->context_length}, true, gpt->vocab_size};
  if (const auto* resnet = std::get_if<job::ResNetConfig>(&model)) {
    return {{resnet->channels, resnet->image_size, resnet->image_size}, false, resnet->classes};
  }
  const auto& mlp = std::get<job::MlpConfig>(model);
  return {{mlp.sizes.front()}, false, mlp.sizes.back()};
}

Batch make_batch(const SampleShape& shape, std::int64_t batch_size) {
  std::vector<std::int64_t> sizes{batch_size};
  sizes.insert(sizes.end(), shape.inputs.begin(), shape.inputs.end());
  Batch batch;
  batch.inputs = at::empty(sizes, shape.tokens ? at::kLong : at::kFloat);
  if (!shape.tokens) sizes.resize(1);
  batch.targets = at::empty(sizes, at::kLong);
  batch.target_count = batch.targets.numel();
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
  return batch;
}
}  // namespace cinch::data
