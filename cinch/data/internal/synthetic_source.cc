// Random samples from (seed, index): no file, no end.

#include "cinch/data/internal/hash.h"
#include "cinch/data/internal/sources.h"

namespace cinch::data {
namespace {

class SyntheticSource final : public Source {
 public:
  SyntheticSource(const SampleShape& shape, std::int64_t batch_size, std::uint64_t seed, Split split)
      : shape_(shape),
        batch_size_(batch_size),
        seed_(mix(seed, static_cast<std::uint64_t>(split))),
        kind_("synthetic seed=" + std::to_string(seed)) {}

  Batch next() override {
    Batch batch = make_batch(shape_, batch_size_);
    for (std::int64_t row = 0; row < batch_size_; ++row, ++position_) {
      if (shape_.tokens) {
        fill_tokens(batch, row);
      } else {
        fill_image(batch, row);
      }
    }
    return batch;
  }
  std::string state() const override { return format_state(kind_, position_); }
  void restore(std::string_view state) override { position_ = parse_state(kind_, state); }

 private:
  void fill_tokens(Batch& batch, std::int64_t row) const {
    const std::int64_t length = shape_.features();
    const std::uint64_t sample = mix(seed_, position_);
    std::int64_t* inputs = batch.inputs.mutable_data_ptr<std::int64_t>() + row * length;
    std::int64_t* targets = batch.targets.mutable_data_ptr<std::int64_t>() + row * length;
    for (std::int64_t i = 0; i <= length; ++i) {
      const auto token = static_cast<std::int64_t>(
          draw_below(static_cast<std::uint64_t>(shape_.classes), sample, static_cast<std::uint64_t>(i)));
      if (i < length) inputs[i] = token;
      if (i > 0) targets[i - 1] = token;
    }
  }

  void fill_image(Batch& batch, std::int64_t row) const {
    const std::int64_t features = shape_.features();
    const std::uint64_t sample = mix(seed_, position_);
    float* inputs = batch.inputs.mutable_data_ptr<float>() + row * features;
    for (std::int64_t i = 0; i < features; ++i) {
      inputs[i] = static_cast<float>(mix(sample, static_cast<std::uint64_t>(i)) >> 40) * 0x1p-24f;
    }
    batch.targets.mutable_data_ptr<std::int64_t>()[row] = static_cast<std::int64_t>(
        draw_below(static_cast<std::uint64_t>(shape_.classes), sample, static_cast<std::uint64_t>(features)));
  }

  SampleShape shape_;
  std::int64_t batch_size_;
  std::uint64_t seed_;
  std::string kind_;
  std::uint64_t position_ = 0;  ///< Samples given out.
};
}  // namespace

std::unique_ptr<Source> open_synthetic(const SampleShape& shape, std::int64_t batch_size, std::uint64_t seed,
                                       Split split) {
  return std::make_unique<SyntheticSource>(shape, batch_size, seed, split);
}
}  // namespace cinch::data
