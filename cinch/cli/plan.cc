#include <memory>
#include <string>
#include <variant>

#include "cinch/cli/options.h"
#include "cinch/cli/output.h"
#include "cinch/cli/planning.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/text.h"
#include "cinch/plan/plan.h"
#include "cinch/plan/solver.h"

namespace cinch::cli {

Run add_plan(CLI::App& program) {
  auto options = std::make_shared<Options>();
  auto out = std::make_shared<std::string>();
  CLI::App* verb = program.add_subcommand("plan", "The fastest plan that fits the budget, and the frontier.");
  add_options(*verb, *options);
  verb->add_option("--out", *out, "Write the plan to a file; without it nothing is written")->type_name("PLAN.toml");
  return [options, out](Stage& stage) {
    const Request request = read(*options);
    Progress progress(Progress::style(options->quiet));
    report::Planned planned = solve(request, progress);
    stage = Stage::kWorking;
    const auto* solution = std::get_if<plan::Solution>(&planned.result);
    if (solution && !out->empty()) {
      write_file(*out, plan::to_toml(solution->best.plan));
      planned.plan_file = *out;
    }
    present(*options, planned);
    return solution ? kDone : kDoesNotFit;
  };
}
}  // namespace cinch::cli
