#include "cinch/cli/maximize.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

#include "cinch/cli/dimension.h"
#include "cinch/core/error.h"
#include "cinch/plan/cost_model.h"
#include "cinch/train/train.h"

namespace cinch::cli {
namespace {

constexpr double kBoldest = 1024;     // Times that a try goes beyond what is known to fit.
constexpr std::int64_t kCoarse = 32;  // Parts of the job's own value in which smaller ones are looked for.

using Tried = report::Largest::Tried;

/// `plan` for another job than it was made for: without modules and divisions that this one does not have.
plan::Plan fitted(plan::Plan plan, const plan::Problem& problem) {
  std::erase_if(plan.activations, [&](const auto& entry) {
    return std::ranges::find(problem.modules, entry.first) == problem.modules.end();
  });
  if (plan.micro_batch_size >= problem.batch_size) plan.micro_batch_size = 0;
  return plan;
}

/// Whether some plan fits the job at a step of one of its sizes. Plans that were found for others are tried first: a
/// search is needed only where none of them fits.
class Tries {
 public:
  Tries(const Request& request, const Dimension& dimension, const Search& how)
      : request_(request), dimension_(dimension), how_(how) {}

  void know(const plan::Plan& plan) {
    std::erase(known_, plan);
    known_.push_front(plan);
    if (known_.size() > kKnown) known_.pop_back();
  }

  /// With `search` false what is known alone. Throws ConfigError where the job refuses the value.
  Tried at(std::int64_t step, bool search = true) {
    const Request request = changed(request_, dimension_.changes(step));
    train::Plain plain = train::plain_run(request.job, request.device, request.limit());
    plan::Problem& problem = plain.problem;
    restrict_to(how_, problem);
    const plan::CostModel costs(request.device);
    const plan::Simulate simulate = train::abridged_simulator(request.job, request.device);
    Tried best{.value = dimension_.value(step), .fits = false, .candidate = {}};
    const auto see = [&](const plan::Plan& plan, const trace::Trace& trace) {
      const plan::Candidate candidate{plan, plan::bytes_on_device(problem, plan, trace), costs.step_time(trace)};
      if (++seen_; best.candidate.peak == Bytes() || candidate.peak < best.candidate.peak) best.candidate = candidate;
      best.fits = best.candidate.peak <= problem.budget;
    };
    see({}, plain.trace);
    for (auto known = known_.begin(); known != known_.end() && !best.fits; ++known) {
      const plan::Plan plan = fitted(*known, problem);
      if (plan::validate(problem, plan).empty()) see(plan, simulate(plan));
    }
    if (best.fits || !search) return best;
    plan::SolveOptions options;
    options.first_fit = true;
    options.time_limit = how_.left();
    const auto result = plan::solve(problem, costs, simulate, options);
    std::visit([&](const auto& found) { seen_ += found.simulated; }, result);
    const auto* solution = std::get_if<plan::Solution>(&result);
    best.fits = solution != nullptr;
    best.candidate = solution ? solution->best : std::get<plan::Infeasible>(result).smallest;
    know(best.candidate.plan);
    return best;
  }
  std::size_t simulated() const { return seen_; }

 private:
  static constexpr std::size_t kKnown = 3;

  const Request& request_;
  const Dimension& dimension_;
  const Search& how_;
  std::deque<plan::Plan> known_;  // The latest first.
  std::size_t seen_ = 0;          // Plans dry-run.
};

/// The border between what fits and what does not.
struct Border {
  struct Known {
    std::int64_t step;
    double peak;  // Of the plan that was found.
  };
  Known fits{0, 0};                                           ///< Largest step known to fit; 0: none.
  Known beyond{std::numeric_limits<std::int64_t>::max(), 0};  ///< Least known not to.
  bool refused = false;                                       ///< `beyond` by the job itself, for this:
  std::string limit{};
};

class Climb {
 public:
  Climb(Tries& tries, const Search& how, report::Largest& largest, Progress& progress)
      : tries_(tries), how_(how), largest_(largest), progress_(progress) {}

  /// From the job's own step up, by as much as a plan that fits leaves room for, or down; then between the two.
  Border run(const Dimension& dimension) {
    std::int64_t next = dimension.own;
    while (next > border_.fits.step && !how_.over()) {
      attempt(next);
      if (border_.fits.step == 0 && next > 1) attempt(1);  // Nothing to look for if that does not fit.
      if (border_.fits.step != next) break;
      next = further(dimension.most);
    }
    if (border_.fits.step == 0) return border_;
    border_.beyond.step = std::min(border_.beyond.step, dimension.most + 1);
    for (int i = 0; border_.beyond.step - border_.fits.step > 1 && !how_.over(); ++i) attempt(between(i));
    return border_;
  }

 private:
  /// Bytes grow with a size at most as itself, or faster than the plans that fit tell.
  std::int64_t further(std::int64_t most) const {
    const double room = static_cast<double>(largest_.planned.budget.count()) / std::max(1.0, border_.fits.peak);
    const auto factor = static_cast<std::int64_t>(std::clamp(room, 2.0, kBoldest));
    return border_.fits.step > most / factor ? most : border_.fits.step * factor;
  }

