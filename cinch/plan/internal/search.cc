#include "cinch/plan/internal/search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace cinch::plan::internal {
namespace {
constexpr std::size_t kMostSizes = 16;        // Micro-batch sizes.
constexpr std::size_t kMostTries = 64;        // Choices simulated for one micro-batch size and one budget,
constexpr std::size_t kMostForMore = 16;      // where a plan that fits is known already,
constexpr std::size_t kMostFloorTries = 12;   // and in vain, for the floor.
constexpr std::int64_t kMostPartsShown = 64;  // Of all plain plans together that are run for the frontier's sake.
constexpr int kMostGuesses = 8;               // At what a card takes beyond tensors, for one size and one budget.
constexpr std::int64_t kFloorPart = 512;      // Of a floor on a card: what is less is not looked for.
constexpr int kFrontierSteps = 6;             // Budgets between all and nothing done that are filled in.
constexpr double kRounding = 1e-6;            // Relative differences of time below it are none.
constexpr double kShareForDivisions = 0.5;    // Of the time limit, for a first look at all micro-batch sizes.
const Seconds kNever{std::numeric_limits<double>::infinity()};

Bytes peak_of(const trace::Trace& trace) { return trace::Timeline(trace).peak().bytes; }
}  // namespace

std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch_size, bool may_divide) {
  if (!may_divide) return {batch_size};
  const auto smallest_of_as_many_parts = [&](std::int64_t size) {
    const std::int64_t count = (batch_size - 1) / size + 1;
    return (batch_size - 1) / count + 1;
  };
  std::set<std::int64_t, std::greater<>> sizes;
  for (std::int64_t size = 1; size <= batch_size / size; ++size) {
    if (batch_size % size == 0) sizes.insert({size, batch_size / size});
  }
  for (std::int64_t size = 1; size <= batch_size; size *= 2) sizes.insert(smallest_of_as_many_parts(size));
  std::vector<std::int64_t> all(sizes.begin(), sizes.end());
  if (all.size() <= kMostSizes) return all;
  std::vector<std::int64_t> some;  // Evenly, both ends included.
  for (std::size_t i = 0; i < kMostSizes; ++i) some.push_back(all[i * (all.size() - 1) / (kMostSizes - 1)]);
  return some;
}

std::int64_t smallest_part(std::int64_t micro_batch, std::int64_t batch_size) {
  const std::int64_t rest = batch_size % micro_batch;
  return rest == 0 ? micro_batch : rest;
}

std::int64_t parts(const Plan& plan, std::int64_t batch_size) {
  return plan.micro_batch_size == 0 ? 1 : (batch_size - 1) / plan.micro_batch_size + 1;
}

Search::Search(const Problem& problem, const CostModel& costs, const Simulate& simulate, const SolveOptions& options)
    : problem_(problem),
      costs_(costs),
      simulate_(simulate),
      options_(options),
      began_(std::chrono::steady_clock::now()),
      modules_(problem.modules) {
  for (const Autocast precision : {Autocast::kNone, Autocast::kBf16, Autocast::kFp16}) {
    if (!may_autocast(problem, precision)) continue;
    for (const std::int64_t size : micro_batch_sizes(problem.batch_size, problem.may_divide_batch)) {
      if (size != problem.batch_size && !problem.may("micro_batch")) continue;
      if (smallest_part(size, problem.batch_size) < problem.smallest_part && size != problem.batch_size) continue;
      Plan base{.micro_batch_size = size == problem.batch_size ? 0 : size};
      base.autocast = precision;
      divisions_.push_back(std::make_unique<Division>(problem, std::move(base)));
    }
  }
  Division& whole = *divisions_.front();
  see(whole);
  arithmetic_ = costs_.arithmetic_time(whole.runs.front().trace);
}

bool Search::out_of_time(double share) const {
  return options_.stop.stop_requested() || std::chrono::steady_clock::now() - began_ >= options_.time_limit * share;
}

