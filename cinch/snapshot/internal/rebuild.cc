#include "cinch/snapshot/internal/rebuild.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "cinch/snapshot/internal/undo.h"

namespace cinch::snapshot::internal {
namespace {
using trace::Action;
using trace::Block;
using trace::Segment;

constexpr std::int64_t kMinBlock = 512, kMostSlack = std::int64_t{1} << 20;  // kMinBlockSize, kSmallSize
constexpr int kFirstDivision = 20;                                           // roundup_power2_divisions begin at 1 MiB.

// round_size() of the allocator.
std::int64_t rounded(std::int64_t requested, const RecordedSettings& settings) {
  if (requested < kMinBlock) return kMinBlock;
  const auto size = static_cast<std::uint64_t>(requested);
  std::int64_t divisions = 0;
  if (!settings.roundup_power2_divisions.empty()) {
    const int slot = std::clamp<int>(static_cast<int>(std::bit_width(size)) - 1 - kFirstDivision, 0, 15);
    divisions = settings.roundup_power2_divisions[static_cast<std::size_t>(slot)];
  }
  if (divisions > 1 && requested > kMinBlock * divisions) {
    if (std::has_single_bit(size)) return requested;
    const std::uint64_t step = std::bit_floor(size) >> (std::bit_width(static_cast<std::uint64_t>(divisions)) - 1);
    if (step == 0) return static_cast<std::int64_t>(std::bit_ceil(size));
    return static_cast<std::int64_t>((size + step - 1) / step * step);
  }
  return (requested + kMinBlock - 1) / kMinBlock * kMinBlock;
}

/// A block whose end only a later allocation behind it can tell.
struct Open {
  std::uint64_t address = 0, from = 0, to = 0;  ///< It ends within [from, to].
  Block* block = nullptr;
};

/// The blocks of one segment. `live` are those within it.
class Tiling {
 public:
  Tiling(Segment& segment, const RecordedSettings& settings, bool stacks_of_frees, std::vector<Open>& open)
      : segment_(segment), settings_(settings), stacks_of_frees_(stacks_of_frees), open_(open) {}

  void tile(std::span<const std::pair<std::uint64_t, LiveBlock>> live) {
    segment_.blocks.reserve(2 * live.size() + 1);  // Open points into it.
    std::uint64_t at = segment_.address;
    const std::uint64_t end = at + static_cast<std::uint64_t>(segment_.total.count());
    for (std::size_t i = 0; i < live.size(); ++i) {
      const auto& [address, found] = live[i];
      fill(at, address);
      const std::uint64_t limit = i + 1 < live.size() ? live[i + 1].first : end;
      Block& block = segment_.blocks.emplace_back();
      block.address = address;
      block.requested = Bytes(found.requested);
      block.state =
          found.state == LiveBlock::State::kPending ? Block::State::kActivePendingFree : Block::State::kActiveAllocated;
      if (!found.from_free || stacks_of_frees_) block.stack = trace::StackId{found.stack};
      block.size = Bytes(found.size > 0 ? found.size : size_of(block, static_cast<std::int64_t>(limit - address)));
      at = address + static_cast<std::uint64_t>(block.size.count());
    }
    fill(at, end);
  }

 private:
  void fill(std::uint64_t from, std::uint64_t to) {
    if (from >= to) return;
    Block& gap = segment_.blocks.emplace_back();
    gap.address = from;
    gap.size = Bytes(static_cast<std::int64_t>(to - from));
  }

  // should_split() read backwards: of the `room` up to the next live block, what can the block not have split off?
  std::int64_t size_of(Block& block, std::int64_t room) {
    const std::int64_t needed = std::max<std::int64_t>(rounded(block.requested.count(), settings_), 1);
    if (needed >= room) return room;
    if (!segment_.large || segment_.expandable) return needed;  // Splits off whatever is at least 512 B.
    if (settings_.max_split_size && needed >= settings_.max_split_size->count()) return room;  // Never split.
    if (room - needed <= kMostSlack) return room;
    open_.push_back({block.address, block.address + static_cast<std::uint64_t>(needed),
                     block.address + static_cast<std::uint64_t>(needed + kMostSlack), &block});
    return needed;
  }

  Segment& segment_;
  const RecordedSettings& settings_;
  bool stacks_of_frees_;
  std::vector<Open>& open_;
};

/// Looks forward from a state: which events free what was dropped, and where allocations begin behind blocks whose end
/// is not known.
class LookAhead {
 public:
  LookAhead(const std::vector<std::uint64_t>& dropped, std::vector<Open>& open)
      : dropped_(dropped.begin(), dropped.end()) {
    std::ranges::sort(open, {}, &Open::address);
    for (Open& one : open) {
      by_address_.emplace(one.address, open_.size());
      open_.push_back(one);
    }
  }

