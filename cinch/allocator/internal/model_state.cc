// A whole state in and out.

#include <algorithm>

#include "cinch/allocator/internal/model.h"
#include "cinch/core/error.h"

namespace cinch::allocator::internal {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 62;

std::uint64_t plain(Bytes bytes) { return static_cast<std::uint64_t>(bytes.count()); }

[[noreturn]] void fail(std::uint64_t address, const std::string& problem) {
  throw UsageError("segment at address " + std::to_string(address) + " " + problem);
}

void check(const trace::Segment& segment) {
  std::uint64_t at = segment.address;
  for (const trace::Block& block : segment.blocks) {
    if (block.address != at || block.size.count() <= 0 || block.size > segment.total)
      fail(segment.address, "is not tiled by its blocks");
    if (block.requested < Bytes() || block.requested > block.size)
      fail(segment.address, "has a block smaller than what was asked for");
    at += plain(block.size);
  }
  if (segment.blocks.empty() || at - segment.address != plain(segment.total))
    fail(segment.address, "is not tiled by its blocks");
}

std::vector<const trace::Segment*> in_order(std::span<const trace::Segment> segments) {
  std::vector<const trace::Segment*> sorted;
  std::int64_t total = 0;
  for (const trace::Segment& segment : segments) {
    if (segment.total.count() <= 0 || segment.total.count() > kMostBytes - total ||
        segment.address > static_cast<std::uint64_t>(-1) - plain(segment.total)) {
      fail(segment.address, "has no possible size");
    }
    total += segment.total.count();
    sorted.push_back(&segment);
  }
  std::sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) { return a->address < b->address; });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->address < sorted[i - 1]->address + plain(sorted[i - 1]->total)) {
      fail(sorted[i]->address, "overlaps the one before");
    }
  }
  return sorted;
}

/// Whether two mapped ranges, neighbours by address, can lie in one expandable segment.
bool may_be_one(const trace::Segment& before, const trace::Segment& after) {
  return before.expandable && after.expandable && before.stream == after.stream && before.pool == after.pool &&
         before.large == after.large;
}
}  // namespace

// A recording shows of an expandable segment what is mapped, not where its range begins and ends: it is taken to begin
// with the first mapped page and to end where another segment begins, or where its size would end it.
void Model::restore(std::span<const trace::Segment> segments) {
  if (!nodes_.empty()) throw UsageError("restore() comes before anything else");
  const auto sorted = in_order(segments);
  Index range = kNone;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const trace::Segment& segment = *sorted[i];
    check(segment);
    const bool goes_on = range != kNone && may_be_one(*sorted[i - 1], segment) &&
                         segment.address + plain(segment.total) - segments_[range].address <= rules_.range;
    if (goes_on) {
      append_unmapped(range, segment.address);
    } else {
      range = restore_segment(segment);
    }
    restore_blocks(segment, range);
    if (!segment.expandable) {
      range = kNone;
    } else if (i + 1 == sorted.size() || !may_be_one(segment, *sorted[i + 1])) {
      const SegmentNode& last = segments_[range];
      const std::uint64_t page = page_of(*last.home);
      const std::uint64_t most = (std::max(rules_.range, last.size) + page - 1) / page * page;
      const std::uint64_t room = i + 1 == sorted.size() ? most : sorted[i + 1]->address - last.address;
      append_unmapped(range, last.address + std::min(most, room) / page * page);
    }
  }
  Counters& c = counters_;
  c.peak_requested = c.requested;
  c.peak_allocated = c.allocated;
  c.peak_active = c.active;
  c.peak_reserved = c.reserved;
}

Index Model::restore_segment(const trace::Segment& segment) {
  const auto index = static_cast<Index>(segments_.size());
  Home& home = home_of(segment.pool, segment.large, segment.stream);
  segments_.push_back(
      {.address = segment.address, .size = 0, .home = &home, .first = kNone, .expandable = segment.expandable});
  by_address_.emplace(segment.address, index);
  if (segment.expandable) {
    ++home.ranges;
  } else {
    ++counters_.segments;
  }
  return index;
}

