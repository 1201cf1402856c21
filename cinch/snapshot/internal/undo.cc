#include "cinch/snapshot/internal/undo.h"

#include <algorithm>
#include <utility>

namespace cinch::snapshot::internal {
namespace {
using trace::Action;
using trace::Block;
using trace::Segment;

constexpr std::size_t kMostDead = std::size_t{1} << 16;
constexpr std::int64_t kSmallSegment = std::int64_t{2} << 20;  // kSmallBuffer

std::uint64_t end_of(const Segment& segment) {
  return segment.address + static_cast<std::uint64_t>(segment.total.count());
}
std::uint64_t end_of(const PackedEvent& event) { return event.address + static_cast<std::uint64_t>(event.size); }

Segment without_blocks(const Segment& segment) {
  Segment copy;
  copy.address = segment.address;
  copy.total = segment.total;
  copy.stream = segment.stream;
  copy.pool = segment.pool;
  copy.large = segment.large;
  copy.expandable = segment.expandable;
  copy.stack = segment.stack;
  return copy;
}
}  // namespace

Undo::Undo(const Recording::PerDevice& recorded, bool has_requests) : has_requests_(has_requests) {
  for (const Segment& segment : recorded.segments) {
    const std::uint32_t held = add(without_blocks(segment));
    for (const Block& block : segment.blocks) {
      if (block.state == Block::State::kInactive) continue;
      LiveBlock live;
      live.requested = block.requested.count();
      live.size = block.size.count();
      live.stack = static_cast<std::uint32_t>(block.stack);
      live.segment = held;
      live.state =
          block.state == Block::State::kActiveAllocated ? LiveBlock::State::kAllocated : LiveBlock::State::kPending;
      enter(block.address, live);
    }
  }
}

std::uint32_t Undo::add(Segment segment) {
  std::uint32_t index = 0;
  if (free_held_.empty()) {
    index = static_cast<std::uint32_t>(held_.size());
    held_.emplace_back();
  } else {
    index = free_held_.back();
    free_held_.pop_back();
  }
  by_address_[segment.address] = index;
  held_[index] = Held{std::move(segment)};
  return index;
}

void Undo::remove(std::uint32_t held) {
  by_address_.erase(held_[held].segment.address);
  held_[held].present = false;
  free_held_.push_back(held);
}

// The segment that holds an address, or kNowhere.
std::uint32_t Undo::find(std::uint64_t address) const {
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return kNowhere;
  const std::uint32_t held = (--after)->second;
  return address < end_of(held_[held].segment) ? held : kNowhere;
}

// Expandable segments grow, shrink and join: their blocks are found by address, not by segment.
void Undo::enter(std::uint64_t address, const LiveBlock& block) {
  if (blocks_.size() > 2 * live_ + kMostDead) purge();
  LiveBlock& entered = blocks_[address] = block;
  ++live_;
  Held& held = held_[block.segment];
  if (held.segment.expandable) {
    entered.segment = kExpandable;
    expandable_[address] = address + static_cast<std::uint64_t>(std::max<std::int64_t>(block.requested, 1));
  } else {
    ++held.live;
  }
}

void Undo::leave(std::uint64_t address, LiveBlock& block) {
  block.state = LiveBlock::State::kDead;
  --live_;
  if (block.segment == kExpandable) {
    expandable_.erase(address);
  } else {
    --held_[block.segment].live;
  }
}

std::uint32_t Undo::pool_of(std::uint64_t address, const LiveBlock& block) const {
  const std::uint32_t held = block.segment == kExpandable ? find(address) : block.segment;
  return static_cast<std::uint16_t>(held_[held].segment.pool);
}

// Forgets the dead once they outnumber the living.
void Undo::purge() {
  trace::AddressMap<LiveBlock> fresh;
  blocks_.for_each([&](std::uint64_t address, const LiveBlock& block) {
    if (block.state != LiveBlock::State::kDead) fresh[address] = block;
  });
  blocks_ = std::move(fresh);
}

bool Undo::undo(PackedEvent& event) {
  switch (static_cast<Action>(event.action)) {
    case Action::kAlloc:
      return undo_alloc(event);
    case Action::kFreeCompleted:
      return undo_completed(event);
    case Action::kFreeRequested:
      return undo_requested(event);
    case Action::kSegmentAlloc:
      return undo_segment_alloc(event);
    case Action::kSegmentFree:
      return undo_segment_free(event);
    case Action::kSegmentMap:
      return undo_map(event);
    case Action::kSegmentUnmap:
      return undo_unmap(event);
    default:
      return true;
  }
}

bool Undo::undo_alloc(PackedEvent& event) {
  LiveBlock* block = blocks_.find(event.address);
  if (block == nullptr || block->state == LiveBlock::State::kDead) return false;
  if (block->from_free) {
    seen_stacks_ = true;
    same_stacks_ = same_stacks_ && block->stack == event.stack;
  }
  // What follows is the authority: its size was checked. Older recordings do not tell requests from blocks.
  const bool is_unknown = !block->from_free && block->requested == block->size && event.size <= block->size;
  if (!is_unknown) event.size = block->requested;
  event.pool = pool_of(event.address, *block);
  leave(event.address, *block);
  return true;
}

bool Undo::undo_completed(PackedEvent& event) {
  LiveBlock* known = blocks_.find(event.address);
  if (known != nullptr && known->state != LiveBlock::State::kDead) return false;
  LiveBlock block;
  block.segment = known != nullptr ? known->segment : kNowhere;
  const bool still_there = block.segment < held_.size() && held_[block.segment].present &&
                           event.address >= held_[block.segment].segment.address &&
                           event.address < end_of(held_[block.segment].segment);
  if (!still_there) block.segment = find(event.address);
  if (block.segment == kNowhere || end_of(event) > end_of(held_[block.segment].segment)) return false;
  block.requested = event.size;
  block.stack = event.stack;
  block.from_free = true;
  block.state = has_requests_ ? LiveBlock::State::kPending : LiveBlock::State::kAllocated;
  event.pool = static_cast<std::uint16_t>(held_[block.segment].segment.pool);
  enter(event.address, block);
  return true;
}

bool Undo::undo_requested(PackedEvent& event) {
  LiveBlock* block = blocks_.find(event.address);
  if (block == nullptr || block->state != LiveBlock::State::kPending) return false;
  block->state = LiveBlock::State::kAllocated;
  event.size = block->requested;
  event.pool = pool_of(event.address, *block);
  return true;
}

bool Undo::undo_segment_alloc(PackedEvent& event) {
  const auto found = by_address_.find(event.address);
  if (found == by_address_.end()) return false;
  const Held& held = held_[found->second];
  if (held.segment.expandable || held.segment.total.count() != event.size || held.live > 0) return false;
  event.pool = static_cast<std::uint16_t>(held.segment.pool);
  remove(found->second);
  return true;
}

// Neither a segment begins in the range nor one reaches into it.
bool Undo::is_free(std::uint64_t begin, std::uint64_t end) const {
  if (end <= begin || find(begin) != kNowhere) return false;
  const auto after = by_address_.lower_bound(begin);
  return after == by_address_.end() || after->first >= end;
}

bool Undo::undo_segment_free(const PackedEvent& event) {
  if (!is_free(event.address, end_of(event))) return false;
  Segment segment;
  segment.address = event.address;
  segment.total = Bytes(event.size);
  segment.stream = trace::StreamId{static_cast<std::uint16_t>(event.stream)};
  segment.large = event.size > kSmallSegment;
  add(std::move(segment));
  return true;
}

// Takes a range out of an expandable segment; what is left of it are up to two.
bool Undo::undo_map(PackedEvent& event) {
  const std::uint32_t index = find(event.address);
  if (index == kNowhere || event.size == 0 || !held_[index].segment.expandable) return false;
  const Segment segment = held_[index].segment;
  const std::uint64_t begin = event.address, end = end_of(event);
  if (end > end_of(segment)) return false;
  auto block = expandable_.lower_bound(begin);
  if (block != expandable_.end() && block->first < end) return false;
  if (block != expandable_.begin() && std::prev(block)->second > begin) return false;
  event.pool = static_cast<std::uint16_t>(segment.pool);
  remove(index);
  const auto keep = [&](std::uint64_t from, std::uint64_t to) {
    if (from == to) return;
    Segment part = segment;
    part.address = from;
    part.total = Bytes(static_cast<std::int64_t>(to - from));
    add(std::move(part));
  };
  keep(segment.address, begin);
  keep(end, end_of(segment));
  return true;
}

// Adds a range to the expandable segments it touches.
bool Undo::undo_unmap(const PackedEvent& event) {
  std::uint64_t begin = event.address, end = end_of(event);
  if (!is_free(begin, end)) return false;
  constexpr std::int64_t kLargePage = std::int64_t{20} << 20;
  Segment whole;
  whole.stream = trace::StreamId{static_cast<std::uint16_t>(event.stream)};
  whole.large = event.size % kLargePage == 0;
  whole.expandable = true;
  const auto join = [&](std::uint32_t neighbour) {
    const Segment& segment = held_[neighbour].segment;
    if (!segment.expandable || segment.stream != whole.stream) return;
    whole.pool = segment.pool;
    whole.large = segment.large;
    whole.stack = segment.stack;
    begin = std::min(begin, segment.address);
    end = std::max(end, end_of(segment));
    remove(neighbour);
  };
  if (begin > 0) {
    if (const std::uint32_t before = find(begin - 1); before != kNowhere) join(before);
  }
  if (const std::uint32_t after = find(end); after != kNowhere) join(after);
  whole.address = begin;
  whole.total = Bytes(static_cast<std::int64_t>(end - begin));
  add(std::move(whole));
  return true;
}

std::vector<std::pair<std::uint64_t, LiveBlock>> Undo::live(std::vector<std::uint64_t>& dropped) {
  std::vector<std::pair<std::uint64_t, LiveBlock>> all;
  blocks_.for_each([&](std::uint64_t address, const LiveBlock& block) {
    if (block.state != LiveBlock::State::kDead) all.emplace_back(address, block);
  });
  std::ranges::sort(all, {}, &std::pair<std::uint64_t, LiveBlock>::first);
  std::vector<std::pair<std::uint64_t, LiveBlock>> kept;
  const auto drop = [&](std::uint64_t address) {
    dropped.push_back(address);
    leave(address, *blocks_.find(address));
  };
  for (const auto& [address, block] : all) {
    const std::uint64_t end = address + static_cast<std::uint64_t>(std::max(block.size, block.requested));
    if (end > end_of(held_[find(address)].segment)) {  // What it reached into was mapped later.
      drop(address);
      continue;
    }
    bool keeps = true;
    while (keeps && !kept.empty()) {
      const auto& [before, other] = kept.back();
      if (before + static_cast<std::uint64_t>(std::max(other.size, other.requested)) <= address) break;
      keeps = block.size > 0;  // What the recording itself shows at its end is true.
      drop(keeps ? before : address);
      if (keeps) kept.pop_back();
    }
    if (keeps) kept.emplace_back(address, block);
  }
  return kept;
}

std::vector<Segment> Undo::segments() const {
  std::vector<Segment> all;
  for (const auto& [address, held] : by_address_) all.push_back(held_[held].segment);
  return all;
}
}  // namespace cinch::snapshot::internal
