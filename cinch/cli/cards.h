#pragma once
// Which card would do? All that are known, by dry runs.

#include "cinch/cli/options.h"
#include "cinch/cli/planning.h"
#include "cinch/cli/progress.h"
#include "cinch/report/questions.h"

namespace cinch::cli {

/// The name that stands for all cards, where one is asked for.
inline constexpr const char* kAllCards = "all";

/// Of each card: whether the request's job fits as it is, else whether some plan does, else the floor. The request's
/// device and budget do not matter.
report::Cards which_card(const Request& request, const Search& how, Progress& progress);
}  // namespace cinch::cli
