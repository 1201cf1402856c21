#pragma once
// The greedy half: items one after the other, each as low as it fits among those before it.

#include <array>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "cinch/placement/internal/problem.h"

namespace cinch::placement::internal {

/// What is placed so far. Time is cut into buckets; each keeps what is live in it by offset, so that the many items of
/// short life look at few others.
class Shelves {
 public:
  Shelves(std::size_t items, std::int32_t sections);
  /// The lowest offset at which the item meets nothing.
  std::int64_t lowest(const Item& item);
  void insert(const Item& item, std::int64_t offset);

 private:
  struct Placed {
    std::int64_t offset, top;
    std::int32_t first, last;
  };
  std::size_t bucket_of(std::int32_t section) const {
    return static_cast<std::size_t>(section) * buckets_.size() / static_cast<std::size_t>(sections_);
  }

  std::int32_t sections_;
  std::vector<std::vector<Placed>> buckets_;
  std::vector<std::size_t> cursors_;
};

/// Which item comes first: large ones, and long-lived ones, by the product of powers of both.
struct Priority {
  double size, lifetime;  ///< Exponents.
};
/// Tried in this order; the first is the best on recorded training steps.
inline constexpr std::array<Priority, 5> kPriorities = {{{1, 0.5}, {1, 0}, {1, 1}, {0.5, 1}, {0, 1}}};

std::vector<std::int32_t> ordered_by(const Problem& problem, Priority priority);

/// Offsets by the items' order; returns the height.
std::int64_t first_fit(const Problem& problem, std::span<const std::int32_t> order, std::vector<std::int64_t>& offsets);

/// Items that ended up too high come earlier in the next pass, by a random part of the way ("squeaky wheel": Joslin and
/// Clements, JAIR 1999).
class Repacker {
 public:
  /// Goes on from an order.
  Repacker(const Problem& problem, std::vector<std::int32_t> order);
  /// One pass more; `offsets` as first_fit() left them for the last one.
  std::int64_t repack(std::int64_t target, std::vector<std::int64_t>& offsets);

 private:
  const Problem& problem_;
  std::vector<std::int32_t> order_;
  std::mt19937_64 random_{1};
};
}  // namespace cinch::placement::internal
