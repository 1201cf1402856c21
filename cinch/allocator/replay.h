#pragma once
// A recording, or a dry run, through the allocator's model.
//
//   const Verdict verdict = verify(snapshot, device);                       // does the model do what was recorded?
//   const WhatIf run = what_if(snapshot, device, {.settings = other, .device_memory = 24_GiB});
//
//   Replay replay(machine, addresses);  { DryRun dry(replay, gpu); step(); }  replay.stats().peak_reserved;

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cinch/allocator/caching_allocator.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/sink.h"
#include "cinch/trace/trace.h"

namespace cinch::allocator {

/// The request that could not be served.
struct RanOut {
  std::size_t event = 0;  ///< Position in the recording, from 0; state at the start has none and does not count.
  bool at_start = false;  ///< What lives at the start does not fit already; `event` is the first one.
  Bytes asked;            ///< As requested.
  Bytes live;             ///< Requested bytes that live then.
  OutOfMemory why;
};

/// Drives a model from events: allocations and frees of whatever makes them, addresses not needed. A free that another
/// stream delayed is completed where the trace says so, unless a retry completes it before. A recorded out-of-memory is
/// tried: what it gets is freed at once. Stops at the first request that cannot be served. Sizes that are not positive
/// and allocations out of order are passed over.
class Replay final : public trace::Sink {
 public:
  /// `addresses` and `listener` must outlive it. `empties_cache`: where the trace gives segments of the default pool
  /// back, the program has called empty_cache(): do the same.
  Replay(const Machine& machine, AddressSource& addresses, SegmentListener* listener = nullptr,
         bool empties_cache = true);
  ~Replay() override;

  /// Instead of requesting what lives at the start anew, takes over the state that was recorded. Before anything else;
  /// the trace must begin with the same blocks, by address. Throws UsageError as CachingAllocator::restore().
  void restore(std::span<const trace::Segment> segments);

  void on_event(const trace::Event& event) override;

  Stats stats() const;
  const std::optional<RanOut>& failure() const;
  std::size_t events() const;  ///< Heard, state at the start not counted.
  /// Whether another order of addresses could have led elsewhere.
  bool addresses_mattered() const;
  std::vector<trace::Segment> segments() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// As the recording states them; what it does not state explicitly is read from its PYTORCH_CUDA_ALLOC_CONF if that can
/// be read.
Settings recorded_settings(const snapshot::RecordedSettings& recorded);

/// What the process could have where the recording last ran out: reserved then, and what the driver said was free.
/// Nothing if it did not run out.
std::optional<Bytes> recorded_memory(const snapshot::Snapshot& snapshot, const snapshot::Device& device);

/// The model against a recording under the recording's own settings and addresses. Taken as given, since no recording
/// says why they happened: when a delayed free completes, and when segments are given back (what is given back must be
/// whole and free, and unless garbage collection or max_split_size picks, must be all there is).
struct Verdict {
  std::size_t events = 0;
  std::size_t mismatches = 0;  ///< Allocations elsewhere, segment events elsewhere or of another size, final blocks.
  std::string first;           ///< A sentence on the first of them; "" if there is none.
  Stats stats;                 ///< Of the model at the end.
};
Verdict verify(const snapshot::Snapshot& snapshot, const snapshot::Device& device);

/// Lowest and highest over several orders of the addresses that the driver could choose; equal where they play no part.
struct Interval {
  Bytes low, high;
};

/// A recording under other settings or on another card.
struct WhatIf {
  using Failure = RanOut;
  Settings settings;
  Interval peak_allocated, peak_reserved, end_reserved;  ///< Until it ran out, where it does.
  std::int64_t alloc_retries = 0;                        ///< The largest of the orders.
  std::optional<Failure> failure;                        ///< The earliest of the orders.
  std::size_t orders = 0;                                ///< That were tried.
  std::size_t orders_failed = 0;                         ///< Of these.
  bool exact_start = false;  ///< Began in the recorded state, at recorded addresses; else it was packed anew.
};

/// Under the recording's own settings it begins in the recorded state. Under others, that state is packed anew by
/// requesting what lives at the start in order of address, and the orders of all_address_orders() are tried if the
/// first shows that they matter.
WhatIf what_if(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Machine& machine);
WhatIf what_if(const trace::Trace& trace, const Machine& machine);

/// Settings worth trying, best first: those that never run out, then fewest retries, then least peak reserved, ties
/// to fewer changes. The recording's own, the defaults, and each key alone at sizes that the trace suggests; then
/// combinations of what helped. Of those that one order of addresses shows to be far behind only the best of each key
/// stays. `machine.settings` is not looked at. `progress` hears each when its first order is done.
std::vector<WhatIf> grid(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Machine& machine,
                         const std::function<void(const WhatIf&)>& progress = {});
std::vector<WhatIf> grid(const trace::Trace& trace, const Machine& machine,
                         const std::function<void(const WhatIf&)>& progress = {});

/// Which of `runs` is worth setting instead of `now`: it does not run out where `now` does, or reserves at least 1 %
/// less at its peak without more retries. Of those within 1 % of the best the one that changes least. Nothing if none
/// is.
const WhatIf* recommend(std::span<const WhatIf> runs, const WhatIf& now);
}  // namespace cinch::allocator
