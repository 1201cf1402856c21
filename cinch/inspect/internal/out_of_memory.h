#pragma once
// Why an allocation failed, or would have, and what would have helped.

#include <optional>

#include "cinch/inspect/inspect.h"
#include "cinch/inspect/internal/passes.h"

namespace cinch::inspect::internal {

/// What there is to know of the failure before anything is played again.
struct Failure {
  bool recorded = false;
  Bytes capacity, asked, free, reserved;
  std::size_t event = 0;                  ///< Among the events played, from 0.
  std::optional<std::size_t> already_at;  ///< As in OutOfMemory.
  Bytes largest_free_block;
  bool tensors_alone = false;  ///< Too much without any waste.
};

/// The first recorded failure; else where the recording would run out at `capacity`. Nothing if it would not: then
/// `retries` says how often cached segments must be given back there for it to go on.
std::optional<Failure> find_failure(const snapshot::Snapshot& snapshot, const snapshot::Device& device,
                                    const allocator::Settings& settings, const Meter::Totals& totals,
                                    std::optional<Bytes> capacity, std::int64_t& retries);

/// Fills in all but `live` and `waste`, which the caller has set.
void explain(OutOfMemory& oom, const Failure& failure, const snapshot::Snapshot& snapshot,
             const snapshot::Device& device, const allocator::Settings& settings, const Moments::Moment& moment,
             const Kinds& kinds);

/// The smallest set of what lives without which `needed` bytes more could be had wherever they lie: fewest tensors,
/// then least bytes. Nothing if all of them are too little.
std::vector<Moments::Allocation> smallest_set(std::vector<Moments::Allocation> live, Bytes needed);

/// The same where the bytes must be in one piece: a run of blocks in one segment of that stream and pool, or segments
/// emptied until the driver has `segment` bytes. Least bytes, then fewest tensors.
std::vector<trace::Block> smallest_room(const std::vector<trace::Segment>& segments, Bytes rounded, Bytes segment,
                                        Bytes free, trace::StreamId stream, trace::PoolId pool);
}  // namespace cinch::inspect::internal
