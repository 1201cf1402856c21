#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
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

// Ops that changes may take to dry-run, all together; the first one is always tried. About a second. Not a time, so
// that equal questions have equal answers.
constexpr std::size_t kMostOps = 130'000;
constexpr int kFirstWithBf16 = 80;  // Compute capability; cards before it have units for fp16 alone.
constexpr std::int64_t kLossParts = 8;
constexpr std::int64_t kContextParts = 16;  // Shorter contexts are tried in steps of this part of it.

std::int64_t* context_length(job::Job& job) {
  return std::visit(
      [](auto& model) -> std::int64_t* {
        if constexpr (requires { model.context_length; }) return &model.context_length;
        return nullptr;
      },
      job.model);
}

/// Dry runs of changes, up to an amount: for the largest models a few of them say enough.
class Trials {
 public:
  /// `plain`: ops of the plain dry run.
  Trials(const Request& request, const plan::Problem& problem, std::size_t plain)
      : request_(request), problem_(problem), costs_(request.device), plain_(plain) {}

  /// Whether there is room for one more that divides the batch into `parts`.
  bool may_try(std::int64_t parts = 1) const {
    if (ops_ == 0 && parts == 1) return true;
    return static_cast<std::size_t>(parts) <= (kMostOps - std::min(ops_, kMostOps)) / plain_;
  }

  report::Suggestion of(const job::Job& job, const plan::Plan& plan, std::string change) {
    const trace::Trace trace = train::simulator(job, request_.device)(plan);
    ops_ += trace.ops().size();
    report::Suggestion result{std::move(change), plan::bytes_on_device(problem_, plan, trace),
                              costs_.step_time(trace).count(), false, plan::equivalence(plan)};
    result.fits = result.peak <= problem_.budget;
    return result;
  }

  /// Of a change that plans make.
  report::Suggestion of(const plan::Plan& plan) {
    return of(request_.job, plan, plan::describe(plan, problem_.modules.size()));
  }

  /// Of another job.
  template <typename Change>
  report::Suggestion of_other(const std::string& words, const Change& change) {
    job::Job job = request_.job;
    change(job);
    report::Suggestion trial = of(job, {}, words);
    trial.other_training = true;
    return trial;
  }

  /// The trial of the largest value in (too_small, too_large) that fits, by bisection; none if none does, or if there
  /// is no room to try. `best`: that of too_small, if it is known to fit.
  template <typename Try>
  std::optional<report::Suggestion> largest(std::int64_t too_small, std::int64_t too_large, const Try& trial,
                                            std::optional<report::Suggestion> best = std::nullopt) const {
    while (too_large - too_small > 1 && may_try()) {
      const std::int64_t middle = too_small + (too_large - too_small) / 2;
      report::Suggestion next = trial(middle);
      (next.fits ? too_small : too_large) = middle;
      if (next.fits) best = std::move(next);
    }
    return best;
  }

 private:
  const Request& request_;
  const plan::Problem& problem_;
  plan::CostModel costs_;
  std::size_t plain_, ops_ = 0;
};

/// The first `count` modules checkpointed: what they compute again comes last in backward, when the rest is gone.
plan::Plan checkpointed(const plan::Problem& problem, std::size_t count) {
  plan::Plan plan;
  for (std::size_t i = 0; i < count; ++i) plan.activations[problem.modules[i]] = plan::ActivationPolicy::kCheckpoint;
  return plan;
}

/// Checkpointing as many modules as are needed, or all.
std::optional<report::Suggestion> by_checkpointing(const plan::Problem& problem, Trials& trials, bool fits_already) {
  const std::size_t modules = problem.modules.size();
  if (!problem.may("checkpoint") || modules == 0) return std::nullopt;
  const auto keeping = [&](std::int64_t kept) {
    return trials.of(checkpointed(problem, modules - static_cast<std::size_t>(kept)));
  };
  report::Suggestion all = keeping(0);
  if (fits_already || !all.fits) return all;
  return trials.largest(0, static_cast<std::int64_t>(modules), keeping, std::move(all));
}

