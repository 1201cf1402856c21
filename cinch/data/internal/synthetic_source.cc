// Random samples from (seed, index): no file, no end.

#include <algorithm>
#include <utility>

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
      const std::uint64_t sample = mix(seed_, position_);
      std::int64_t* targets = batch.targets.mutable_data_ptr<std::int64_t>() + row * shape_.labels();
      if (shape_.tokens()) {
        std::int64_t* tokens = batch.inputs.mutable_data_ptr<std::int64_t>() + row * shape_.features();
        fill_tokens(sample, tokens, targets);
      } else {
        fill_image(sample, batch.inputs.mutable_data_ptr<float>() + row * shape_.features());
        fill_labels(sample, targets);
      }
    }
    return batch;
  }
  std::string state() const override { return format_state(kind_, position_); }
  void restore(std::string_view state) override { position_ = parse_state(kind_, state); }

 private:
  /// A number below `count`, the one at `index` of this sample's stream.
  static std::int64_t draw(std::int64_t count, std::uint64_t sample, std::int64_t index) {
    return static_cast<std::int64_t>(
        draw_below(static_cast<std::uint64_t>(count), sample, static_cast<std::uint64_t>(index)));
  }

  void fill_tokens(std::uint64_t sample, std::int64_t* tokens, std::int64_t* targets) const {
    const std::int64_t length = shape_.features();
    for (std::int64_t i = 0; i < length; ++i) tokens[i] = draw(shape_.vocabulary, sample, i);
    if (shape_.masked > 0) {
      mask(sample, tokens, targets);
    } else if (shape_.targets.empty()) {
      fill_labels(sample, targets);
    } else {  // The next token.
      std::copy(tokens + 1, tokens + length, targets);
      targets[length - 1] = draw(shape_.vocabulary, sample, length);
    }
  }

  /// Hides some tokens, which become the only targets.
  void mask(std::uint64_t sample, std::int64_t* tokens, std::int64_t* targets) const {
    const std::int64_t length = shape_.features();
    std::fill(targets, targets + length, kIgnored);
    for (std::int64_t i = 0; i < shape_.masked; ++i) {
      const auto at = permute(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(length), sample);
      targets[at] = std::exchange(tokens[at], shape_.vocabulary - 1);
    }
  }

  void fill_image(std::uint64_t sample, float* pixels) const {
    for (std::int64_t i = 0; i < shape_.features(); ++i) {
      pixels[i] = static_cast<float>(mix(sample, static_cast<std::uint64_t>(i)) >> 40) * 0x1p-24f;
    }
  }

  void fill_labels(std::uint64_t sample, std::int64_t* targets) const {
    const std::int64_t first = shape_.features();  // The inputs drew those before.
    for (std::int64_t i = 0; i < shape_.labels(); ++i) targets[i] = draw(shape_.classes, sample, first + i);
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