void Model::append_unmapped(Index segment, std::uint64_t end) {
  const std::uint64_t at = segments_[segment].address + segments_[segment].size;
  if (end <= at) return;
  const Index node = append_node(segment, end - at);
  nodes_[node].state = Node::State::kUnmapped;
  nodes_[node].home->unmapped.emplace(at, node);
}

Index Model::append_node(Index segment, std::uint64_t size) {
  const Index index = new_node();
  SegmentNode& into = segments_[segment];
  Node& node = nodes_[index];
  node = {.address = into.address + into.size, .size = size, .home = into.home, .segment = segment};
  into.size += size;
  if (into.first == kNone) {
    into.first = index;
  } else {
    node.previous = index - 1;  // Nodes are appended one after the other.
    nodes_[index - 1].next = index;
  }
  return index;
}

void Model::restore_blocks(const trace::Segment& segment, Index into) {
  const auto first = static_cast<Index>(nodes_.size());
  for (const trace::Block& block : segment.blocks) {
    Node& node = nodes_[append_node(into, plain(block.size))];
    if (block.state == trace::Block::State::kInactive) {
      node.state = Node::State::kFree;
      continue;
    }
    node.state = Node::State::kAllocated;
    node.owner = ++restored_;
    node.requested = plain(block.requested);
    counters_.requested += block.requested.count();
    counters_.allocated += block.size.count();
    counters_.active += block.size.count();
    ++counters_.allocations;
  }
  counters_.reserved += segment.total.count();
  const auto last = static_cast<Index>(nodes_.size());
  for (Index index = first; index < last; ++index) {
    const trace::Block& block = segment.blocks[index - first];
    if (nodes_[index].state == Node::State::kFree) insert_free(index);
    if (block.state == trace::Block::State::kActivePendingFree) request_free(index);
  }
}

Stats stats_of(const Counters& c) {
  return {.requested = Bytes(c.requested),
          .allocated = Bytes(c.allocated),
          .active = Bytes(c.active),
          .inactive_split = Bytes(c.inactive_split),
          .reserved = Bytes(c.reserved),
          .peak_requested = Bytes(c.peak_requested),
          .peak_allocated = Bytes(c.peak_allocated),
          .peak_active = Bytes(c.peak_active),
          .peak_reserved = Bytes(c.peak_reserved),
          .segments = c.segments,
          .allocations = c.allocations,
          .alloc_retries = c.alloc_retries,
          .ooms = c.ooms,
          .device_allocs = c.device_allocs,
          .device_frees = c.device_frees};
}

std::vector<Index> Model::active_blocks() const {
  std::vector<Index> result;
  for (const auto& [address, segment] : by_address_) {
    for (Index block = segments_[segment].first; block != kNone; block = nodes_[block].next) {
      if (nodes_[block].state == Node::State::kAllocated || nodes_[block].state == Node::State::kPending)
        result.push_back(block);
    }
  }
  return result;
}

std::vector<trace::Segment> Model::segments() const {
  std::vector<trace::Segment> result;
  result.reserve(by_address_.size());
  for (const auto& [address, segment] : by_address_) append_segments(segments_[segment], result);
  return result;
}

void Model::append_segments(const SegmentNode& segment, std::vector<trace::Segment>& result) const {
  bool open = false;
  for (Index index = segment.first; index != kNone; index = nodes_[index].next) {
    const Node& node = nodes_[index];
    if (node.state == Node::State::kUnmapped) {
      open = false;
      continue;
    }
    if (!open) {
      result.push_back({.address = node.address,
                        .stream = segment.home->stream,
                        .pool = segment.home->pool->id,
                        .large = segment.home->pool->large,
                        .expandable = segment.expandable});
      open = true;
    }
    const Bytes size(static_cast<std::int64_t>(node.size));
    const auto state = node.state == Node::State::kFree      ? trace::Block::State::kInactive
                       : node.state == Node::State::kPending ? trace::Block::State::kActivePendingFree
                                                             : trace::Block::State::kActiveAllocated;
    result.back().total += size;
    result.back().blocks.push_back({.address = node.address,
                                    .size = size,
                                    .requested = Bytes(static_cast<std::int64_t>(node.requested)),
                                    .state = state});
  }
}
}  // namespace cinch::allocator::internal