  /// Where the budget lies if bytes grow evenly between the two; every other time the middle, since the plans found on
  /// both sides may differ.
  std::int64_t between(int turn) const {
    const auto& [fits, beyond] = std::pair(border_.fits, border_.beyond);
    const std::int64_t middle = fits.step + (beyond.step - fits.step) / 2;
    if (turn % 2 != 0 || border_.refused || beyond.peak <= fits.peak) return middle;
    const double share = (static_cast<double>(largest_.planned.budget.count()) - fits.peak) / (beyond.peak - fits.peak);
    const auto steps = static_cast<std::int64_t>(share * static_cast<double>(beyond.step - fits.step));
    return std::clamp(fits.step + steps, fits.step + 1, beyond.step - 1);
  }

  void attempt(std::int64_t step) {
    try {
      const Tried tried = tries_.at(step);
      const Border::Known known{step, static_cast<double>(tried.candidate.peak.count())};
      progress_.now(fmt::format("{} {}: {}", largest_.what, tried.value, tried.fits ? "fits" : "does not fit"));
      largest_.tried.push_back(tried);
      if (tried.fits) {
        border_.fits = known;
      } else {
        border_.beyond = known;
        border_.refused = false;
      }
    } catch (const ConfigError& error) {
      refuse(step, error);
    } catch (const OverflowError& error) {
      refuse(step, error);
    }
  }

  void refuse(std::int64_t step, const Error& error) {
    border_.beyond = {step, 0};
    border_.refused = true;
    border_.limit = error.what();
  }

  Tries& tries_;
  const Search& how_;
  report::Largest& largest_;
  Progress& progress_;
  Border border_;
};

Dimension need(const Request& request, const std::string& what) {
  if (auto found = dimension(request.job, what)) return *found;
  std::vector<std::string> known;
  for (const std::string& name : dimensions())
    if (dimension(request.job, name)) known.push_back(name);
  throw UsageError(fmt::format("--maximize {}: this model has no such size", what),
                   fmt::format("It has {}.", fmt::join(known, ", ")));
}

const Tried* of(const report::Largest& largest, const Dimension& dimension, std::int64_t step) {
  if (step < 1 || step > dimension.most) return nullptr;
  const auto found = std::ranges::find(largest.tried, dimension.value(step), &Tried::value);
  return found == largest.tried.end() ? nullptr : &*found;
}

/// The largest value below the job's own, to a part of it, that fits under the job's smallest plan.
std::optional<report::SmallerJob> smaller(const Request& request, const Dimension& dimension,
                                          const plan::Plan& smallest, const Search& how) {
  Tries tries(request, dimension, how);
  tries.know(smallest);
  const std::int64_t unit = std::max<std::int64_t>(1, dimension.own / kCoarse);
  std::int64_t fits = 0, beyond = (dimension.own + unit - 1) / unit;
  std::optional<report::SmallerJob> best;
  for (std::int64_t next = 1; next < beyond; next = fits + std::max<std::int64_t>(1, (beyond - fits) / 2)) {
    const Tried tried = tries.at(next * unit, /*search=*/false);
    if (!tried.fits && next == 1) return std::nullopt;
    (tried.fits ? fits : beyond) = next;
    if (tried.fits)
      best = {fmt::format("{} {}", dimension.what, tried.value), dimension.changes(next * unit), tried.candidate};
  }
  return best;
}
}  // namespace

report::Largest maximize(const Request& request, const std::string& what, const Search& how, Progress& progress) {
  const Stopwatch watch;
  const Dimension dimension = need(request, what);
  Search whole = how;
  whole.divide_batch = what != "batch";
  report::Largest largest;
  largest.what = what;
  largest.key = dimension.key;
  largest.own = dimension.value(dimension.own);
  largest.planned.budget = request.limit();
  Tries tries(request, dimension, whole);
  const Border border = Climb(tries, whole, largest, progress).run(dimension);
  const std::int64_t answer = std::max<std::int64_t>(1, border.fits.step);
  largest.value = dimension.value(answer);
  if (border.refused) {
    largest.limit = border.limit;
  } else if (const Tried* beyond = of(largest, dimension, border.beyond.step); beyond && border.fits.step > 0) {
    largest.beyond = *beyond;
  }
  largest.adjacent = border.beyond.step == answer + 1;
  Search last{.time_limit = how.time_limit, .divide_batch = whole.divide_batch};  // A time of its own, for the answer.
  largest.planned = solve(changed(request, dimension.changes(answer)), progress, last);
  // Where time ends the search for the fastest plan before it finds any, the one known to fit is the answer.
  if (const auto* infeasible = std::get_if<plan::Infeasible>(&largest.planned.result);
      infeasible && border.fits.step > 0) {
    const plan::Candidate known = of(largest, dimension, answer)->candidate;
    largest.planned.result = plan::Solution{.best = known,
                                            .frontier = {known},
                                            .unconstrained = known,
                                            .simulated = infeasible->simulated,
                                            .gap = std::numeric_limits<double>::infinity()};
  }
  largest.simulated =
      tries.simulated() + std::visit([](const auto& result) { return result.simulated; }, largest.planned.result);
  largest.elapsed_seconds = watch.seconds();
  return largest;
}

std::vector<report::SmallerJob> smaller_jobs(const Request& request, const plan::Plan& smallest, const Search& how) {
  std::vector<report::SmallerJob> found;
  for (const std::string what : {"context", "batch", "layers", "width"}) {
    if (what == "layers" && !found.empty()) break;  // Those are other models.
    if (const auto size = dimension(request.job, what))
      if (auto job = smaller(request, *size, smallest, how)) found.push_back(std::move(*job));
  }
  return found;
}
}  // namespace cinch::cli
