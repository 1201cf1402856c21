#pragma once
// The largest job of a kind that fits, by dry runs alone.

#include <string>
#include <vector>

#include "cinch/cli/options.h"
#include "cinch/cli/planning.h"
#include "cinch/cli/progress.h"
#include "cinch/report/questions.h"

namespace cinch::cli {

/// `what`: of dimensions(). A batch goes through whole: in micro-batches any would fit. The answer's plan is the
/// fastest that the search finds; of its neighbour the smallest one. Throws UsageError if the model has no such size.
report::Largest maximize(const Request& request, const std::string& what, const Search& how, Progress& progress);

/// For a request that no plan fits, `smallest` being its smallest one: the longest context and the largest batch, or
/// else the most layers and width, that fit under that plan; to a 32nd of the job's own.
std::vector<report::SmallerJob> smaller_jobs(const Request& request, const plan::Plan& smallest, const Search& how);
}  // namespace cinch::cli
