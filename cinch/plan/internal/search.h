#pragma once
// The search behind solve(): for each way of dividing the batch, the cheapest choice of everything else.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cinch/plan/internal/cover.h"
#include "cinch/plan/internal/memory_model.h"
#include "cinch/plan/solver.h"

namespace cinch::plan::internal {

/// Two plans whose times differ by less than this share are equal: then the one that changes less is better.
inline constexpr double kTie = 1e-3;

/// Micro-batch sizes worth a look, largest first, at most about 16: for each number of parts the smallest size that
/// gives it. The first is the whole batch.
std::vector<std::int64_t> micro_batch_sizes(std::int64_t batch_size, bool may_divide);

/// Rows of the smallest part: the last one, where the division leaves a rest.
std::int64_t smallest_part(std::int64_t micro_batch, std::int64_t batch_size);

/// How many parts a plan divides the batch into.
std::int64_t parts(const Plan& plan, std::int64_t batch_size);

class Search {
 public:
  Search(const Problem& problem, const CostModel& costs, const Simulate& simulate, const SolveOptions& options);

  /// Looks for the fastest plan within the budget.
  void find_fastest();
  /// Looks for any plan within the budget.
  void find_any();
  /// Looks for the plan of least peak, whatever it costs.
  void find_smallest();
  /// Simulates more plans between the extremes, so that the frontier shows what other budgets would give.
  void fill_frontier();

  const std::vector<Candidate>& candidates() const { return candidates_; }
  const Candidate& unconstrained() const { return candidates_.front(); }
  const Candidate* fastest_fitting() const;
  const Candidate& smallest() const;
  /// No plan that fits takes less, of those that the search did not prove to be slower or too large. Infinity: none is
  /// left.
  Seconds open_bound() const;
  /// Whether time ran out or a limit cut the search of any division of the batch.
  bool cut() const;

 private:
  struct Run {
    Choice choice;
    trace::Trace trace;
    Seconds time{};
  };
  // One way of dividing the batch, in one precision.
  struct Division {
    explicit Division(const Problem& problem, Plan plan) : base(plan), items(problem, std::move(plan)) {}
    Plan base;
    Items items;
    bool seen = false;  // Its plain plan was simulated.
    bool cut = false;   // Its search was.
    Seconds plain_time{};
    Seconds bound{std::numeric_limits<double>::infinity()};  // If cut, or not seen for being slower.
    // What plans took of the device beyond their tensors: the least, and the last.
    Bytes least_overhead{std::numeric_limits<std::int64_t>::max()}, last_overhead;
    std::vector<Run> runs;                // Until prepared: what the memory model is to learn from.
    std::unique_ptr<MemoryModel> memory;  // Once prepared.
    PerOption<double> costs;              // Seconds that an option adds to the plain plan.
    std::set<Choice> tried;
  };

  bool out_of_time(double share = 1) const;
  bool may_decide() const;
  static bool is_of(const Division& division, const Plan& plan);
  Run run(Division& division, const Choice& choice);
  const Run& run_to_learn(Division& division, const Choice& choice);
  void see(Division& division);
  void see_divisions();
  void learn_settings();
  void prepare(Division& division);
  void try_policies(Division& division, MemoryModel& memory);
  void learn_costs(Division& division, std::size_t policy, const Run& plain, const Run& all);
  // Seconds by which a division's plain plan may be beaten by another choice, at most.
  Seconds head_start(const Division& division) const;
  // Simulates choices that `budget` may allow, cheapest first, until one fits or none is left that takes less than
  // `time_limit`. True if one fits.
  bool search(Division& division, Bytes budget, Seconds time_limit, std::size_t most_tries);
  // The cheapest choice whose tensors may leave `spare` of the budget.
  Cover cover_of(const Division& division, Bytes budget, Bytes spare, double limit) const;
  void try_savers();
  Choice all_savers(const Division& division) const;
  void lower(Division& division);
  void learn_from(Division& division, const Choice& choice);
  void cut_at(Division& division, double seconds_above_plain);
  void fill(Division& division);

  const Problem& problem_;
  const CostModel& costs_;
  const Simulate& simulate_;
  const SolveOptions& options_;
  std::chrono::steady_clock::time_point began_;
  ModuleIndex modules_;
  SharedFacts shared_;
  std::vector<std::unique_ptr<Division>> divisions_;  // Memory models point into them.
  const Division* first_prepared_ = nullptr;
  std::vector<Candidate> candidates_;
  Seconds arithmetic_{};  // Of a step: no plan is faster.
};
}  // namespace cinch::plan::internal
