#include "cinch/cli/planning.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cinch/allocator/on_card.h"
#include "cinch/cli/maximize.h"
#include "cinch/core/error.h"
#include "cinch/plan/cost_model.h"
#include "cinch/plan/solver.h"
#include "cinch/report/summarize.h"
#include "cinch/train/train.h"

namespace cinch::cli {
namespace {
/// Of the scores that the model gives for each token or sample; 0 where it has no such.
std::int64_t classes(const job::Job& job) {
  return std::visit(
      [](const auto& model) -> std::int64_t {
        if constexpr (requires { model.vocab_size; }) return model.vocab_size;
        return 0;
      },
      job.model);
}

/// Numbers, not bytes; a tied one is one allocation.
std::int64_t parameters_in(const trace::Trace& trace) {
  std::int64_t count = 0;
  for (const trace::Allocation& allocation : trace.allocations()) {
    if (allocation.category != trace::Category::kParameter) continue;
    const DType dtype = allocation.tensor ? allocation.tensor->dtype : DType::kFloat32;
    count += allocation.bytes.count() / element_size(dtype).count();
  }
  return count;
}

/// Of a step under `plan`; on a card with what its allocator makes of it; `runs_out`: where, if it does.
report::PeakSummary peak_of(const Request& request, const plan::Plan& plan, const trace::Trace& trace,
                            std::optional<report::OutOfMemoryPlace>* runs_out = nullptr) {
  report::PeakSummary peak = report::summarize_peak(trace, kTensors);
  if (request.device.type == device::DeviceType::kCuda) {
    const auto settings = allocator::Settings::parse(plan.alloc_conf);
    allocator::OnCard card = allocator::on_card(trace, request.device, request.limit(), settings);
    peak.card = card.bytes;
    if (runs_out) *runs_out = std::move(card.runs_out);
  }
  return peak;
}

/// Measured for the machine's CPU; of a card, which is not here, the data sheet's rates must do.
plan::CostModel costs_of(const device::DeviceSpec& device) {
  if (device.type == device::DeviceType::kCuda) return plan::CostModel(device);
  return plan::CostModel(device, train::calibrate());
}
}  // namespace

plan::Plan read_plan(const std::filesystem::path& file, const plan::Problem& problem) {
  plan::Plan plan = plan::load_plan(file);
  const std::vector<std::string> faults = plan::validate(problem, plan);
  if (!faults.empty()) {
    throw ConfigError(file, 0, "", faults.front(),
                      "A plan is made for one job: cinch plan JOB.toml --out PLAN.toml makes another.");
  }
  return plan;
}

void restrict_to(const Search& how, plan::Problem& problem) {
  if (how.divide_batch) return;
  problem.may_divide_batch = false;
  std::erase(problem.allowed, "micro_batch");
}

report::Planned solve(const Request& request, Progress& progress, const Search& how) {
  const Stopwatch watch;
  report::Planned planned;
  planned.environment = request.environment;
  planned.job = request.path;
  planned.options = request.repeat;
  planned.budget = request.limit();
  planned.capacity = request.device.memory;
  planned.budget_given = request.budget.has_value();
  plan::Problem problem = train::make_problem(request.job, request.device, planned.budget);
  restrict_to(how, problem);
  planned.modules = problem.modules.size();
  planned.allowed = problem.allowed;
  const plan::CostModel costs = costs_of(request.device);
  planned.calibrated = costs.calibrated();
  const plan::Simulate simulate = train::simulator(request.job, request.device);

  std::size_t plans = 0;
  Bytes smallest;
  plan::SolveOptions options;
  options.time_limit = how.left();
  options.on_candidate = [&](const plan::Candidate& candidate) {
    smallest = ++plans == 1 ? candidate.peak : std::min(smallest, candidate.peak);
    progress.planned(plans, smallest);
  };
  planned.result = plan::solve(problem, costs, train::abridged_simulator(request.job, request.device), options);

  const auto* solution = std::get_if<plan::Solution>(&planned.result);
  const plan::Plan& shown = solution ? solution->best.plan : std::get<plan::Infeasible>(planned.result).smallest.plan;
  const trace::Trace trace = simulate(shown);
  planned.peak = peak_of(request, shown, trace);
  planned.curve = report::thin(trace);
  planned.history = report::history(trace);
  if (solution == nullptr) planned.smaller = smaller_jobs(request, shown, how);
  planned.elapsed_seconds = watch.seconds();
  return planned;
}

report::Estimate estimate_of(const Request& request, const trace::Trace& trace,
                             const std::vector<std::string>& modules) {
  report::Estimate estimate;
  estimate.environment = request.environment;
  estimate.job = request.path;
  estimate.options = request.repeat;
  estimate.budget = request.limit();
  estimate.budget_given = request.budget.has_value();
  estimate.capacity = request.device.memory;
  estimate.parameters = parameters_in(trace);
  estimate.ops = trace.ops().size();
  estimate.peak = peak_of(request, {}, trace, &estimate.runs_out);
  estimate.curve = report::thin(trace);
  estimate.history = report::history(trace);
  estimate.step_seconds = plan::CostModel(request.device).step_time(trace).count();
  if (estimate.peak.card) estimate.groups = report::activation_groups(trace, modules, classes(request.job));
  estimate.fits = !estimate.runs_out && estimate.peak.needed() <= estimate.budget;
  return estimate;
}
}  // namespace cinch::cli
