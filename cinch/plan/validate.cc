// Checks what solve() reports without anything that solve() uses.
#include <algorithm>

#include <fmt/format.h>

#include "cinch/core/text.h"
#include "cinch/plan/solver.h"

namespace cinch::plan {
namespace {
constexpr double kEqualTimes = 1e-3;  // The planner takes such differences for none.

class Check {
 public:
  Check(const Problem& problem, const CostModel& costs, const Simulate& simulate)
      : problem_(problem), costs_(costs), simulate_(simulate) {}

  void again(const std::string& what, const Candidate& candidate) {
    for (const std::string& fault : validate(problem_, candidate.plan)) say("{}: {}", what, fault);
    const trace::Trace trace = simulate_(candidate.plan);
    Bytes live, peak;
    for (const trace::Event& event : trace.events()) {
      if (event.action == trace::Action::kAlloc) live += event.bytes;
      if (event.action == trace::Action::kFreeCompleted) live -= event.bytes;
      peak = std::max(peak, live);
    }
    if (problem_.on_device) {
      const Bytes tensors = peak;
      peak = problem_.on_device(trace, candidate.plan, problem_.budget);
      if (peak < tensors + problem_.overhead)
        say("{}: the device has {} B, less than its tensors need", what, peak.count());
    }
    if (peak != candidate.peak) say("{}: its peak is {} B, not {}", what, peak.count(), candidate.peak.count());
    const double time = costs_.step_time(trace).count(), said = candidate.step_time.count();
    if (std::abs(time - said) > 1e-9 * time) say("{}: its step takes {} s, not {}", what, time, said);
  }

  void compare(const Solution& solution) {
    const Candidate& best = solution.best;
    if (best.peak > problem_.budget) say("best: its peak is over the budget");
    if (solution.unconstrained.plan != Plan{}) say("unconstrained: is not the default plan");
    if (!(solution.gap >= 0)) say("gap: is {}", solution.gap);
    const auto& frontier = solution.frontier;
    if (std::ranges::find(frontier, best.plan, &Candidate::plan) == frontier.end())
      say("frontier: lacks the best plan");
    for (std::size_t i = 0; i < frontier.size(); ++i) {
      const std::string what = fmt::format("frontier[{}]", i);
      if (i > 0 && frontier[i].peak < frontier[i - 1].peak) say("{}: peaks do not rise", what);
      for (std::size_t j = 0; j < frontier.size(); ++j) {
        if (j != i && frontier[j].peak <= frontier[i].peak && frontier[j].step_time <= frontier[i].step_time) {
          say("{}: frontier[{}] is as small and as fast", what, j);
        }
      }
      if (frontier[i].peak > problem_.budget) continue;
      if (frontier[i].step_time.count() * (1 + kEqualTimes) < best.step_time.count())
        say("{}: beats the best plan", what);
    }
  }

  std::vector<std::string> faults;

 private:
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    faults.push_back(fmt::format(format, std::forward<Args>(args)...) + ".");
  }

  const Problem& problem_;
  const CostModel& costs_;
  const Simulate& simulate_;
};
}  // namespace

std::vector<std::string> validate(const Problem& problem, const CostModel& costs, const Simulate& simulate,
                                  const Solution& solution) {
  Check check(problem, costs, simulate);
  check.again("best", solution.best);
  check.again("unconstrained", solution.unconstrained);
  for (std::size_t i = 0; i < solution.frontier.size(); ++i) {
    check.again(fmt::format("frontier[{}]", i), solution.frontier[i]);
  }
  check.compare(solution);
  return check.faults;
}

std::vector<std::string> validate(const Problem& problem, const Plan& plan) {
  std::vector<std::string> faults = conflicts(plan, problem.facts);
  if (plan.micro_batch_size < 0 || plan.micro_batch_size > problem.batch_size) {
    faults.push_back(fmt::format("micro_batch_size is {}; it must be from 0 (the whole batch) to the batch size, {}",
                                 plan.micro_batch_size, problem.batch_size));
  }
  if (!problem.may_divide_batch && plan.micro_batch_size > 0 && plan.micro_batch_size < problem.batch_size) {
    faults.push_back(
        fmt::format("micro_batch_size is {}, but this batch of {} may not be divided: its results would change",
                    plan.micro_batch_size, problem.batch_size));
  }
  const std::int64_t rest = plan.micro_batch_size > 0 ? problem.batch_size % plan.micro_batch_size : 0;
  if (const std::int64_t part = rest > 0 ? rest : plan.micro_batch_size; part > 0 && part < problem.smallest_part) {
    faults.push_back(
        fmt::format("micro_batch_size is {}: a part of {} row of this batch of {} is too small for batch norm",
                    plan.micro_batch_size, part, problem.batch_size));
  }
  for (const auto& [path, policy] : plan.activations) {
    if (std::ranges::find(problem.modules, path) == problem.modules.end()) {
      const std::string near = nearest(path, problem.modules);
      faults.push_back(fmt::format("the model has no module \"{}\" that can be given a policy{}", path,
                                   near.empty() ? "" : fmt::format("; the nearest is \"{}\"", near)));
    }
  }
  return faults;
}
}  // namespace cinch::plan
