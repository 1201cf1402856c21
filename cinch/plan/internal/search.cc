#include "cinch/plan/internal/search.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace cinch::plan::internal {
namespace {
constexpr std::size_t kMostSizes = 16;        // Micro-batch sizes.
constexpr std::size_t kMostTries = 64;        // Sets simulated for one micro-batch size and one budget,
constexpr std::size_t kMostFloorTries = 16;   // and where no more than the floor's last bytes are at stake.
constexpr std::int64_t kMostPartsShown = 64;  // Of all plain plans together that are run for the frontier's sake.
constexpr int kMostGuesses = 8;               // At what a card takes beyond tensors, for one size and one budget.
constexpr std::int64_t kFloorPart = 512;      // Of a floor on a card: what is less is not looked for.
constexpr int kFrontierSteps = 4;             // Budgets between all and nothing checkpointed that are filled in.
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
  for (const std::int64_t size : micro_batch_sizes(problem.batch_size, problem.may_divide_batch)) {
    if (smallest_part(size, problem.batch_size) < problem.smallest_part && size != problem.batch_size) continue;
    divisions_.emplace_back().micro_batch = size == problem.batch_size ? 0 : size;
  }
  Division& whole = divisions_.front();
  arithmetic_ = costs_.arithmetic_time(run(whole, Selection(modules_.size())));
  whole.seen = true;
  whole.plain_time = candidates_.front().step_time;
}

bool Search::out_of_time(double share) const {
  return options_.stop.stop_requested() || std::chrono::steady_clock::now() - began_ >= options_.time_limit * share;
}

Plan Search::plan_of(const Division& division, const Selection& selection) const {
  Plan plan{.micro_batch_size = division.micro_batch, .activations = {}};
  for (std::size_t k = 0; k < selection.size(); ++k) {
    if (selection[k]) plan.activations[problem_.modules[k]] = ActivationPolicy::kCheckpoint;
  }
  return plan;
}

// A set already tried is run again for its trace, and not reported twice.
trace::Trace Search::run(Division& division, const Selection& selection) {
  Plan plan = plan_of(division, selection);
  trace::Trace trace = simulate_(plan);
  if (division.tried.insert(selection).second) {
    const Bytes peak = bytes_on_device(problem_, plan, trace);
    candidates_.push_back({std::move(plan), peak, costs_.step_time(trace)});
    division.last_overhead = problem_.on_device ? candidates_.back().peak - peak_of(trace) : Bytes();
    division.least_overhead = std::min(division.least_overhead, division.last_overhead);
    if (options_.on_candidate) options_.on_candidate(candidates_.back());
  }
  return trace;
}

void Search::see(Division& division) {
  if (division.seen) return;
  run(division, Selection(modules_.size()));
  division.seen = true;
  division.plain_time = candidates_.back().step_time;
}

// Simulates nothing, all, every other and every other but those checkpointed: from these the memory of all sets
// follows.
void Search::prepare(Division& division) {
  if (division.memory != nullptr) return;
  const std::size_t n = modules_.size();
  const Selection none(n), all(n, true);
  const trace::Trace plain = run(division, none);
  auto memory = std::make_unique<MemoryModel>(modules_, plain);
  Selection even(n), odd(n);
  const std::vector<std::size_t> order = memory->forward_order();
  for (std::size_t i = 0; i < n; ++i) (i % 2 == 0 ? even : odd)[order[i]] = true;
  const trace::Trace with_even = run(division, even);
  memory->learn_kept(with_even, even);
  if (n > 1) {
    const trace::Trace with_odd = run(division, odd);
    memory->learn_kept(with_odd, odd);
    memory->add(with_odd, odd);
  }
  memory->add(plain, none);
  memory->add(with_even, even);
  const trace::Trace with_all = n > 1 ? run(division, all) : with_even;
  if (n > 1) memory->add(with_all, all);
  learn_costs(division, with_all);
  division.memory = std::move(memory);
}

void Search::learn_costs(Division& division, const trace::Trace& all) {
  // A trifle for each module, so that of sets of equal time the one with fewer modules is the cheaper.
  division.costs.assign(modules_.size(), division.plain_time.count() * kRounding / 1e3);
  for (const auto& [name, time] : costs_.recompute_times(all)) {
    const int k = modules_.find(all.name(name));
    if (k >= 0) division.costs[static_cast<std::size_t>(k)] += time.count();
  }
}

void Search::cut_at(Division& division, double seconds_above_plain) {
  division.cut = true;
  division.bound = std::min(division.bound, division.plain_time + Seconds(seconds_above_plain));
}

Cover Search::cover_of(const Division& division, Bytes budget, Bytes spare, double limit) const {
  return cheapest_cover({.costs = division.costs,
                         .moments = division.memory->moments(),
                         .budget = (budget - spare).count(),
                         .limit = limit,
                         .tried = &division.tried});
}

