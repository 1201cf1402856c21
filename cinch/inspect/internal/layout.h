#pragma once
// Segments and blocks at any moment of a recording, followed event by event.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "cinch/allocator/settings.h"
#include "cinch/trace/segments.h"

namespace cinch::inspect::internal {

/// Believes the addresses that were recorded and needs the rules for sizes alone: what a request is rounded up to, and
/// whether the rest of its block is split off. So it holds also where the model and the recording part ways.
class Layout {
 public:
  Layout(std::span<const trace::Segment> start, allocator::Settings settings);
  /// Events with `before` set are skipped: they are in `start`.
  void apply(const trace::Event& event);

  Bytes reserved() const { return reserved_; }
  std::vector<trace::Segment> segments() const;     ///< By address.
  std::size_t ignored() const { return ignored_; }  ///< Events that do not fit what was there.

 private:
  struct Range {  ///< A segment, or a contiguous mapped part of an expandable one.
    Bytes total;
    trace::StreamId stream{};
    trace::PoolId pool{};
    bool large = false, expandable = false;
    trace::StackId stack{};
  };
  using Ranges = std::map<std::uint64_t, Range>;
  using Blocks = std::map<std::uint64_t, trace::Block>;

  Ranges::iterator range_of(std::uint64_t address);
  Blocks::iterator free_block_at(std::uint64_t address);
  bool splits(const Range& range, Bytes block, Bytes size) const;
  bool allocate(const trace::Event& event);
  bool let_go(const trace::Event& event, trace::Block::State state);
  void merge(Ranges::iterator range, Blocks::iterator block);
  bool add_range(const trace::Event& event, bool expandable);
  void join_neighbours(Ranges::iterator range);
  bool remove_range(const trace::Event& event);

  allocator::Settings settings_;
  Ranges ranges_;
  Blocks blocks_;
  Bytes reserved_;
  std::size_t ignored_ = 0;
};
}  // namespace cinch::inspect::internal
