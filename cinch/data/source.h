#pragma once
// Where batches come from. Reads lazily: memory does not grow with the corpus.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cinch/data/batch.h"
#include "cinch/job/job.h"

namespace cinch::data {

enum class Split : std::uint8_t { kTrain, kHeldOut };

class Source {
 public:
  virtual ~Source() = default;
  /// The next batch, always of the full batch size; epochs follow one another without an end. Throws DataError,
  /// IoError.
  virtual Batch next() = 0;
  /// Enough to go on exactly here. restore() throws DataError for a state that is not this source's.
  virtual std::string state() const = 0;
  virtual void restore(std::string_view state) = 0;
};

/// Order depends on `seed` only. Throws ConfigError where data and model do not go together (a corpus shorter than the
/// context, a held-out part that is), IoError for files that cannot be read, DataError for files that are not what they
/// should be. kHeldOut: nullptr when the job holds nothing out.
std::unique_ptr<Source> open(const job::DataConfig& data, const job::ModelConfig& model, std::int64_t batch_size,
                             std::uint64_t seed, Split split = Split::kTrain);

/// Whether open(…, kHeldOut) yields a source: text and csv by their held_out; synthetic data always has other samples.
bool holds_out(const job::DataConfig& data);

/// A batch of the shape this job yields; reads nothing. What a dry run is fed. Allocates as next() does, so that the
/// recorded and the predicted events agree: inputs, then targets, and nothing else. All zeros, but
/// for targets that do not count.
Batch example_batch(const job::DataConfig& data, const job::ModelConfig& model, std::int64_t batch_size);
}  // namespace cinch::data