// Whether there is anything to decide but the division.
bool Search::may_decide() const {
  const Items& items = divisions_.front()->items;
  return items.flat_size() > items.size();
}

bool Search::is_of(const Division& division, const Plan& plan) {
  return plan.micro_batch_size == division.base.micro_batch_size && plan.autocast == division.base.autocast;
}

// A choice already tried is run again for its trace, and not reported twice.
Search::Run Search::run(Division& division, const Choice& choice) {
  Plan plan = division.items.plan(choice);
  Run run{choice, simulate_(plan), {}};
  run.time = costs_.step_time(run.trace);
  if (!division.tried.insert(choice).second) return run;
  candidates_.push_back({plan, bytes_on_device(problem_, plan, run.trace), run.time});
  division.last_overhead = problem_.on_device ? candidates_.back().peak - peak_of(run.trace) : Bytes();
  division.least_overhead = std::min(division.least_overhead, division.last_overhead);
  if (options_.on_candidate) options_.on_candidate(candidates_.back());
  return run;
}

const Search::Run& Search::run_to_learn(Division& division, const Choice& choice) {
  const auto done = std::ranges::find(division.runs, choice, &Run::choice);
  if (done != division.runs.end()) return *done;
  division.runs.push_back(run(division, choice));
  return division.runs.back();
}

void Search::see(Division& division) {
  if (division.seen) return;
  division.plain_time = run_to_learn(division, division.items.plain()).time;
  division.seen = true;
}

// Options of the loss, the gradients and the optimizer's state are run alone, with the batch whole: what they cost and
// what state they leave is much the same in every division.
void Search::learn_settings() {
  Division& whole = *divisions_.front();
  if (!whole.costs.empty()) return;
  const Items& items = whole.items;
  whole.costs.assign(items.flat_size(), 0);
  shared_.state_bytes.assign(items.options(items.state()), 0);
  const auto plain = [&]() -> const trace::Trace& { return whole.runs.front().trace; };
  shared_.state_bytes[0] = state_between_steps(plain());
  for (const std::size_t item : {items.loss(), items.gradients(), items.state()}) {
    for (std::size_t option = 1; option < items.options(item); ++option) {
      Choice choice = items.plain();
      choice[item] = static_cast<std::uint8_t>(option);
      const Run& alone = run_to_learn(whole, choice);
      whole.costs[items.at(item, option)] = (alone.time - whole.plain_time).count();
      if (item == items.state()) shared_.state_bytes[option] = state_between_steps(alone.trace);
      if (item == items.loss()) shared_.loss_modules.merge(modules_that_differ(plain(), alone.trace));
    }
  }
}

Seconds Search::head_start(const Division& division) const {
  double least = 0;
  const Items& items = division.items;
  const PerOption<double>& costs = divisions_.front()->costs;
  if (costs.empty()) return {};
  for (const std::size_t item : {items.loss(), items.gradients(), items.state()}) {
    double best = 0;
    for (std::size_t option = 1; option < items.options(item); ++option)
      best = std::min(best, costs[divisions_.front()->items.at(item, option)]);
    least += best;
  }
  return Seconds(-least);
}

// Simulates plain training, and each policy on all modules, on every other and on every other but those: from these the
// memory of all choices follows. What a policy leaves to be kept is learnt in one division and known in the others.
void Search::prepare(Division& division) {
  if (division.memory != nullptr) return;
  learn_settings();
  see(division);
  const Items& items = division.items;
  const Items& first = divisions_.front()->items;
  division.costs.resize(items.flat_size());
  for (const std::size_t item : {items.loss(), items.gradients(), items.state()})
    for (std::size_t option = 1; option < items.options(item); ++option)
      division.costs[items.at(item, option)] = divisions_.front()->costs[first.at(item, option)];
  auto memory = std::make_unique<MemoryModel>(items, modules_, division.runs.front().trace, shared_);
  if (modules_.size() > 0) try_policies(division, *memory);
  for (const Run& run : division.runs) memory->add(run.trace, run.choice);
  division.runs.clear();
  division.memory = std::move(memory);
  if (first_prepared_ == nullptr) first_prepared_ = &division;
}

