#pragma once
// The cheapest set of modules whose checkpointing passes every known moment below a budget: a small integer program,
// solved by branch and bound.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "cinch/plan/internal/memory_model.h"

namespace cinch::plan::internal {

struct CoverProblem {
  std::span<const double> costs;        ///< Of checkpointing each module, ≥ 0.
  std::span<const Moment> moments;
  std::int64_t budget = 0;              ///< Bytes.
  double limit = std::numeric_limits<double>::infinity();  ///< Only sets that cost less are wanted.
  const std::set<Selection>* tried = nullptr;              ///< Sets that are not wanted again; null: none.
};

struct Cover {
  std::optional<Selection> cheapest;    ///< The one found; of equal costs the one with fewest modules.
  bool complete = true;                 ///< False: the search was cut, a cheaper set may exist, but
  double bound = 0;                     ///< no set costs less than this (at least `limit` where there is none).
};

/// Deterministic. Looks at a bounded number of partial sets.
Cover cheapest_cover(const CoverProblem& problem);
}  // namespace cinch::plan::internal
