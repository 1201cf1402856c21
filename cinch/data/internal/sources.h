#pragma once
// The kinds of sources, and what they share.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/data/batch.h"
#include "cinch/data/source.h"
#include "cinch/job/job.h"

namespace cinch::data {

/// What one sample of a model looks like.
struct SampleShape {
  std::vector<std::int64_t> inputs;     ///< Without the batch dimension.
  std::vector<std::int64_t> targets{};  ///< The same; empty: one target a sample.
  std::int64_t vocabulary = 0;          ///< Inputs are int64 of 0 to vocabulary-1; 0: float32.
  std::int64_t classes = 0;             ///< Targets are 0 to classes-1.
  std::int64_t masked = 0;              ///< Above 0: so many targets of a sample count, the inputs they hide.
  bool tokens() const { return vocabulary > 0; }
  std::int64_t features() const;  ///< Numbers in one sample's inputs.
  std::int64_t labels() const;    ///< Numbers in one sample's targets.
  std::int64_t counted() const { return masked > 0 ? masked : labels(); }
};
SampleShape shape_of(const job::ModelConfig& model);

/// Inputs, then targets, values undefined: the two allocations a batch makes. Counts are set.
Batch make_batch(const SampleShape& shape, std::int64_t batch_size);

/// "KIND position=N": everything that decides the order is in `kind`, so that a state of another source is recognised.
std::string format_state(const std::string& kind, std::uint64_t position);
/// The position in `state`. Throws DataError when it is not a state of `kind`.
std::uint64_t parse_state(const std::string& kind, std::string_view state);

std::unique_ptr<Source> open_text(const job::TextData& data, const SampleShape& shape, std::int64_t batch_size,
                                  std::uint64_t seed, Split split);
std::unique_ptr<Source> open_csv(const job::CsvData& data, const SampleShape& shape, std::int64_t batch_size,
                                 std::uint64_t seed, Split split);
std::unique_ptr<Source> open_synthetic(const SampleShape& shape, std::int64_t batch_size, std::uint64_t seed,
                                       Split split);
}  // namespace cinch::data
