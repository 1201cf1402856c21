#pragma once
// Where reserved memory goes that no tensor asked for.
//
//   const Fragmentation parts = fragmentation(device.end, settings);
//   assert(parts.requested + parts.wasted() == parts.reserved);

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cinch/allocator/settings.h"
#include "cinch/trace/segments.h"

namespace cinch::inspect {

/// A segment of which part lies free, and what keeps it from being given back.
struct PinnedSegment {
  std::uint64_t address = 0;
  Bytes total, free, largest_free;
  struct Holder {
    std::uint64_t address = 0;  ///< Of the block.
    Bytes requested;
    trace::StackId stack{};
    std::string path;  ///< Of the stack, in words; empty until somebody who knows the stacks fills it in.
  };
  std::vector<Holder> holders;  ///< Smallest first: the cheapest to move away; at most four of them.
  std::size_t blocks = 0;       ///< That live in it.
};

/// Reserved memory, split without rest: requested + wasted() == reserved.
struct Fragmentation {
  Bytes reserved, requested;
  Bytes rounding;         ///< Of each request, to 512 B or as roundup_power2_divisions says.
  Bytes unsplittable;     ///< Of a block beyond that, too small a rest to be split off.
  Bytes stranded;         ///< Free blocks of segments in which something lives.
  Bytes cached_segments;  ///< Segments (of expandable ones: pages) in which nothing lives: given back before it fails.
  Bytes other_streams;    ///< Free, in pools of other streams than `stream`.
  Bytes private_pools;    ///< Free, in CUDA graphs' and MemPools' own.
  Bytes pending_frees;    ///< Let go, while another stream may still use them.
  std::size_t cached_segment_count = 0, stranded_blocks = 0;
  Bytes largest_free;                 ///< Block, of `stream` in the default pool.
  trace::StreamId stream{};           ///< The one looked at: that with most requested bytes unless given.
  std::vector<PinnedSegment> pinned;  ///< Those with most free bytes first.

  Bytes wasted() const;
};

/// As PyTorch rounds a request up before it looks for a block.
Bytes round_request(Bytes requested, const allocator::Settings& settings);

/// `pinned_limit`: how many pinned segments are kept.
Fragmentation fragmentation(std::span<const trace::Segment> segments, const allocator::Settings& settings,
                            std::optional<trace::StreamId> stream = {}, std::size_t pinned_limit = 16);
}  // namespace cinch::inspect
