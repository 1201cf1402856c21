#include <algorithm>
#include <memory>
#include <vector>

#include "cinch/cli/options.h"
#include "cinch/cli/output.h"
#include "cinch/cli/planning.h"
#include "cinch/cli/verbs.h"
#include "cinch/plan/cost_model.h"
#include "cinch/plan/solver.h"
#include "cinch/trace/trace.h"
#include "cinch/train/train.h"

namespace cinch::cli {
namespace {

/// A few changes worth a look; the planner knows them all.
std::vector<plan::Plan> changes(const plan::Problem& problem) {
  plan::Plan checkpointed;
  if (problem.may_checkpoint) {
    for (const std::string& module : problem.modules)
      checkpointed.activations[module] = plan::ActivationPolicy::kCheckpoint;
  }
  std::vector<plan::Plan> plans{checkpointed};
  if (problem.may_divide_batch) {
    for (const std::int64_t size : {(problem.batch_size + 1) / 2, std::int64_t{1}}) {
      plan::Plan divided = checkpointed;
      divided.micro_batch_size = size;
      plans.push_back({.micro_batch_size = size, .activations = {}});
      plans.push_back(divided);
    }
  }
  std::vector<plan::Plan> result;
  for (const plan::Plan& plan : plans) {
    const bool divides = plan.micro_batch_size > 0 && plan.micro_batch_size < problem.batch_size;
    const bool changes_something = divides || (plan.micro_batch_size == 0 && !plan.activations.empty());
    const bool known = std::find(result.begin(), result.end(), plan) != result.end();
    if (changes_something && !known) result.push_back(plan);
  }
  return result;
}

std::vector<report::Suggestion> suggestions(const Request& request) {
  const plan::Problem problem = train::make_problem(request.job, request.device, request.limit());
  const plan::CostModel costs(request.device);
  const plan::Simulate simulate = train::simulator(request.job, request.device);
  std::vector<report::Suggestion> result;
  for (const plan::Plan& plan : changes(problem)) {
    const trace::Trace trace = simulate(plan);
    const Bytes peak = trace::Timeline(trace).peak().bytes;
    result.push_back({plan::describe(plan, problem.modules.size()), peak, costs.step_time(trace).count(),
                      peak <= request.limit(), plan::equivalence(plan)});
  }
  return result;
}
}  // namespace

Run add_estimate(CLI::App& program) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = program.add_subcommand("estimate", "What will training need? Nothing is allocated.");
  add_options(*verb, *options);
  verb->add_option("--batch", options->batch, "Instead of the job's train.batch_size")->type_name("N");
  verb->add_option("--context", options->context, "Instead of the job's model.context_length")->type_name("N");
  return [options](Stage& stage) {
    const Request request = read(*options);
    const Stopwatch watch;
    report::Estimate estimate = estimate_under(request, {});
    estimate.suggestions = suggestions(request);
    estimate.elapsed_seconds = watch.seconds();
    stage = Stage::kWorking;
    present(*options, estimate);
    return estimate.fits ? kDone : kDoesNotFit;
  };
}
}  // namespace cinch::cli
