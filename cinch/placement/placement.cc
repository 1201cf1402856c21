#include "cinch/placement/placement.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cinch/placement/internal/budget.h"
#include "cinch/placement/internal/first_fit.h"
#include "cinch/placement/internal/problem.h"
#include "cinch/placement/internal/search.h"

namespace cinch::placement {
namespace {
using internal::Budget;
using internal::Problem;
using internal::Repacker;
using internal::Search;

/// Beyond, nodes are too slow for a search to get anywhere.
constexpr std::size_t kSearchableItems = 1000;
/// After so many runs of the search, all strategies have had a turn, and runs get longer.
constexpr std::int64_t kRunsPerRound = 14;
/// Passes of the greedy half before each run of the search, which they take about as long as.
constexpr int kPassesPerRun = 64;

struct Greedy {
  std::vector<std::int64_t> offsets;
  std::int64_t height = 0;
  internal::Priority priority{};
};

/// The best of the orders; the first within `target`.
Greedy place_greedily(const Problem& problem, std::int64_t target, Budget& budget) {
  Greedy best;
  std::vector<std::int64_t> offsets(problem.items.size());
  for (const internal::Priority priority : internal::kPriorities) {
    const std::int64_t height = first_fit(problem, ordered_by(problem, priority), offsets);
    budget.spend(static_cast<std::int64_t>(offsets.size()));
    if (best.offsets.empty() || height < best.height) best = {offsets, height, priority};
    if (best.height <= target || budget.spent()) break;
  }
  return best;
}

/// A problem that shares no section with any other: the best found and the bound proved.
class Part {
 public:
  Part(Problem problem, Greedy start)
      : problem_(std::move(problem)),
        offsets_(std::move(start.offsets)),
        height_(height_of(offsets_)),
        bound_(problem_.load),
        repacked_(offsets_),
        repacker_(problem_, ordered_by(problem_, start.priority)) {}

  std::int64_t height() const { return height_; }
  std::int64_t bound() const { return bound_; }
  const Problem& problem() const { return problem_; }
  const std::vector<std::int64_t>& offsets() const { return offsets_; }

  /// A slice of work towards `target`, which is not below the bound; on the way, anything lower than now if `minimize`.
  void improve(std::int64_t target, bool minimize, Budget& budget) {
    for (int pass = 0; pass < kPassesPerRun; ++pass) {
      if (height_ <= target || budget.spent()) return;
      const std::int64_t height = repacker_.repack(target, repacked_);
      budget.spend(static_cast<std::int64_t>(problem_.items.size()));
      if (height < height_) offsets_ = repacked_, height_ = height;
    }
    if (height_ > target && problem_.items.size() <= kSearchableItems) search(target, minimize, budget);
  }

 private:
  std::int64_t height_of(const std::vector<std::int64_t>& offsets) const {
    std::int64_t height = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i) height = std::max(height, offsets[i] + problem_.items[i].size);
    return height;
  }

  void search(std::int64_t target, bool minimize, Budget& budget) {
    if (!search_) search_ = std::make_unique<Search>(problem_);
    // One run in four seeks a height between, for targets that are out of reach.
    const std::int64_t between = run_ % 8 == 3 ? (height_ - target) / 2 : (height_ - target) / 8 * 7;
    const std::int64_t capacity = minimize && run_ % 4 == 3 ? target + between : target;
    const auto nodes = static_cast<std::int64_t>(3 * problem_.items.size()) * (1 + run_ / kRunsPerRound);
    switch (search_->run(capacity, internal::nth_strategy(run_++), nodes, budget, offsets_)) {
      case Search::Outcome::kFound:
        height_ = height_of(offsets_);
        break;
      case Search::Outcome::kRefuted:
        bound_ = capacity + 1;
        break;
      case Search::Outcome::kLimit:
        break;
    }
  }

  Problem problem_;
  std::vector<std::int64_t> offsets_;
  std::int64_t height_;
  std::int64_t bound_;
  std::vector<std::int64_t> repacked_;
  Repacker repacker_;
  std::unique_ptr<Search> search_;
  std::int64_t run_ = 0;
};

/// Parts whose greedy placement is over `target`.
std::vector<std::unique_ptr<Part>> parts_over(const Problem& problem, const Greedy& greedy, std::int64_t target) {
  std::vector<std::unique_ptr<Part>> parts;
  for (Problem& component : internal::components(problem)) {
    Greedy start{{}, 0, greedy.priority};
    for (const std::int32_t i : component.buffers) start.offsets.push_back(greedy.offsets[i]);
    auto part = std::make_unique<Part>(std::move(component), std::move(start));
    if (part->height() > target) parts.push_back(std::move(part));
  }
  return parts;
}

/// Slices for all parts in turn, until all are within the target, one is proved to be above, or the budget is spent.
/// Returns the bound.
std::int64_t improve(std::vector<std::unique_ptr<Part>>& parts, std::int64_t bound,
                     std::optional<std::int64_t> capacity, Budget& budget) {
  for (bool high = true; high && !budget.spent();) {
    high = false;
    for (const auto& part : parts) {
      const std::int64_t target = std::max(bound, capacity.value_or(0));
      if (part->height() <= target) continue;
      high = true;
      part->improve(target, !capacity, budget);
      bound = std::max(bound, part->bound());
      if (capacity && bound > *capacity) return bound;
    }
  }
  return bound;
}
}  // namespace

Bytes live_load(std::span<const Buffer> buffers, Bytes alignment) {
  return alignment * internal::reduce(buffers, alignment).load;
}

Placement place(std::span<const Buffer> buffers, const Options& options) {
  Budget budget(options.time_limit, options.step_limit);
  const Problem problem = internal::reduce(buffers, options.alignment);
  const std::int64_t unit = options.alignment.count();
  std::optional<std::int64_t> capacity;
  if (options.capacity) capacity = options.capacity->count() / unit;

  std::int64_t bound = problem.load;
  Greedy best = place_greedily(problem, std::max(bound, capacity.value_or(0)), budget);
  if (!capacity || bound <= *capacity) {
    auto parts = parts_over(problem, best, std::max(bound, capacity.value_or(0)));
    bound = improve(parts, bound, capacity, budget);
    for (const auto& part : parts) {
      for (std::size_t i = 0; i < part->offsets().size(); ++i) {
        best.offsets[part->problem().buffers[i]] = part->offsets()[i];
      }
    }
  }

  Placement placement{std::vector<Bytes>(buffers.size()), Bytes(0), Bytes(bound * unit)};
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    placement.offsets[problem.buffers[i]] = Bytes(best.offsets[i] * unit);
    placement.height = std::max(placement.height, Bytes((best.offsets[i] + problem.items[i].size) * unit));
  }
  return placement;
}
}  // namespace cinch::placement
