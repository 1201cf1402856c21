#pragma once
// Branch and bound for one capacity: does everything fit, and where?
//
// Every item has a lower bound on its offset. A node takes an item that nothing unplaced can slip under: either it lies
// at its bound, or it lies on top of an unplaced item, which raises the bound. Placements in which every item rests on
// another or on the floor are enough (any other can be pushed down), so this is complete. What makes it fast:
//   * it grows from the lowest place upwards, and there from the section with the fewest ways on: MiniMalloc's
//     canonical order and dominance, told as bounds;
//   * each section is a machine with release times: all that is unplaced must fit above its bounds, and an item that
//     leaves no room for the others above itself lies on one of them ("section inference", "not first");
//   * every bound knows which placed items it follows from: what failed for reasons elsewhere is not tried again with
//     another choice here (conflict-directed backjumping), as most choices concern other times;
//   * what no unplaced item connects is solved apart; states that failed are remembered; equal items keep their order;
//   * one bad first choice costs all, so runs are short, and each follows another strategy.

#include <cstdint>
#include <vector>

#include "cinch/placement/internal/budget.h"
#include "cinch/placement/internal/problem.h"

namespace cinch::placement::internal {

/// One way of going about a run. Different instances yield to different ones, and none can be told beforehand.
struct Strategy {
  /// Which item is tried first of those at the bottom of a section: the largest by
  /// this; kLoad: one that meets the fullest section.
  enum class ItemRule : std::uint8_t { kWidth, kLoad, kSize, kArea };
  /// Which section: the lowest; ties by fewest items at its bottom, or by failures met there as well. kBands counts
  /// sections within a 16th of the capacity as equally low.
  enum class SectionRule : std::uint8_t { kFewest, kFailing, kBands };

  ItemRule item = ItemRule::kWidth;
  SectionRule section = SectionRule::kFewest;
  bool not_first = false;  ///< Infers more a node, at a fifth of the nodes.
  double noise = 0;        ///< Each item counts up to this share more or less.
  std::uint64_t seed = 0;
};

/// The strategy of the n-th run; the first dozen are without noise.
Strategy nth_strategy(std::int64_t n);

class Search {
 public:
  enum class Outcome : std::uint8_t { kFound, kRefuted, kLimit };

  /// Keeps between runs what it learns about which sections fail, and failed states of the same capacity.
  explicit Search(const Problem& problem);

  /// Up to `nodes` nodes, or until the budget is spent. Once found, the offsets are in `offsets`.
  Outcome run(std::int64_t capacity, const Strategy& strategy, std::int64_t nodes, Budget& budget,
              std::vector<std::int64_t>& offsets);

 private:
  using Word = std::uint64_t;

  struct Range {
    std::int32_t first, last;
  };
  struct Change {
    std::int32_t item;
    std::int64_t bound;  ///< Before the change; kPlaced: the item was placed.
  };
  /// 128 bits of what is unplaced, and above which bounds.
  struct Fingerprint {
    std::uint64_t high, low;
    bool operator==(const Fingerprint&) const = default;
  };
  /// A section as the last survey found it: of its unplaced items the lowest bound, the lowest end, and how many have
  /// that bound.
  struct View {
    std::int64_t floor, first_end;
    std::int32_t lowest;
  };

  void rank_items(const Strategy& strategy);
  Outcome solve(Range range);
  bool failed_before(const Fingerprint& state) const;
  void remember_failure(const Fingerprint& state);
  void blame_bounds(Range range);
  void survey(Range range);
  std::vector<Range> split(Range range, Fingerprint& state) const;
  std::int32_t choose(Range range) const;
  std::int32_t best_at_bottom(std::int32_t section) const;
  bool nothing_fits_under(std::int32_t item) const;

  // Sets of placed items: a bit each.
  Word* reason_of(std::int32_t item) { return &reasons_[static_cast<std::size_t>(item) * words_]; }
  void unite(std::vector<Word>& set, const Word* other) const;
  static void add(std::vector<Word>& set, std::int32_t item) { set[item / 64] |= Word{1} << (item % 64); }
  static bool take(std::vector<Word>& set, std::int32_t item);

  bool place(std::int32_t item);
  bool raise(std::int32_t item, std::int64_t bound, const Word* reason);
  bool raise_to_support(std::int32_t item);
  void undo(std::size_t mark);
  void queue(std::int32_t section);
  bool propagate();
  bool fits(std::int32_t section);
  bool raise_not_first(std::int32_t section);

  std::vector<Item> items_;
  std::vector<std::int32_t> next_equal_;            ///< The next item equal to this one, which lies above it; or -1.
  std::vector<std::vector<std::int32_t>> members_;  ///< A section's items, nearly sorted by bound.
  std::vector<std::vector<std::int32_t>> by_end_;   ///< The same, nearly sorted by bound + size, highest first.
  std::vector<std::int64_t> unplaced_;              ///< A section's unplaced units.

  std::vector<std::int64_t> bound_;  ///< Of an unplaced item; the offset of a placed one.
  std::vector<char> placed_;
  std::size_t words_;           ///< Of a set of items.
  std::vector<Word> reasons_;   ///< By item, the placed items that its bound follows from.
  std::vector<Word> conflict_;  ///< The placed items that the last failure follows from.
  std::vector<Word> scratch_;
  std::vector<Change> trail_;
  std::vector<Word> trail_reasons_;  ///< Before each change of a bound.
  std::vector<std::int32_t> queue_;
  std::vector<char> queued_;
  std::vector<View> views_;
  std::vector<double> failures_;  ///< By section, from 1.
  std::vector<Fingerprint> failed_;
  std::vector<std::int64_t> ends_, sums_;  ///< Scratch of raise_not_first(), as is enders_.
  std::vector<std::int32_t> enders_;

  // Of the current run.
  std::int64_t capacity_ = 0;
  std::int64_t nodes_left_ = 0;
  Budget* budget_ = nullptr;
  Strategy strategy_;
  std::vector<std::int32_t> rank_;  ///< Lower is tried first.
};
}  // namespace cinch::placement::internal
