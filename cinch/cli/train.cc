#include "cinch/train/train.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cinch/cli/options.h"
#include "cinch/cli/output.h"
#include "cinch/cli/planning.h"
#include "cinch/cli/progress.h"
#include "cinch/cli/signals.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/plan/plan.h"
#include "cinch/plan/solver.h"
#include "cinch/report/report.h"

namespace cinch::cli {
namespace {

namespace fs = std::filesystem;

struct TrainOptions : Options {
  std::string plan;
  bool resume = false;
};

/// The plan file to follow: the one named, or that of the run being resumed. None: the budget decides.
std::optional<fs::path> plan_file(const TrainOptions& options, const job::Job& job) {
  if (!options.plan.empty()) return options.plan;
  const fs::path kept = fs::path(job.train.run_dir) / "plan.toml";
  return options.resume && fs::exists(kept) ? std::optional(kept) : std::nullopt;
}

report::FitSummary fit(const TrainOptions& options, const Request& request, const plan::Plan& plan, Progress& progress,
                       Stage& stage) {
  StopOnSignal signals([quiet = options.quiet] {
    if (!quiet) print_error("stopping after this step; a second signal ends at once", "");
  });
  train::FitOptions how;
  how.cap = request.budget;
  how.resume = options.resume;
  how.stop = signals.token();
  how.on_progress = [&](const train::Progress& now) {
    stage = Stage::kWorking;  // The input has been read: what fails from here on is the work.
    progress.trained(now);
  };
  how.on_note = [&](const std::string& note) { progress.note(note); };
  report::FitSummary summary = train::fit(request.job, plan, how);
  summary.environment = request.environment;
  summary.job = request.path;
  summary.budget = request.budget;
  return summary;
}

ExitCode run(const TrainOptions& options, Stage& stage) {
  Request request = read(options);
  require_cpu(request);
  request.job.memory.budget = request.budget;         // Kept with the run: resuming it keeps the cap.
  const std::int64_t done = train::check_run_dir(request.job, options.resume);  // before the time that planning takes
  Progress progress(Progress::style(options.quiet));
  if (done >= request.job.train.steps) {
    present(options, fit(options, request, {}, progress, stage));
    return kDone;
  }
  const plan::Problem problem = train::make_problem(request.job, request.device, request.limit());
  plan::Plan plan;
  if (const auto file = plan_file(options, request.job)) {
    plan = read_plan(*file, problem);
    const Stopwatch watch;
    report::Estimate estimate = estimate_of(request, train::simulator(request.job, request.device)(plan));
    estimate.elapsed_seconds = watch.seconds();
    if (request.budget && !estimate.fits) {
      present(options, estimate);
      return kDoesNotFit;
    }
  } else if (request.budget) {
    const report::Planned planned = solve(request, progress);
    const auto* solution = std::get_if<plan::Solution>(&planned.result);
    if (!solution) {
      present(options, planned);
      return kDoesNotFit;
    }
    plan = solution->best.plan;
    progress.note("plan: " + plan::describe(plan, problem.modules.size()) + ", predicted peak " +
                  to_string(solution->best.peak));
  }
  report::FitSummary summary = fit(options, request, plan, progress, stage);
  summary.modules = problem.modules.size();
  stage = Stage::kWorking;
  if (!summary.run_dir.empty()) write_file(fs::path(summary.run_dir) / "report.html", report::html(summary));
  present(options, summary);
  return summary.interrupted ? kFailed : kDone;
}
}  // namespace

Run add_train(CLI::App& program) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* verb = program.add_subcommand("train", "Train, never above the budget; predicted beside measured.");
  add_options(*verb, *options);
  verb->add_option("--plan", options->plan, "Follow this plan instead of looking for the fastest")
      ->type_name("PLAN.toml");
  verb->add_flag("--resume", options->resume, "Go on from the newest checkpoint of the job's run_dir, under its plan");
  return [options](Stage& stage) { return run(*options, stage); };
}
}  // namespace cinch::cli
