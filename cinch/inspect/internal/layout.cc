#include "cinch/inspect/internal/layout.h"

#include <iterator>
#include <utility>

#include "cinch/inspect/fragmentation.h"

namespace cinch::inspect::internal {
namespace {

using trace::Action;
using trace::Block;
using State = Block::State;

constexpr std::int64_t kMinBlock = 512;
constexpr std::int64_t kSmallSegment = 2 << 20;
constexpr std::int64_t kSmallRequest = 1 << 20;

std::uint64_t end_of(std::uint64_t address, Bytes bytes) { return address + static_cast<std::uint64_t>(bytes.count()); }
}  // namespace

Layout::Layout(std::span<const trace::Segment> start, allocator::Settings settings) : settings_(std::move(settings)) {
  for (const trace::Segment& segment : start) {
    ranges_[segment.address] = {segment.total, segment.stream,     segment.pool,
                                segment.large, segment.expandable, segment.stack};
    reserved_ += segment.total;
    for (const Block& block : segment.blocks) blocks_[block.address] = block;
  }
}

void Layout::apply(const trace::Event& event) {
  if (event.before) return;
  bool fits = true;
  switch (event.action) {
    case Action::kAlloc:
      fits = allocate(event);
      break;
    case Action::kFreeRequested:
      fits = let_go(event, State::kActivePendingFree);
      break;
    case Action::kFreeCompleted:
      fits = let_go(event, State::kInactive);
      break;
    case Action::kSegmentAlloc:
      fits = add_range(event, false);
      break;
    case Action::kSegmentMap:
      fits = add_range(event, true);
      break;
    case Action::kSegmentFree:
    case Action::kSegmentUnmap:
      fits = remove_range(event);
      break;
    case Action::kSnapshot:
    case Action::kOom:
    case Action::kMark:
      break;
  }
  if (!fits) ++ignored_;
}

Layout::Ranges::iterator Layout::range_of(std::uint64_t address) {
  auto range = ranges_.upper_bound(address);
  if (range == ranges_.begin()) return ranges_.end();
  --range;
  return address < end_of(range->first, range->second.total) ? range : ranges_.end();
}

/// The free block that holds `address`, cut so that it begins there.
Layout::Blocks::iterator Layout::free_block_at(std::uint64_t address) {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  Block& found = block->second;
  if (found.state != State::kInactive || address >= end_of(found.address, found.size)) return blocks_.end();
  if (found.address == address) return block;
  const Bytes front(static_cast<std::int64_t>(address - found.address));
  Block rest = found;
  rest.address = address;
  rest.size = found.size - front;
  found.size = front;
  return blocks_.emplace(address, rest).first;
}

bool Layout::splits(const Range& range, Bytes block, Bytes size) const {
  const Bytes rest = block - size;
  if (rest < Bytes(0)) return false;
  if (!range.large || range.expandable) return rest >= Bytes(kMinBlock);
  return (!settings_.max_split_size || size < *settings_.max_split_size) && rest > Bytes(kSmallRequest);
}

bool Layout::allocate(const trace::Event& event) {
  const auto range = range_of(event.address);
  const auto found = range == ranges_.end() ? blocks_.end() : free_block_at(event.address);
  if (found == blocks_.end()) return false;
  Block& block = found->second;
  const Bytes size = round_request(event.bytes, settings_);
  if (splits(range->second, block.size, size)) {
    const std::uint64_t tail = end_of(block.address, size);
    blocks_[tail] = {tail, block.size - size, Bytes(0), State::kInactive, {}};
    block.size = size;
  }
  block.requested = event.bytes;
  block.state = State::kActiveAllocated;
  block.stack = event.stack;
  return true;
}

bool Layout::let_go(const trace::Event& event, State state) {
  const auto found = blocks_.find(event.address);
  if (found == blocks_.end() || found->second.state == State::kInactive) return false;
  found->second.state = state;
  if (state != State::kInactive) return true;
  found->second.requested = Bytes(0);
  found->second.stack = {};
  if (const auto range = range_of(event.address); range != ranges_.end()) merge(range, found);
  return true;
}

void Layout::merge(Ranges::iterator range, Blocks::iterator block) {
  const std::uint64_t begin = range->first, end = end_of(begin, range->second.total);
  if (const auto next = std::next(block);
      next != blocks_.end() && next->first < end && next->second.state == State::kInactive) {
    block->second.size += next->second.size;
    blocks_.erase(next);
  }
  if (block->first == begin || block == blocks_.begin()) return;
  const auto previous = std::prev(block);
  if (previous->second.state != State::kInactive) return;
  previous->second.size += block->second.size;
  blocks_.erase(block);
}

bool Layout::add_range(const trace::Event& event, bool expandable) {
  if (event.bytes <= Bytes(0) || range_of(event.address) != ranges_.end()) return false;
  const auto next = ranges_.upper_bound(event.address);
  if (next != ranges_.end() && next->first < end_of(event.address, event.bytes)) return false;
  const bool large = event.bytes > Bytes(kSmallSegment);
  const auto range =
      ranges_.emplace(event.address, Range{event.bytes, event.stream, event.pool, large, expandable, event.stack})
          .first;
  blocks_[event.address] = {event.address, event.bytes, Bytes(0), State::kInactive, {}};
  reserved_ += event.bytes;
  if (expandable) join_neighbours(range);
  return true;
}

/// Mapped ranges of one expandable segment that touch are one. Blocks stay where they are: only the free block of what
/// was mapped can have got new neighbours.
void Layout::join_neighbours(Ranges::iterator range) {
  const auto touch = [](const Ranges::iterator& left, const Ranges::iterator& right) {
    const Range &a = left->second, &b = right->second;
    return a.expandable && b.expandable && a.stream == b.stream && a.pool == b.pool &&
           end_of(left->first, a.total) == right->first;
  };
  const auto join = [&](Ranges::iterator left, Ranges::iterator right) {
    left->second.total += right->second.total;
    left->second.large = left->second.large || right->second.large;
    ranges_.erase(right);
    return left;
  };
  const auto mapped = blocks_.find(range->first);
  if (const auto next = std::next(range); next != ranges_.end() && touch(range, next)) range = join(range, next);
  if (range != ranges_.begin() && touch(std::prev(range), range)) range = join(std::prev(range), range);
  merge(range, mapped);
}

bool Layout::remove_range(const trace::Event& event) {
  const auto range = range_of(event.address);
  if (range == ranges_.end()) return false;
  const std::uint64_t begin = event.address, end = end_of(begin, event.bytes);
  const std::uint64_t range_end = end_of(range->first, range->second.total);
  const auto block = free_block_at(begin);
  if (event.bytes <= Bytes(0) || end > range_end || block == blocks_.end()) return false;
  const std::uint64_t block_end = end_of(block->first, block->second.size);
  if (end > block_end) return false;
  if (end < block_end)
    blocks_[end] = {end, Bytes(static_cast<std::int64_t>(block_end - end)), Bytes(0), State::kInactive, {}};
  blocks_.erase(begin);
  reserved_ -= event.bytes;
  const Range whole = range->second;
  if (range->first == begin) {
    ranges_.erase(range);
  } else {
    range->second.total = Bytes(static_cast<std::int64_t>(begin - range->first));
  }
  if (end < range_end) {
    Range rest = whole;
    rest.total = Bytes(static_cast<std::int64_t>(range_end - end));
    ranges_[end] = rest;
  }
  return true;
}

std::vector<trace::Segment> Layout::segments() const {
  std::vector<trace::Segment> result;
  auto block = blocks_.begin();
  for (const auto& [address, range] : ranges_) {
    trace::Segment segment{address,     range.total,      range.stream, range.pool,
                           range.large, range.expandable, range.stack,  {}};
    while (block != blocks_.end() && block->first < address) ++block;
    for (; block != blocks_.end() && block->first < end_of(address, range.total); ++block) {
      segment.blocks.push_back(block->second);
    }
    result.push_back(std::move(segment));
  }
  return result;
}
}  // namespace cinch::inspect::internal
