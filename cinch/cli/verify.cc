#include "cinch/report/verification.h"

#include <memory>
#include <string>

#include "cinch/cli/options.h"
#include "cinch/cli/output.h"
#include "cinch/cli/planning.h"
#include "cinch/cli/progress.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/train/train.h"

namespace cinch::cli {
namespace {

struct VerifyFlags : Options {
  std::string plan;
  std::int64_t steps = train::VerifyOptions{}.steps;
};

ExitCode run(const VerifyFlags& flags, Stage& stage) {
  const Request request = read(flags);
  require_cpu(request);
  const Stopwatch watch;
  Progress progress(Progress::style(flags.quiet));
  const plan::Problem problem = train::make_problem(request.job, request.device, request.limit());
  report::Verification verification{.environment = request.environment,
                                    .job = request.path,
                                    .plan = {},
                                    .modules = problem.modules.size(),
                                    .checks = {}};
  if (!flags.plan.empty()) {
    verification.plan = read_plan(flags.plan, problem);
  } else if (request.budget) {
    const report::Planned planned = solve(request, progress);
    const auto* solution = std::get_if<plan::Solution>(&planned.result);
    if (!solution) {
      present(flags, planned);
      return kDoesNotFit;
    }
    verification.plan = solution->best.plan;
  }
  train::VerifyOptions how{.steps = flags.steps};
  how.on_check = [&](const report::VerifyCheck& check) {
    stage = Stage::kWorking;
    progress.note(check.what + (check.holds ? ": holds" : ": parts"));
  };
  verification.checks = train::verify(request.job, verification.plan, how);
  verification.elapsed_seconds = watch.seconds();
  stage = Stage::kWorking;
  present(flags, verification);
  return verification.holds() ? kDone : kFailed;
}
}  // namespace

Run add_verify(CLI::App& program) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* verb = program.add_subcommand("verify", "Does a plan train to the weights that plain training gives?");
  add_options(*verb, *flags);
  verb->add_option("--plan", flags->plan,
                   "The plan to verify; without it the one that --budget asks for, or plain training")
      ->type_name("PLAN.toml");
  verb->add_option("--steps", flags->steps, "Steps that are compared")->type_name("N")->check(CLI::Range(1, 1'000'000));
  return [flags](Stage& stage) { return run(*flags, stage); };
}
}  // namespace cinch::cli