void Search::try_policies(Division& division, MemoryModel& memory) {
  const Items& items = division.items;
  const std::size_t n = items.modules();
  const bool known = first_prepared_ != nullptr && memory.learn_kept(*first_prepared_->memory);
  const std::vector<std::size_t> order = memory.forward_order();
  for (std::size_t policy = 1; policy < items.policies(); ++policy) {
    Choice all = items.plain(), even = all, odd = all;
    for (std::size_t i = 0; i < n; ++i)
      all[i] = (i % 2 == 0 ? even : odd)[order[i]] = static_cast<std::uint8_t>(policy);
    for (const Choice& choice : {even, odd}) {
      if (known || choice == items.plain()) continue;
      const Run& run = run_to_learn(division, choice);
      memory.learn_kept(run.trace, run.choice);
    }
    const Run& everywhere = run_to_learn(division, all);
    learn_costs(division, policy, division.runs.front(), everywhere);
  }
}

void Search::learn_costs(Division& division, std::size_t policy, const Run& plain, const Run& all) {
  const Items& items = division.items;
  std::vector<double> more(items.modules());
  const auto count = [&](const trace::Trace& trace, double sign) {
    Roots roots(modules_, trace);
    costs_.for_each_op(
        [&](const trace::OpCall& call, Seconds time) {
          if (const int k = roots(call.module); k >= 0) more[static_cast<std::size_t>(k)] += sign * time.count();
        },
        trace);
  };
  count(all.trace, 1);
  count(plain.trace, -1);
  // What computing hides of copies costs nothing.
  for (double& cost : more) cost = std::max(0.0, cost);
  const double sum = std::accumulate(more.begin(), more.end(), 0.0), seen = (all.time - plain.time).count();
  const double shown = sum > 0 ? std::clamp(seen / sum, 0.0, 1.0) : 1;
  // A trifle for each module, so that of choices of equal time the one that changes fewer is the cheaper.
  const double trifle = division.plain_time.count() * kRounding / 1e3;
  for (std::size_t k = 0; k < items.modules(); ++k) division.costs[items.at(k, policy)] = more[k] * shown + trifle;
}

void Search::cut_at(Division& division, double seconds_above_plain) {
  division.cut = true;
  division.bound = std::min(division.bound, division.plain_time + Seconds(seconds_above_plain));
}

Cover Search::cover_of(const Division& division, Bytes budget, Bytes spare, double limit) const {
  return cheapest_cover({.offsets = division.items.offsets(),
                         .costs = division.costs,
                         .moments = division.memory->moments(),
                         .budget = (budget - spare).count(),
                         .limit = limit,
                         .tried = &division.tried});
}

// Bounds are of tensors. What a card takes beyond them only a plan's own dry run tells: it is guessed, at first the
// least that any plan took, then as much as the last one that failed for it, so that choices of a size are not tried
// one by one; less again if that leaves none. What guesses pass over stays open: the gap counts it.
bool Search::search(Division& division, Bytes budget, Seconds time_limit, std::size_t most_tries) {
  if (!may_decide()) return false;
  if (division.memory == nullptr) {
    if (out_of_time()) {
      cut_at(division, 0);
      return false;
    }
    prepare(division);
  }
  for (const Candidate& done : candidates_) {
    // What prepare() ran counts as found where it is fast enough; the search below then looks for less.
    if (is_of(division, done.plan) && done.peak <= budget) time_limit = std::min(time_limit, done.step_time);
  }
  const double limit = (time_limit * (1 - kTie) - division.plain_time).count();
  Bytes spare = std::max(problem_.overhead, division.least_overhead);
  int guesses = 0;
  for (std::size_t tries = 0;; ++tries) {
    const Cover cover = cover_of(division, budget, spare, limit);
    division.cut = false;  // What an earlier pass left open, this one decides.
    division.bound = kNever;
    const bool give_up = cover.cheapest && (tries == most_tries || out_of_time());
    if (!cover.cheapest && spare > problem_.overhead && ++guesses < kMostGuesses) {
      spare = problem_.overhead + Bytes((spare - problem_.overhead).count() / 2);
      continue;
    }
    if (give_up || !cover.complete) cut_at(division, cover.bound);
    if (give_up || !cover.cheapest) {
      const Cover passed_over =
          spare > problem_.overhead ? cover_of(division, budget, problem_.overhead, limit) : cover;
      if (passed_over.cheapest || !passed_over.complete) cut_at(division, passed_over.bound);
      return false;
    }
    const Run tried = run(division, *cover.cheapest);
    if (candidates_.back().peak <= budget) return true;
    division.memory->add(tried.trace, tried.choice);
    spare = std::max(spare, division.last_overhead);
  }
}