/// The loss in parts, where logits are large, with and without all modules checkpointed; half the batch at a time, with
/// and without all modules checkpointed; one sample, checkpointed.
std::vector<plan::Plan> divisions(const job::Job& asked, const plan::Problem& problem) {
  std::vector<plan::Plan> plans;
  job::Job job = asked;
  const bool can_checkpoint = problem.may("checkpoint") && !problem.modules.empty();
  if (const std::int64_t* context = context_length(job); context && problem.facts.divides_loss) {
    const std::int64_t chunk = std::max<std::int64_t>(1, problem.batch_size * *context / kLossParts);
    plans.push_back({.loss_chunk_size = chunk});
    if (can_checkpoint) {
      plans.push_back(checkpointed(problem, problem.modules.size()));
      plans.back().loss_chunk_size = chunk;
    }
  }
  if (!problem.may_divide_batch) return plans;
  const std::int64_t half = (problem.batch_size + 1) / 2;
  for (const std::int64_t size : {half, std::int64_t{1}}) {
    if (size == problem.batch_size || (size == 1 && !plans.empty() && plans.back().micro_batch_size == 1)) continue;
    if (size == half || !can_checkpoint) plans.push_back({.micro_batch_size = size});
    if (!can_checkpoint) continue;
    plans.push_back(checkpointed(problem, problem.modules.size()));
    plans.back().micro_batch_size = size;
  }
  return plans;
}

/// The largest batch and the longest context that fit.
std::vector<report::Suggestion> smaller_jobs(const Request& request, Trials& trials) {
  std::vector<report::Suggestion> result;
  const auto add = [&](std::optional<report::Suggestion> trial) {
    if (trial) result.push_back(std::move(*trial));
  };
  add(trials.largest(0, request.job.train.batch_size, [&](std::int64_t size) {
    return trials.of_other("batch " + std::to_string(size), [&](job::Job& job) { job.train.batch_size = size; });
  }));
  job::Job job = request.job;
  const std::int64_t* context = context_length(job);
  if (context == nullptr) return result;
  const std::int64_t part = std::max<std::int64_t>(1, *context / kContextParts);
  add(trials.largest(0, (*context + part - 1) / part, [&](std::int64_t parts) {
    return trials.of_other("context " + std::to_string(parts * part),
                           [&](job::Job& other) { *context_length(other) = parts * part; });
  }));
  return result;
}

std::vector<report::Suggestion> suggestions(const Request& request, const plan::Problem& problem,
                                            const report::Estimate& plain) {
  Trials trials(request, problem, std::max<std::size_t>(1, plain.ops));
  std::vector<report::Suggestion> result;
  if (auto trial = by_checkpointing(problem, trials, plain.fits)) result.push_back(std::move(*trial));
  for (const plan::Plan& plan : divisions(request.job, problem)) {
    const std::int64_t parts =
        plan.micro_batch_size > 0 ? (problem.batch_size + plan.micro_batch_size - 1) / plan.micro_batch_size : 1;
    if (plan::validate(problem, plan).empty() && trials.may_try(parts)) result.push_back(trials.of(plan));
  }
  if (request.device.type != device::DeviceType::kCuda || plain.fits) return result;
  if (request.job.train.precision == job::Precision::kFp32 && trials.may_try()) {
    job::Job job = request.job;
    const bool bf16 = request.device.compute_capability >= kFirstWithBf16;
    job.train.precision = bf16 ? job::Precision::kBf16 : job::Precision::kFp16;
    report::Suggestion trial = trials.of(job, {}, std::string("--set train.precision=") + (bf16 ? "bf16" : "fp16"));
    trial.equivalence = plan::Equivalence::kLossy;
    result.push_back(std::move(trial));
  }
  for (report::Suggestion& trial : smaller_jobs(request, trials)) result.push_back(std::move(trial));
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
    estimate.bounded = plain.bounded;
    estimate.by_shape_alone = plain.by_shape_alone;
    estimate.suggestions = suggestions(request, plain.problem, estimate);
    estimate.elapsed_seconds = watch.seconds();
    stage = Stage::kWorking;
    present(*options, estimate);
    return estimate.fits ? kDone : kDoesNotFit;
  };
}
}  // namespace cinch::cli
