#include "cinch/plan/internal/cover.h"

#include <algorithm>
#include <numeric>

namespace cinch::plan::internal {
namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostMoments = 192;      // The tightest are kept: fewer only loosen the bound.
constexpr std::size_t kMostWork = 4'000'000;  // Steps of the search, about: some hundredths of a second.

class BranchAndBound {
 public:
  explicit BranchAndBound(const CoverProblem& problem)
      : problem_(problem), offsets_(problem.offsets), costs_(problem.costs.begin(), problem.costs.end()) {
    shift_costs();
    choose_moments();
    choose_order();
    by_use_.resize(rows_.size());
    std::iota(by_use_.begin(), by_use_.end(), 0);
  }

  Cover run() {
    Cover cover;
    const double root = lower_bound(0);
    chosen_.assign(items(), 0);
    visit(0, 0);
    cover.cheapest = best_;
    cover.complete = work_ < kMostWork;
    cover.bound = (cover.complete ? limit_ : std::min(root, limit_)) + base_;
    return cover;
  }

 private:
  // A dearer option of an item in place of the next cheaper one, on the convex hull of what they save.
  struct Increment {
    std::size_t item;
    double saving, cost;
  };
  // A moment that the budget forbids unless something is done.
  struct Row {
    std::int64_t need;  // Bytes that still have to go, if each free item takes the best of its cheapest options.
    const PerOption<std::int64_t>* savings;
    std::vector<std::int64_t> start;     // Of each item: what the best of its cheapest options saves.
    std::vector<std::int64_t> most;      // And what any of them saves beyond that.
    std::vector<Increment> increments;   // By cost a byte.
    std::vector<std::size_t> by_saving;  // Items that help, by `most`.
  };

  std::size_t items() const { return offsets_.size() - 1; }

  // So that the cheapest option of each item costs nothing.
  void shift_costs() {
    dearer_.assign(items(), kInfinity);
    for (std::size_t i = 0; i < items(); ++i) {
      const std::span<double> own(costs_.data() + offsets_[i], offsets_[i + 1] - offsets_[i]);
      const double least = std::ranges::min(own);
      base_ += least;
      for (double& cost : own) {
        cost -= least;
        if (cost > 0) dearer_[i] = std::min(dearer_[i], cost);
      }
    }
    limit_ = problem_.limit - base_;
  }

  void choose_moments() {
    for (const Moment& moment : problem_.moments) {
      std::int64_t worst = moment.level - problem_.budget;
      for (std::size_t i = 0; i < items(); ++i)
        worst -= *std::min_element(moment.savings.begin() + static_cast<std::ptrdiff_t>(offsets_[i]),
                                   moment.savings.begin() + static_cast<std::ptrdiff_t>(offsets_[i + 1]));
      if (worst > 0) rows_.push_back({moment.level - problem_.budget, &moment.savings, {}, {}, {}, {}});
    }
    std::ranges::stable_sort(rows_, std::ranges::greater(), &Row::need);
    if (rows_.size() > kMostMoments) rows_.resize(kMostMoments);
    for (Row& row : rows_) prepare(row);
  }

  void prepare(Row& row) const {
    row.start.resize(items());
    row.most.resize(items());
    for (std::size_t i = 0; i < items(); ++i) {
      std::int64_t start = std::numeric_limits<std::int64_t>::min(), most = start;
      for (std::size_t o = offsets_[i]; o < offsets_[i + 1]; ++o) {
        if (costs_[o] <= 0) start = std::max(start, (*row.savings)[o]);
        most = std::max(most, (*row.savings)[o]);
      }
      row.start[i] = start;
      row.most[i] = most - start;
      row.need -= start;
      if (row.most[i] > 0) row.by_saving.push_back(i);
      add_increments(row, i);
    }
    std::ranges::stable_sort(row.increments, std::ranges::less(), [](const Increment& a) { return a.cost / a.saving; });
    std::ranges::stable_sort(row.by_saving, std::ranges::greater(), [&](std::size_t i) { return row.most[i]; });
  }

  // The upper hull of (saving, cost) from the start on: from each point to the one that saves at the least price.
  void add_increments(Row& row, std::size_t item) const {
    double cost = 0;
    std::int64_t saved = row.start[item];
    for (;;) {
      Increment best{item, 0, 0};
      for (std::size_t o = offsets_[item]; o < offsets_[item + 1]; ++o) {
        const Increment step{item, static_cast<double>((*row.savings)[o] - saved), costs_[o] - cost};
        if (step.saving <= 0) continue;
        const double left = step.cost * best.saving, right = best.cost * step.saving;
        if (best.saving == 0 || left < right || (left == right && step.saving > best.saving)) best = step;
      }
      if (best.saving == 0) return;
      row.increments.push_back(best);
      saved += static_cast<std::int64_t>(best.saving);
      cost += best.cost;
    }
  }

  // Items by what a byte costs where most has to go; those of no use there last.
  void choose_order() {
    order_.resize(items());
    std::iota(order_.begin(), order_.end(), 0);
    place_.resize(items());
    if (!rows_.empty()) {
      std::vector<double> price(items(), kInfinity);
      for (const Increment& step : rows_.front().increments)
        price[step.item] = std::min(price[step.item], step.cost / step.saving);
      std::ranges::stable_sort(order_, std::ranges::less(), [&](std::size_t i) { return price[i]; });
    }
    for (std::size_t i = 0; i < order_.size(); ++i) place_[order_[i]] = i;
    by_cost_ = order_;
    std::ranges::stable_sort(by_cost_, std::ranges::less(), [&](std::size_t i) { return dearer_[i]; });
  }

