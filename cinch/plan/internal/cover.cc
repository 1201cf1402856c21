#include "cinch/plan/internal/cover.h"

#include <algorithm>
#include <numeric>

namespace cinch::plan::internal {
namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostMoments = 256;   // The tightest are kept: fewer only loosen the bound.
constexpr std::size_t kMostNodes = 20'000;  // Of the search tree; each costs about moments × modules steps.

class BranchAndBound {
 public:
  explicit BranchAndBound(const CoverProblem& problem) : problem_(problem), limit_(problem.limit) {
    choose_moments();
    choose_order();
  }

  Cover run() {
    Cover cover;
    const Selection none(problem_.costs.size());
    const double root = lower_bound(0);
    chosen_ = none;
    visit(0, 0);
    cover.cheapest = best_;
    cover.complete = nodes_ < kMostNodes;
    cover.bound = cover.complete ? limit_ : std::min(root, limit_);
    return cover;
  }

 private:
  // A moment that the budget forbids unless modules are checkpointed.
  struct Row {
    std::int64_t need;  // Bytes that still have to go.
    const std::vector<std::int64_t>* savings;
    std::vector<std::size_t> by_price;   // Modules that help, by cost per byte.
    std::vector<std::size_t> by_saving;  // The same, largest saving first.
  };

  void choose_moments() {
    for (const Moment& moment : problem_.moments) {
      std::int64_t worst = moment.level - problem_.budget;
      for (const std::int64_t saving : moment.savings) worst += std::max<std::int64_t>(0, -saving);
      if (worst > 0) rows_.push_back({moment.level - problem_.budget, &moment.savings, {}, {}});
    }
    std::ranges::stable_sort(rows_, std::ranges::greater(), &Row::need);
    if (rows_.size() > kMostMoments) rows_.resize(kMostMoments);
    for (Row& row : rows_) {
      for (std::size_t k = 0; k < row.savings->size(); ++k) {
        if ((*row.savings)[k] > 0) row.by_price.push_back(k);
      }
      row.by_saving = row.by_price;
      const auto saving = [&row](std::size_t k) { return static_cast<double>((*row.savings)[k]); };
      std::ranges::stable_sort(row.by_price, std::ranges::less(),
                               [&](std::size_t k) { return problem_.costs[k] / saving(k); });
      std::ranges::stable_sort(row.by_saving, std::ranges::greater(), saving);
    }
  }

  // Modules by what a byte costs where most has to go; those of no use there last.
  void choose_order() {
    order_.resize(problem_.costs.size());
    std::iota(order_.begin(), order_.end(), 0);
    place_.resize(order_.size());
    if (!rows_.empty()) {
      const std::vector<std::int64_t>& savings = *rows_.front().savings;
      std::ranges::stable_sort(order_, std::ranges::less(), [&](std::size_t k) {
        return savings[k] > 0 ? problem_.costs[k] / static_cast<double>(savings[k]) : kInfinity;
      });
    }
    for (std::size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
    by_cost_ = order_;
    std::ranges::stable_sort(by_cost_, std::ranges::less(), [&](std::size_t k) { return problem_.costs[k]; });
  }

  bool is_free(std::size_t module, std::size_t depth) const { return place_[module] >= depth; }

  // Least cost of passing one row with the free modules; infinity if they cannot.
  double row_bound(const Row& row, std::size_t depth) const {
    double price = 0, left = static_cast<double>(row.need);
    for (const std::size_t k : row.by_price) {  // A part of a module may be taken: never dearer than whole ones.
      if (left <= 0) break;
      if (!is_free(k, depth)) continue;
      const double saving = static_cast<double>((*row.savings)[k]);
      price += problem_.costs[k] * std::min(1.0, left / saving);
      left -= saving;
    }
    if (left > 0) return kInfinity;
    std::size_t count = 0;
    std::int64_t need = row.need;
    for (const std::size_t k : row.by_saving) {  // The fewest that suffice, each at least as dear as the cheapest.
      if (need <= 0) break;
      if (!is_free(k, depth)) continue;
      need -= (*row.savings)[k];
      ++count;
    }
    double whole = 0;
    for (const std::size_t k : by_cost_) {
      if (count == 0) break;
      if (!is_free(k, depth)) continue;
      whole += problem_.costs[k];
      --count;
    }
    return std::max(price, whole);
  }

  double lower_bound(std::size_t depth) const {
    double bound = 0;
    for (const Row& row : rows_) {
      if (row.need > 0) bound = std::max(bound, row_bound(row, depth));
      if (bound == kInfinity) break;
    }
    return bound;
  }

  bool covered() const {
    return std::ranges::all_of(rows_, [](const Row& row) { return row.need <= 0; });
  }

  bool wanted() const { return problem_.tried == nullptr || !problem_.tried->contains(chosen_); }

  void visit(std::size_t depth, double cost) {
    if (nodes_ >= kMostNodes) return;
    ++nodes_;
    // Written so that sums of the same costs in another order count as equal.
    const double bound = cost + lower_bound(depth);
    if (!(bound < limit_ * (1 - 1e-9))) return;
    if (covered() && wanted()) {
      best_ = chosen_;
      limit_ = cost;
      return;
    }
    if (depth == order_.size()) return;
    const std::size_t k = order_[depth];
    choose(k, true);
    visit(depth + 1, cost + problem_.costs[k]);
    choose(k, false);
    visit(depth + 1, cost);
  }

  void choose(std::size_t k, bool on) {
    chosen_[k] = on;
    for (Row& row : rows_) row.need += on ? -(*row.savings)[k] : (*row.savings)[k];
  }

  const CoverProblem& problem_;
  double limit_;
  std::vector<Row> rows_;
  std::vector<std::size_t> order_, place_, by_cost_;
  Selection chosen_;
  std::optional<Selection> best_;
  std::size_t nodes_ = 0;
};
}  // namespace

Cover cheapest_cover(const CoverProblem& problem) { return BranchAndBound(problem).run(); }
}  // namespace cinch::plan::internal
