#pragma once
// One device's segments and live blocks while its trace is run backwards.

#include <cstdint>
#include <map>
#include <vector>

#include "cinch/snapshot/internal/recording.h"
#include "cinch/trace/address_map.h"

namespace cinch::snapshot::internal {

struct LiveBlock {
  enum class State : std::uint8_t { kDead, kAllocated, kPending };
  std::int64_t requested = 0;
  std::int64_t size = 0;      ///< 0: not recorded.
  std::uint32_t stack = 0;    ///< Of its allocation; of its free, if `from_free`.
  std::uint32_t segment = 0;  ///< Where it was found, or Undo::kExpandable; looked up again once that is gone.
  State state = State::kDead;
  bool from_free = false;
};

/// Every undone event is the exact inverse of what it did: an event that has no inverse in the state at hand is
/// refused, so that what is left plays forward without contradiction.
class Undo {
 public:
  /// `has_requests`: frees are recorded in two parts.
  Undo(const Recording::PerDevice& recorded, bool has_requests);
  /// False if the event contradicts what follows it. Sets its pool, and its size to that of the
  /// block it begins or ends.
  bool undo(PackedEvent& event);
  /// Live blocks by address. Those that overlap others, or reach out of their segment, are taken out and put into
  /// `dropped`.
  std::vector<std::pair<std::uint64_t, LiveBlock>> live(std::vector<std::uint64_t>& dropped);
  /// Without blocks; by address.
  std::vector<trace::Segment> segments() const;
  /// Frees were recorded with the stacks of what they free, not with their own.
  bool frees_carry_stacks() const { return same_stacks_ && seen_stacks_; }

 private:
  struct Held {
    trace::Segment segment;  ///< Without blocks.
    std::size_t live = 0;    ///< Blocks; 0 for expandable segments, see expandable_.
    bool present = true;
  };

  bool undo_alloc(PackedEvent& event);
  bool undo_completed(PackedEvent& event);
  bool undo_requested(PackedEvent& event);
  bool undo_segment_alloc(PackedEvent& event);
  bool undo_segment_free(const PackedEvent& event);
  bool undo_map(PackedEvent& event);
  bool undo_unmap(const PackedEvent& event);

  std::uint32_t find(std::uint64_t address) const;
  std::uint32_t pool_of(std::uint64_t address, const LiveBlock& block) const;
  bool is_free(std::uint64_t begin, std::uint64_t end) const;
  std::uint32_t add(trace::Segment segment);
  void remove(std::uint32_t held);
  void enter(std::uint64_t address, const LiveBlock& block);
  void leave(std::uint64_t address, LiveBlock& block);
  void purge();

  static constexpr std::uint32_t kNowhere = 0xffffffffu, kExpandable = 0xfffffffeu;
  std::vector<Held> held_;
  std::vector<std::uint32_t> free_held_;
  std::map<std::uint64_t, std::uint32_t> by_address_;  ///< Segments, as indices of held_.
  trace::AddressMap<LiveBlock> blocks_;                ///< Dead ones too: their segment is known.
  std::map<std::uint64_t, std::uint64_t> expandable_;  ///< Live blocks of expandable segments: begin, end.
  std::size_t live_ = 0;
  bool has_requests_;
  bool same_stacks_ = true, seen_stacks_ = false;
};
}  // namespace cinch::snapshot::internal