  bool is_free(std::size_t item, std::size_t depth) const { return place_[item] >= depth; }

  // Least cost of passing one row with the free items; infinity if they cannot. May stop at `enough`.
  double row_bound(const Row& row, std::size_t depth, double enough) const {
    double price = 0, left = static_cast<double>(row.need);
    for (const Increment& step : row.increments) {  // A part of one may be taken: never dearer than whole ones.
      if (left <= 0) break;
      if (!is_free(step.item, depth)) continue;
      price += step.cost * std::min(1.0, left / step.saving);
      if (price >= enough) return price;
      left -= step.saving;
    }
    if (left > 0) return kInfinity;
    std::size_t count = 0;
    std::int64_t need = row.need;
    for (const std::size_t i : row.by_saving) {  // The fewest that suffice, each at least as dear as the cheapest.
      if (need <= 0) break;
      if (!is_free(i, depth)) continue;
      need -= row.most[i];
      ++count;
    }
    double whole = 0;
    for (const std::size_t i : by_cost_) {
      if (count == 0) break;
      if (!is_free(i, depth)) continue;
      whole += dearer_[i];
      --count;
    }
    return std::max(price, whole);
  }

  // Of all rows; as soon as one reaches `enough` it is put first: it will cut the next branches too.
  double lower_bound(std::size_t depth, double enough = kInfinity) {
    double bound = 0;
    for (std::size_t i = 0; i < by_use_.size(); ++i) {
      const Row& row = rows_[by_use_[i]];
      ++work_;
      if (row.need <= 0) continue;
      work_ += row.increments.size();
      bound = std::max(bound, row_bound(row, depth, enough));
      if (bound < enough) continue;
      std::rotate(by_use_.begin(), by_use_.begin() + static_cast<std::ptrdiff_t>(i),
                  by_use_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      break;
    }
    return bound;
  }

  // Whether all rows pass with the free items at option 0. Not yet where that is not their cheapest.
  bool covered(std::size_t depth) const {
    for (std::size_t at = depth; at < order_.size(); ++at)
      if (costs_[offsets_[order_[at]]] > 0) return false;
    return std::ranges::all_of(rows_, [&](const Row& row) {
      std::int64_t need = row.need;
      for (std::size_t at = depth; at < order_.size(); ++at)
        need += row.start[order_[at]] - (*row.savings)[offsets_[order_[at]]];
      return need <= 0;
    });
  }

  bool wanted() const { return problem_.tried == nullptr || !problem_.tried->contains(chosen_); }

  void visit(std::size_t depth, double cost) {
    work_ += rows_.size();
    if (work_ >= kMostWork) return;
    // Written so that sums of the same costs in another order count as equal.
    const double most = limit_ * (1 - 1e-9);
    if (!(cost + lower_bound(depth, most - cost) < most)) return;
    if (covered(depth) && wanted()) {
      best_ = chosen_;
      limit_ = cost;
      return;
    }
    if (depth == order_.size()) return;
    const std::size_t item = order_[depth];
    for (const std::size_t option : options_by_promise(item)) {
      choose(item, option, +1);
      visit(depth + 1, cost + costs_[offsets_[item] + option]);
      choose(item, option, -1);
    }
  }

  // First what saves a byte of the tightest row at the least price, plain training's option after those that save.
  std::vector<std::size_t> options_by_promise(std::size_t item) const {
    std::vector<std::size_t> options(offsets_[item + 1] - offsets_[item]);
    std::iota(options.begin(), options.end(), 0);
    const Row* tightest = nullptr;
    for (const Row& row : rows_)
      if (row.need > 0 && (tightest == nullptr || row.need > tightest->need)) tightest = &row;
    const auto price = [&](std::size_t option) {
      const std::size_t o = offsets_[item] + option;
      if (tightest == nullptr) return costs_[o];
      const std::int64_t saves = (*tightest->savings)[o] - tightest->start[item];
      if (saves > 0) return costs_[o] / static_cast<double>(saves);
      return costs_[o] > 0 ? kInfinity : std::numeric_limits<double>::max();
    };
    std::ranges::stable_sort(options, std::ranges::less(), price);
    return options;
  }

  void choose(std::size_t item, std::size_t option, int sign) {
    chosen_[item] = sign > 0 ? static_cast<std::uint8_t>(option) : 0;
    for (Row& row : rows_) row.need += sign * (row.start[item] - (*row.savings)[offsets_[item] + option]);
  }

  const CoverProblem& problem_;
  std::span<const std::size_t> offsets_;
  std::vector<double> costs_;   // From the cheapest option of each item.
  std::vector<double> dearer_;  // Of each item: the least cost that is not 0.
  double base_ = 0;             // Of the cheapest options together.
  double limit_ = kInfinity;
  std::vector<Row> rows_;
  std::vector<std::size_t> order_, place_, by_cost_;
  Choice chosen_;
  std::optional<Choice> best_;
  std::vector<std::size_t> by_use_;  // Rows, those that cut branches last first.
  std::size_t work_ = 0;             // Steps done.
};
}  // namespace

Cover cheapest_cover(const CoverProblem& problem) { return BranchAndBound(problem).run(); }
}  // namespace cinch::plan::internal
