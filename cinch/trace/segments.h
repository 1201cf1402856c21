#pragma once
// What a caching allocator holds: segments got from the driver, each tiled by blocks without a gap.

#include <cstdint>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/trace/event.h"

namespace cinch::trace {

/// As in PyTorch's snapshots.
struct Block {
  enum class State : std::uint8_t {
    kActiveAllocated,
    kActivePendingFree,  ///< Let go, but another stream may still use it.
    kInactive
  };
  std::uint64_t address = 0;
  Bytes size{};       ///< After rounding, with what could not be split off.
  Bytes requested{};  ///< 0 if inactive.
  State state = State::kInactive;
  StackId stack{};  ///< Of the allocation, where it was recorded.
  friend bool operator==(const Block&, const Block&) = default;
};

/// Of an expandable segment: one contiguous mapped range.
struct Segment {
  std::uint64_t address = 0;
  Bytes total{};
  StreamId stream{};
  PoolId pool{};
  bool large = false;  ///< Serves requests over 1 MiB.
  bool expandable = false;
  StackId stack{};
  std::vector<Block> blocks{};  ///< By address; their sizes sum to `total`.
  friend bool operator==(const Segment&, const Segment&) = default;
};
}  // namespace cinch::trace
