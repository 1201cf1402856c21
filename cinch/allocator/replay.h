#pragma once
// A recording, or a dry run, through the allocator's model.
//
//   const Verdict verdict = verify(snapshot, device);                       // does the model do what was recorded?
//   const WhatIf run = what_if(snapshot, device, {.settings = other, .device_memory = 24_GiB});

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cinch/allocator/caching_allocator.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/sink.h"

namespace cinch::allocator {

/// The model against a recording under the recording's own settings and addresses.
struct Verdict {
  std::size_t events = 0;
  std::size_t mismatches = 0;  ///< Allocations elsewhere, segment events elsewhere or of another size, final blocks.
  std::string first;           ///< A sentence on the first of them; "" if there is none.
};
Verdict verify(const snapshot::Snapshot& snapshot, const snapshot::Device& device);

/// Lowest and highest over several orders of the addresses that the driver could choose; equal where they play no part.
struct Interval {
  Bytes low, high;
};

/// A recording under other settings or on another card.
struct WhatIf {
  Settings settings;
  Interval peak_allocated, peak_reserved, end_reserved;
  std::int64_t alloc_retries = 0;  ///< The largest of the orders.
  struct Failure {
    std::size_t event = 0;  ///< Position in the recording, from 0.
    Bytes asked;            ///< As requested.
    Bytes live;             ///< Requested bytes that live then.
    OutOfMemory why;
  };
  std::optional<Failure> failure;  ///< The earliest of the orders.
  std::size_t orders = 0;          ///< That were tried.
};
WhatIf what_if(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Machine& machine);

/// Settings worth trying, best first: least peak reserved, ties to fewer changes. `progress` hears each as it is done.
std::vector<WhatIf> grid(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Machine& machine,
                         const std::function<void(const WhatIf&)>& progress = {});
}  // namespace cinch::allocator
