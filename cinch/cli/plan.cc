#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "cinch/cli/cards.h"
#include "cinch/cli/dimension.h"
#include "cinch/cli/maximize.h"
#include "cinch/cli/options.h"
#include "cinch/cli/output.h"
#include "cinch/cli/planning.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/plan/plan.h"
#include "cinch/plan/solver.h"
#include "cinch/report/questions.h"

namespace cinch::cli {
namespace {

struct PlanFlags : Options {
  std::string out, maximize;
  std::optional<double> time_limit;
};

Search search_of(const PlanFlags& flags) {
  Search search;
  if (flags.time_limit) search.time_limit = plan::Seconds(*flags.time_limit);
  return search;
}

/// Writes the plan where it was asked for, if there is one.
ExitCode keep(const PlanFlags& flags, report::Planned& planned) {
  const auto* solution = std::get_if<plan::Solution>(&planned.result);
  if (!solution) return kDoesNotFit;
  if (!flags.out.empty()) {
    write_file(flags.out, plan::to_toml(solution->best.plan));
    planned.plan_file = flags.out;
  }
  return kDone;
}

ExitCode all_cards(const PlanFlags& flags, Stage& stage) {
  const auto refuse = [](bool given, const std::string& flag) {
    if (!given) return;
    throw UsageError(flag + " goes with one device, not with --device all",
                     "Each card's budget is its memory less 2 %; cinch devices lists them.");
  };
  refuse(flags.budget.has_value(), "--budget");
  refuse(!flags.out.empty(), "--out");
  refuse(!flags.maximize.empty(), "--maximize");
  Options one = flags;
  one.device = "cpu";  // For the job's sake alone.
  const Request request = read(one);
  Progress progress(Progress::style(flags.quiet));
  const report::Cards cards = which_card(request, search_of(flags), progress);
  stage = Stage::kWorking;
  present(flags, cards);
  const bool any =
      std::ranges::any_of(cards.cards, [](const auto& card) { return card.fit != report::CardAnswer::Fit::kNot; });
  return any ? kDone : kDoesNotFit;
}

ExitCode run(const PlanFlags& flags, Stage& stage) {
  if (flags.device == kAllCards) return all_cards(flags, stage);
  const Request request = read(flags);
  Progress progress(Progress::style(flags.quiet));
  if (!flags.maximize.empty()) {
    report::Largest largest = maximize(request, flags.maximize, search_of(flags), progress);
    stage = Stage::kWorking;
    const ExitCode code = keep(flags, largest.planned);
    present(flags, largest);
    return code;
  }
  report::Planned planned = solve(request, progress, search_of(flags));
  stage = Stage::kWorking;
  const ExitCode code = keep(flags, planned);
  present(flags, planned);
  return code;
}
}  // namespace

Run add_plan(CLI::App& program) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* verb = program.add_subcommand("plan", "The fastest plan that fits the budget, and the frontier.");
  add_options(*verb, *flags);
  verb->get_option("--device")
      ->description(
          "What to plan for: cpu, a card that cinch devices lists, or a file that describes one; all: which card would "
          "do?");
  verb->add_option("--out", flags->out, "Write the plan to a file; without it nothing is written")
      ->type_name("PLAN.toml");
  verb->add_option("--maximize", flags->maximize, "The largest batch, context, layers or width that some plan fits")
      ->type_name("SIZE")
      ->check(CLI::IsMember(dimensions()));
  verb->add_option("--time-limit", flags->time_limit, "Stop searching after so many seconds; says how good the plan is")
      ->type_name("SECONDS")
      ->check([](const std::string& text) -> std::string {
        double seconds = 0;  // NaN is not over 0.
        return CLI::detail::lexical_cast(text, seconds) && seconds > 0 ? ""
                                                                       : text + " is not a number of seconds over 0";
      });
  return [flags](Stage& stage) { return run(*flags, stage); };
}
}  // namespace cinch::cli