// Each plain plan. By a roofline more parts never take less time: as many operations, no fewer bytes, more launches. So
// without measured rates none is looked at past the first that fits and the next.
void Search::see_divisions() {
  for (std::size_t i = 0; i < divisions_.size() && !out_of_time(kShareForDivisions); ++i) {
    see(*divisions_[i]);
    const Candidate* best = fastest_fitting();
    if (costs_.calibrated() || best == nullptr || divisions_[i]->plain_time < best->step_time || i == 0) continue;
    for (std::size_t rest = i + 1; rest < divisions_.size(); ++rest) {
      if (divisions_[rest]->base.autocast != divisions_[i]->base.autocast) break;
      divisions_[rest]->bound = divisions_[i]->plain_time - head_start(*divisions_[rest]);
    }
    while (i + 1 < divisions_.size() && divisions_[i + 1]->bound < kNever) ++i;
  }
}

void Search::find_fastest() {
  see_divisions();
  if (may_decide() && !out_of_time()) learn_settings();
  if (fastest_fitting() == nullptr) try_savers();
  std::vector<Division*> by_time;
  for (const auto& division : divisions_)
    if (division->seen) by_time.push_back(division.get());
  std::ranges::stable_sort(by_time, std::ranges::less(), &Division::plain_time);
  for (Division* division : by_time) {
    for (;;) {  // Each find lowers the time that the next must beat.
      const Candidate* best = fastest_fitting();
      const Seconds limit = best == nullptr ? kNever : best->step_time;
      if (division->plain_time - head_start(*division) >= limit * (1 - kTie)) break;
      if (!search(*division, problem_.budget, limit, best == nullptr ? kMostTries : kMostForMore)) break;
    }
  }
  for (const auto& division : divisions_) {  // Those there was no time for, if they are needed.
    if (division->seen || fastest_fitting() != nullptr || out_of_time()) continue;
    see(*division);
    search(*division, problem_.budget, kNever, kMostTries);
  }
}

// What saves most is tried first: where there is room it is found fast, and what is slower need not be looked at.
void Search::try_savers() {
  for (const auto& division : divisions_) {
    if (!may_decide() || fastest_fitting() != nullptr || out_of_time(kShareForDivisions)) return;
    see(*division);
    if (fastest_fitting() == nullptr && division->memory == nullptr) run_to_learn(*division, all_savers(*division));
  }
}

void Search::find_any() {
  try_savers();
  for (const auto& division : divisions_) {
    if (fastest_fitting() != nullptr || out_of_time()) return;
    see(*division);
    search(*division, problem_.budget, kNever, kMostTries);
  }
}

// Each item at an option that should save most, whatever it costs.
Choice Search::all_savers(const Division& division) const {
  const Items& items = division.items;
  Choice choice = items.plain();
  for (std::size_t item = 0; item < items.size(); ++item)
    choice[item] = static_cast<std::uint8_t>(items.options(item) - 1);
  for (std::size_t k = 0; k < items.modules() && items.policies() > 1; ++k) choice[k] = 1;
  return choice;
}

void Search::find_smallest() {
  for (auto division = divisions_.rbegin(); division != divisions_.rend(); ++division) {
    if (out_of_time()) return;
    see(**division);
    if (!may_decide()) continue;
    prepare(**division);
    if (!(*division)->tried.contains(all_savers(**division))) learn_from(**division, all_savers(**division));
    lower(**division);
  }
}

