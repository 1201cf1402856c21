#include "cinch/plan/solver.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "cinch/core/error.h"
#include "cinch/plan/internal/search.h"
#include "cinch/plan/internal/would_give.h"

namespace cinch::plan {
namespace {
constexpr std::size_t kFloorTensors = 20;

// How much a plan changes beyond the division of the batch.
std::size_t changes(const Plan& plan) {
  const OptimizerPlan& optimizer = plan.optimizer;
  return plan.activations.size() + (plan.loss_chunk_size != 0) + optimizer.in_backward +
         (optimizer.state != OptimizerState::kFp32) + (optimizer.place != StatePlace::kDevice) +
         !plan.alloc_conf.empty();
}

// Of plans that take as long, the one that changes least: not lossy, then fewer parts, then fewer other changes.
bool changes_less(const Candidate& a, const Candidate& b, std::int64_t batch_size) {
  const auto key = [&](const Candidate& c) {
    return std::tuple(equivalence(c.plan) == Equivalence::kLossy, internal::parts(c.plan, batch_size), changes(c.plan),
                      c.step_time, c.peak);
  };
  return key(a) < key(b);
}

const Candidate& best_of_equals(const internal::Search& search, const Problem& problem) {
  const Candidate* best = search.fastest_fitting();
  const Seconds latest = best->step_time * (1 + internal::kTie);
  for (const Candidate& candidate : search.candidates()) {
    if (candidate.peak > problem.budget || candidate.step_time > latest) continue;
    if (changes_less(candidate, *best, problem.batch_size)) best = &candidate;
  }
  return *best;
}

// Pareto-optimal, by rising peak. Plans that `best` was preferred to as its equals are left out.
std::vector<Candidate> frontier_of(const std::vector<Candidate>& candidates, const Candidate& best,
                                   const Problem& problem) {
  std::vector<Candidate> sorted;
  for (const Candidate& candidate : candidates) {
    const bool equal_of_best = candidate.peak <= problem.budget && candidate.step_time <= best.step_time;
    if (!equal_of_best || candidate.plan == best.plan) sorted.push_back(candidate);
  }
  std::ranges::stable_sort(sorted, [&](const Candidate& a, const Candidate& b) {
    if (a.peak != b.peak) return a.peak < b.peak;
    if (a.step_time != b.step_time) return a.step_time < b.step_time;
    return changes_less(a, b, problem.batch_size);
  });
  std::vector<Candidate> frontier;
  for (Candidate& candidate : sorted) {
    const bool is_best = candidate.plan == best.plan;
    const double share = is_best ? 0 : internal::kTie;  // More memory for as good as no time is no offer.
    if (frontier.empty() || candidate.step_time < frontier.back().step_time * (1 - share))
      frontier.push_back(std::move(candidate));
  }
  return frontier;
}

std::string what_helps(const Problem& problem, const Candidate& smallest, const trace::CategoryBytes& live) {
  using trace::Category;
  const bool state_kept = live[Category::kOptimizerState] > Bytes(0);
  const Bytes state = live[Category::kParameter] + live[Category::kGradient] + live[Category::kOptimizerState] +
                      live[Category::kBuffer];
  if (state + problem.overhead > problem.budget || state * 2 > smallest.peak) {
    return fmt::format("parameters, gradients and optimizer state alone are {} of it: a smaller model{} would help",
                       to_string(state), state_kept ? ", or SGD instead of AdamW," : "");
  }
  std::string text = fmt::format("activations and temporaries are {} of it: ", to_string(live.sum() - state));
  const bool whole = internal::parts(smallest.plan, problem.batch_size) < problem.batch_size;
  if (whole && !problem.may_divide_batch) return text + "a smaller batch or smaller inputs would help";
  return text + "smaller inputs (a shorter context, smaller images) or a smaller model would help";
}

/// "; 1.20 GiB of it are context, rounding and fragmentation": what no plan makes much smaller.
std::string beyond_tensors(const Candidate& smallest, Bytes tensors) {
  return smallest.peak > tensors
             ? fmt::format("; {} of it are context, rounding and fragmentation", to_string(smallest.peak - tensors))
             : "";
}

std::string advice_for(const Problem& problem, const Candidate& smallest, const trace::Trace& trace, bool cut) {
  const trace::Timeline timeline(trace);
  const std::string helps = what_helps(problem, smallest, timeline.live_by_category(timeline.peak().event));
  // On a card fragmentation decides last, and not every plan was tried.
  const std::string_view found = !cut ? "" : problem.on_device ? "found " : "found before the search was cut short ";
  return fmt::format("The smallest plan {}needs {}, {} more than the budget of {}; {}{}.", found,
                     to_string(smallest.peak), to_string(smallest.peak - problem.budget), to_string(problem.budget),
                     helps, beyond_tensors(smallest, timeline.peak().bytes));
}

Infeasible explain(const Problem& problem, const CostModel& costs, const Simulate& simulate,
                   const internal::Search& search, bool cut, bool first_fit) {
  Infeasible result;
  result.smallest = search.smallest();
  const trace::Trace trace = simulate(result.smallest.plan);
  result.tensors = peak_tensors(trace, kFloorTensors);
  result.advice = advice_for(problem, result.smallest, trace, cut);
  result.simulated = search.candidates().size();
  if (!first_fit) result.would_give = internal::would_give(problem, costs, simulate, result.smallest);
  return result;
}

Solution report(const Problem& problem, const CostModel& costs, const Simulate& simulate,
                const internal::Search& search, const SolveOptions& options) {
  Solution result;
  result.best = best_of_equals(search, problem);
  result.frontier = frontier_of(search.candidates(), result.best, problem);
  result.unconstrained = search.unconstrained();
  result.simulated = search.candidates().size();
  const Seconds bound = std::min(search.fastest_fitting()->step_time, search.open_bound());
  if (result.best.step_time > bound) result.gap = result.best.step_time / bound - 1;
  if (!options.first_fit) result.would_give = internal::would_give(problem, costs, simulate, result.best);
  return result;
}
}  // namespace

bool Problem::may(std::string_view technique) const { return std::ranges::find(allowed, technique) != allowed.end(); }

Bytes bytes_on_device(const Problem& problem, const Plan& plan, const trace::Trace& trace) {
  return problem.on_device ? problem.on_device(trace, plan, problem.budget) : trace::Timeline(trace).peak().bytes;
}

std::vector<PeakTensor> peak_tensors(const trace::Trace& trace, std::size_t limit) {
  const trace::Timeline timeline(trace);
  std::vector<PeakTensor> tensors;
  for (const trace::AllocationId id : timeline.live_allocations(timeline.peak().event)) {
    if (tensors.size() == limit) break;
    const trace::Allocation& allocation = trace.allocation(id);
    PeakTensor tensor{.bytes = allocation.bytes,
                      .category = allocation.category,
                      .name = std::string(trace.name(allocation.name)),
                      .module = std::string(trace.name(allocation.module)),
                      .op = std::string(trace.op_name(allocation.op)),
                      .sizes = {}};
    if (allocation.tensor) {
      tensor.sizes = allocation.tensor->sizes;
      tensor.dtype = allocation.tensor->dtype;
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::variant<Solution, Infeasible> solve(const Problem& problem, const CostModel& costs, const Simulate& simulate,
                                         const SolveOptions& options) {
  if (problem.batch_size < 1) throw UsageError("a problem's batch_size is at least 1");
  internal::Search search(problem, costs, simulate, options);
  if (options.first_fit) {
    search.find_any();
  } else {
    search.find_fastest();
  }
  if (search.fastest_fitting() == nullptr) {
    const bool cut = search.cut();
    search.find_smallest();
    if (search.fastest_fitting() == nullptr) return explain(problem, costs, simulate, search, cut, options.first_fit);
  }
  if (!options.first_fit) search.fill_frontier();
  return report(problem, costs, simulate, search, options);
}
}  // namespace cinch::plan
