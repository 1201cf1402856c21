#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cinch/allocator/on_card.h"
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

// Ops that changes may take to dry-run, all together; the first one is always tried. About half a second. Not a time,
// so that equal questions have equal answers.
constexpr std::size_t kMostOps = 60'000;

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

/// Dry runs of changes, up to an amount: for the largest models a few of them say enough.
class Trials {
 public:
  /// `plain`: ops of the plain dry run.
  Trials(const Request& request, std::size_t plain) : request_(request), costs_(request.device), plain_(plain) {}

  /// Whether there is room for one more that divides the batch into `parts`.
  bool may_try(std::int64_t parts = 1) const {
    if (ops_ == 0 && parts == 1) return true;
    return static_cast<std::size_t>(parts) <= (kMostOps - std::min(ops_, kMostOps)) / plain_;
  }

  report::Suggestion of(const job::Job& job, const plan::Plan& plan, std::string change) {
    const trace::Trace trace = train::simulator(job, request_.device)(plan);
    ops_ += trace.ops().size();
    report::Suggestion result{std::move(change), trace::Timeline(trace).peak().bytes, costs_.step_time(trace).count(),
                              false, plan::equivalence(plan)};
    result.fits = result.peak <= request_.limit();
    if (request_.device.type == device::DeviceType::kCuda) {
      const allocator::OnCard card = allocator::on_card(trace, request_.device, request_.limit());
      result.peak = card.bytes.on_card();
      result.fits = !card.runs_out && result.peak <= request_.limit();
    }
    return result;
  }

 private:
  const Request& request_;
  plan::CostModel costs_;
  std::size_t plain_, ops_ = 0;
};

/// The largest smaller batch that fits, by bisection; none if not even one sample does.
std::optional<report::Suggestion> smaller_batch(const Request& request, Trials& trials) {
  std::optional<report::Suggestion> best;
  std::int64_t fits = 0, too_large = request.job.train.batch_size;
  while (too_large - fits > 1 && trials.may_try()) {
    job::Job job = request.job;
    job.train.batch_size = fits == 0 && too_large == request.job.train.batch_size ? 1 : fits + (too_large - fits) / 2;
    report::Suggestion trial = trials.of(job, {}, "batch " + std::to_string(job.train.batch_size));
    trial.other_training = true;
    if (!trial.fits && job.train.batch_size == 1) return std::nullopt;
    (trial.fits ? fits : too_large) = job.train.batch_size;
    if (trial.fits) best = std::move(trial);
  }
  return best;
}

std::vector<report::Suggestion> suggestions(const Request& request, const plan::Problem& problem,
                                            const report::Estimate& plain) {
  const bool card = request.device.type == device::DeviceType::kCuda;
  Trials trials(request, std::max<std::size_t>(1, plain.ops));
  std::vector<report::Suggestion> result;
  for (const plan::Plan& plan : changes(problem)) {
    const std::int64_t parts =
        plan.micro_batch_size > 0 ? (problem.batch_size + plan.micro_batch_size - 1) / plan.micro_batch_size : 1;
    if (trials.may_try(parts))
      result.push_back(trials.of(request.job, plan, plan::describe(plan, problem.modules.size())));
  }
  if (!card || plain.fits) return result;
  if (request.job.train.precision == job::Precision::kFp32 && trials.may_try()) {
    job::Job job = request.job;
    job.train.precision = job::Precision::kBf16;
    report::Suggestion trial = trials.of(job, {}, "--set train.precision=bf16");
    trial.equivalence = plan::Equivalence::kLossy;
    result.push_back(std::move(trial));
  }
  if (auto batch = smaller_batch(request, trials)) result.push_back(std::move(*batch));
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
    const train::Plain plain = train::plain_run(request.job, request.device, request.limit());
    report::Estimate estimate = estimate_of(request, plain.trace, plain.problem.modules);
    estimate.suggestions = suggestions(request, plain.problem, estimate);
    estimate.elapsed_seconds = watch.seconds();
    stage = Stage::kWorking;
    present(*options, estimate);
    return estimate.fits ? kDone : kDoesNotFit;
  };
}
}  // namespace cinch::cli