// Less than the smallest known, as long as the bounds leave any: each time the choice that may be the smallest of all,
// whatever it costs.
void Search::lower(Division& division) {
  const PerOption<double> free(division.costs.size());
  const auto cover_within = [&](Bytes budget, Bytes spare) {
    return cheapest_cover({.offsets = division.items.offsets(),
                           .costs = free,
                           .moments = division.memory->moments(),
                           .budget = (budget - spare).count(),
                           .tried = &division.tried});
  };
  for (std::size_t tries = 0;; ++tries) {
    const Bytes least = smallest().peak, spare = std::max(problem_.overhead, division.least_overhead);
    Bytes high = least - Bytes(problem_.on_device ? least.count() / kFloorPart + 1 : 1), low;
    Cover cover = cover_within(high, spare);
    division.cut = !cover.complete;
    if (!cover.cheapest) return;
    if (tries == kMostFloorTries || out_of_time()) return cut_at(division, cover.bound);
    while ((high - low).count() > least.count() / kFloorPart) {
      const Bytes middle = low + Bytes((high - low).count() / 2);
      Cover smaller = cover_within(middle, spare);
      (smaller.cheapest ? high : low) = middle;
      if (smaller.cheapest) cover = std::move(smaller);
    }
    learn_from(division, *cover.cheapest);
    if (smallest().peak < least) tries = 0;
  }
}

void Search::learn_from(Division& division, const Choice& choice) {
  const Run tried = run(division, choice);
  division.memory->add(tried.trace, tried.choice);
}

void Search::fill_frontier() {
  std::int64_t parts_seen = 0;
  std::vector<Division*> shown;
  const Plan best = fastest_fitting()->plan;
  for (const auto& division : divisions_) {
    parts_seen += parts(division->base, problem_.batch_size);
    if (parts_seen > kMostPartsShown || out_of_time(kShareForDivisions)) break;
    see(*division);
    shown.push_back(division.get());
  }
  if (!may_decide()) return;
  for (Division* division : shown) {
    const std::int64_t size = division->base.micro_batch_size;
    if (size != 0 && size != best.micro_batch_size) continue;
    if (out_of_time(kShareForDivisions)) return;
    fill(*division);
  }
}

// Budgets between the least and the plain peak of a division.
void Search::fill(Division& division) {
  prepare(division);
  if (!division.tried.contains(all_savers(division))) learn_from(division, all_savers(division));
  std::vector<Bytes> peaks;
  for (const Candidate& candidate : candidates_) {
    if (is_of(division, candidate.plan)) peaks.push_back(candidate.peak);
  }
  const auto [low, high] = std::ranges::minmax(peaks);
  for (int i = 1; i <= kFrontierSteps && !out_of_time(kShareForDivisions); ++i) {
    const Bytes budget = low + Bytes((high - low).count() / (kFrontierSteps + 1) * i);
    const Cover cover = cover_of(division, budget, division.least_overhead, kNever.count());
    if (cover.cheapest) learn_from(division, *cover.cheapest);
  }
}

const Candidate* Search::fastest_fitting() const {
  const Candidate* best = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (candidate.peak <= problem_.budget && (best == nullptr || candidate.step_time < best->step_time))
      best = &candidate;
  }
  return best;
}

const Candidate& Search::smallest() const { return *std::ranges::min_element(candidates_, {}, &Candidate::peak); }

Seconds Search::open_bound() const {
  Seconds bound = kNever;
  for (const auto& division : divisions_) {
    if (!division->seen) bound = std::min(bound, division->bound < kNever ? division->bound : arithmetic_);
    if (division->cut) bound = std::min(bound, division->bound);
  }
  return bound;
}

bool Search::cut() const {
  return std::ranges::any_of(divisions_, [](const auto& division) { return !division->seen || division->cut; });
}
}  // namespace cinch::plan::internal
