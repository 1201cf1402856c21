#pragma once
// The fastest plan under a budget, as `plan` and `train` both need it.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>

#include "cinch/cli/options.h"
#include "cinch/cli/progress.h"
#include "cinch/plan/plan.h"
#include "cinch/plan/solver.h"
#include "cinch/report/summaries.h"

namespace cinch::cli {

/// Tensors of a peak that reports keep: all of them for a model of some hundred layers.
inline constexpr std::size_t kTensors = 1000;

/// A plan file. Throws ConfigError if the plan is not one for this problem.
plan::Plan read_plan(const std::filesystem::path& file, const plan::Problem& problem);

/// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};
/// How long to search, and for what.
struct Search {
  std::optional<plan::Seconds>
      time_limit{};          ///< For all of it, from when this was made. None: as solve() has it, each.
  bool divide_batch = true;  ///< Micro-batches are allowed, if the job allows them.
  Stopwatch watch{};

  plan::Seconds left() const {
    if (!time_limit) return plan::SolveOptions{}.time_limit;
    return std::max(plan::Seconds(0), *time_limit - plan::Seconds(watch.seconds()));
  }
  bool over() const { return left() == plan::Seconds(0); }
};
/// Takes out of a problem what the search is not to use.
void restrict_to(const Search& how, plan::Problem& problem);

/// Calibrates (the CPU), solves, and dry-runs the answer once more for its peak. If no plan fits, looks for smaller
/// jobs.
report::Planned solve(const Request& request, Progress& progress, const Search& how = {});

/// What training needs, from its dry run. Suggestions and time are left empty. `modules`: those whose activations are
/// counted together.
report::Estimate estimate_of(const Request& request, const trace::Trace& trace,
                             const std::vector<std::string>& modules = {});

}  // namespace cinch::cli
