#pragma once
// Buffers reduced to what matters: which of them are live together, and sizes in units of the alignment.

#include <cstdint>
#include <span>
#include <vector>

#include "cinch/placement/placement.h"

namespace cinch::placement::internal {

/// Live in sections `first` (included) to `last` (excluded).
struct Item {
  std::int32_t first, last;
  std::int64_t size;
};

/// Sections are the moments at which the set of live buffers is no subset of a neighbour's, in the order of time. Two
/// items share a section exactly if their buffers are live at the same time.
struct Problem {
  std::vector<Item> items;
  std::vector<std::int32_t> buffers;  ///< Which buffer an item is; those without size or lifetime are none.
  std::int32_t sections = 0;
  std::int64_t load = 0;  ///< Largest sum of sizes in a section.
};

/// Throws UsageError, OverflowError: see live_load().
Problem reduce(std::span<const Buffer> buffers, Bytes alignment);

/// Problems that share no section, in the order of time; `buffers` index the parent's items.
std::vector<Problem> components(const Problem& problem);
}  // namespace cinch::placement::internal