  /// Events [first, last); those before `played` are left out where they free what was dropped. Returns how many are.
  std::size_t run(EventPool& events, std::size_t first, std::size_t played, std::size_t last) {
    std::size_t left_out = 0, unknown = open_.size();
    for (std::size_t i = first; i < last && (unknown > 0 || (i < played && !dropped_.empty())); ++i) {
      PackedEvent& event = events[i];
      if (event.left_out != 0) continue;
      const auto action = static_cast<Action>(event.action);
      if (action == Action::kAlloc) unknown -= saw_allocation(event.address) ? 1 : 0;
      if (action != Action::kFreeRequested && action != Action::kFreeCompleted) continue;
      if (i < played && dropped_.contains(event.address)) {
        event.left_out = 1;
        ++left_out;
        if (action == Action::kFreeCompleted) dropped_.erase(event.address);
        continue;
      }
      if (action == Action::kFreeCompleted) unknown -= forget(event.address) ? 1 : 0;
    }
    return left_out;
  }

 private:
  // The first allocation behind a block begins where the block ends: free memory is used from its front.
  bool saw_allocation(std::uint64_t address) {
    auto after = std::ranges::upper_bound(open_, address, {}, &Open::address);
    if (after == open_.begin()) return false;
    Open& open = *--after;
    if (open.block == nullptr || address < open.from || address > open.to) return false;
    const auto size = static_cast<std::int64_t>(address - open.address);
    move_end(open, size);
    return true;
  }

  static void move_end(Open& open, std::int64_t size) {
    Block& block = *open.block;
    Block& gap = *(&block + 1);  // There is one: it was open because room was left.
    const Bytes more = Bytes(size) - block.size;
    block.size += more;
    gap.size -= more;
    gap.address += static_cast<std::uint64_t>(more.count());
    open.block = nullptr;
  }

  bool forget(std::uint64_t address) {
    const auto found = by_address_.find(address);
    if (found == by_address_.end() || open_[found->second].block == nullptr) return false;
    open_[found->second].block = nullptr;
    return true;
  }

  std::unordered_set<std::uint64_t> dropped_;
  std::vector<Open> open_;
  std::unordered_map<std::uint64_t, std::size_t> by_address_;
};

/// What the state is made of at the moment; `ahead` sees the events that follow it.
template <class Ahead>
std::vector<Segment> state_of(Undo& undo, const RecordedSettings& settings, const Ahead& ahead) {
  std::vector<std::uint64_t> dropped;
  const auto live = undo.live(dropped);
  std::vector<Segment> segments = undo.segments();
  std::vector<Open> open;
  std::size_t first = 0;
  for (Segment& segment : segments) {
    const std::uint64_t end = segment.address + static_cast<std::uint64_t>(segment.total.count());
    std::size_t last = first;
    while (last < live.size() && live[last].first < end) ++last;
    Tiling(segment, settings, undo.frees_carry_stacks(), open).tile(std::span(live).subspan(first, last - first));
    first = last;
  }
  ahead(LookAhead(dropped, open));
  return segments;
}
// Are frees recorded in two parts? A recorder may be told to skip one of them: the other is then the whole, and is made
// kFreeCompleted.
bool unify_frees(EventPool& events, const Recording::PerDevice& recorded) {
  constexpr auto kRequested = static_cast<std::uint32_t>(Action::kFreeRequested);
  constexpr auto kCompleted = static_cast<std::uint32_t>(Action::kFreeCompleted);
  const std::size_t end = recorded.first + recorded.count;
  bool requests = false, completions = false;
  for (std::size_t i = recorded.first; i < end && !(requests && completions); ++i) {
    requests |= events[i].action == kRequested;
    completions |= events[i].action == kCompleted;
  }
  if (!requests || completions) return requests;
  for (const Segment& segment : recorded.segments) {
    const auto is_pending = [](const Block& block) { return block.state == Block::State::kActivePendingFree; };
    if (std::ranges::any_of(segment.blocks, is_pending)) return true;  // They wait to be completed.
  }
  for (std::size_t i = recorded.first; i < end; ++i) {
    if (events[i].action == kRequested) events[i].action = kCompleted;
  }
  return false;
}
}  // namespace

void rebuild(Recording& recording, Recording::PerDevice& recorded, Range range, Device& device) {
  EventPool& events = recording.events;
  const std::size_t begin = recorded.first, end = begin + recorded.count;
  const bool has_requests = unify_frees(events, recorded);
  Undo undo(recorded, has_requests);
  const auto undo_to = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i-- > to;) {
      const std::int64_t size = events[i].size;
      const bool undone = undo.undo(events[i]);
      events[i].left_out = undone ? 0 : 1;
      if (i < begin + range.last) device.left_out += undone && events[i].size == size ? 0 : 1;
    }
  };
  undo_to(end, begin + range.last);
  if (range.last == recorded.count) {
    device.end = std::move(recorded.segments);
  } else {
    device.end = state_of(undo, recording.settings,
                          [&](LookAhead ahead) { ahead.run(events, begin + range.last, begin + range.last, end); });
  }
  undo_to(begin + range.last, begin + range.first);
  device.start = state_of(undo, recording.settings, [&](LookAhead ahead) {
    device.left_out += ahead.run(events, begin + range.first, begin + range.last, end);
  });
  device.first_event = range.first;
  device.events = range.last - range.first;
}
}  // namespace cinch::snapshot::internal
