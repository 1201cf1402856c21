#pragma once
// The cheapest choice of options that passes every known moment below a budget: a multiple-choice knapsack with one row
// a moment, solved by branch and bound (bounds: the linear relaxation of each row, and how many items it takes at
// least).

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "cinch/plan/internal/items.h"

namespace cinch::plan::internal {

/// With a choice at least level − Σ over items of savings[its option] bytes live at this moment.
struct Moment {
  std::int64_t level = 0;
  PerOption<std::int64_t> savings;
};

struct CoverProblem {
  std::span<const std::size_t> offsets;  ///< As Items': of each item's options in what follows, and the end.
  std::span<const double> costs;         ///< Of each option; those of option 0 are 0.
  std::span<const Moment> moments;
  std::int64_t budget = 0;                                 ///< Bytes.
  double limit = std::numeric_limits<double>::infinity();  ///< Only choices that cost less are wanted.
  const std::set<Choice>* tried = nullptr;                 ///< Choices that are not wanted again; null: none.
};

struct Cover {
  std::optional<Choice> cheapest;  ///< The one found.
  bool complete = true;            ///< False: the search was cut, a cheaper choice may exist, but
  double bound = 0;                ///< none costs less than this (at least `limit` where there is none).
};

/// Deterministic. Looks at a bounded number of partial choices.
Cover cheapest_cover(const CoverProblem& problem);
}  // namespace cinch::plan::internal
