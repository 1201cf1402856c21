#pragma once
// What most numbers of a job may be.

#include <cstdint>
#include <limits>

#include "cinch/job/internal/section.h"

namespace cinch::job::internal {

inline constexpr std::int64_t kLargest = std::int64_t{1} << 31;  ///< Of any one size.
inline constexpr IntegerRange kSize{1, kLargest};
inline constexpr IntegerRange kCount{0, kLargest};
inline constexpr NumberRange kShare{0, 1, false, true};
inline constexpr NumberRange kPositive{0, std::numeric_limits<double>::infinity(), true, true};
inline constexpr NumberRange kNotNegative{0, std::numeric_limits<double>::infinity(), false, true};
}  // namespace cinch::job::internal