// Bounds are of tensors. What a card takes beyond them only a plan's own dry run tells: it is guessed, at first the
// least that any plan took, then as much as the last one that failed for it, so that sets of a size are not tried one
// by one; less again if that leaves none. What guesses pass over stays open: the gap counts it.
bool Search::search(Division& division, Bytes budget, Seconds time_limit, std::size_t most_tries) {
  if (!problem_.may("checkpoint") || modules_.size() == 0) return false;
  if (division.memory == nullptr) {
    if (out_of_time()) {
      cut_at(division, 0);
      return false;
    }
    prepare(division);
  }
  for (const Selection& tried : division.tried) {
    // What prepare() ran counts as found where it is fast enough; the search below then looks for less.
    const Plan plan = plan_of(division, tried);
    const auto done = std::ranges::find(candidates_, plan, &Candidate::plan);
    if (done->peak <= budget) time_limit = std::min(time_limit, done->step_time);
  }
  const double limit = (time_limit * (1 - kRounding) - division.plain_time).count();
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
    const trace::Trace trace = run(division, *cover.cheapest);
    if (candidates_.back().peak <= budget) return true;
    division.memory->add(trace, *cover.cheapest);
    spare = std::max(spare, division.last_overhead);
  }
}

// Each plain plan. By a roofline more parts never take less time: as many operations, no fewer bytes, more launches. So
// without measured rates none is looked at past the first that fits and the next.
void Search::see_divisions() {
  for (std::size_t i = 0; i < divisions_.size() && !out_of_time(kShareForDivisions); ++i) {
    see(divisions_[i]);
    const Candidate* best = fastest_fitting();
    if (costs_.calibrated() || best == nullptr || divisions_[i].plain_time < best->step_time || i == 0) continue;
    for (std::size_t rest = i + 1; rest < divisions_.size(); ++rest) divisions_[rest].bound = divisions_[i].plain_time;
    return;
  }
}

void Search::find_fastest() {
  see_divisions();
  std::vector<Division*> by_time;
  for (Division& division : divisions_) {
    if (division.seen) by_time.push_back(&division);
  }
  std::ranges::stable_sort(by_time, std::ranges::less(), &Division::plain_time);
  for (Division* division : by_time) {
    for (;;) {  // Each find lowers the time that the next must beat.
      const Candidate* best = fastest_fitting();
      const Seconds limit = best == nullptr ? kNever : best->step_time;
      if (division->plain_time >= limit * (1 - kRounding)) break;
      if (!search(*division, problem_.budget, limit, kMostTries)) break;
    }
  }
  for (Division& division : divisions_) {  // Those there was no time for, if they are needed.
    if (division.seen || fastest_fitting() != nullptr || out_of_time()) continue;
    see(division);
    search(division, problem_.budget, kNever, kMostTries);
  }
}

void Search::find_smallest() {
  for (auto division = divisions_.rbegin(); division != divisions_.rend(); ++division) {
    if (out_of_time()) return;
    see(*division);
    const auto less = [&] {
      const Bytes peak = smallest().peak;
      return peak - Bytes(problem_.on_device ? peak.count() / kFloorPart + 1 : 1);
    };
    while (search(*division, less(), kNever, kMostFloorTries)) {
    }
  }
}

void Search::fill_frontier() {
  std::int64_t parts_seen = 0;
  for (Division& division : divisions_) {
    parts_seen += parts({.micro_batch_size = division.micro_batch, .activations = {}}, problem_.batch_size);
    if (parts_seen > kMostPartsShown || out_of_time(kShareForDivisions)) break;
    see(division);
  }
  if (!problem_.may("checkpoint") || modules_.size() == 0) return;
  const std::int64_t best = fastest_fitting()->plan.micro_batch_size;
  for (Division& division : divisions_) {
    if (division.micro_batch != 0 && division.micro_batch != best) continue;
    if (out_of_time(kShareForDivisions)) return;
    prepare(division);
    std::vector<Bytes> peaks;
    for (const Candidate& candidate : candidates_) {
      if (candidate.plan.micro_batch_size == division.micro_batch) peaks.push_back(candidate.peak);
    }
    const auto [low, high] = std::ranges::minmax(peaks);
    for (int i = 1; i <= kFrontierSteps && !out_of_time(kShareForDivisions); ++i) {
      const std::int64_t budget = low.count() + (high - low).count() / (kFrontierSteps + 1) * i;
      const Cover cover = cover_of(division, Bytes(budget), division.least_overhead, kNever.count());
      if (cover.cheapest) run(division, *cover.cheapest);
    }
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
  for (const Division& division : divisions_) {
    if (!division.seen) bound = std::min(bound, division.bound < kNever ? division.bound : arithmetic_);
    if (division.cut) bound = std::min(bound, division.bound);
  }
  return bound;
}

bool Search::cut() const {
  return std::ranges::any_of(divisions_, [](const Division& division) { return !division.seen || division.cut; });
}
}  // namespace cinch::plan::internal
