#include "cinch/plan/internal/cover.h"

#include <random>

#include <gtest/gtest.h>

namespace cinch::plan::internal {
namespace {

struct Instance {
  std::vector<double> costs;
  std::vector<Moment> moments;
  std::int64_t budget = 0;
};

Instance random_instance(std::mt19937& random) {
  const std::size_t n = 1 + random() % 9;
  Instance instance;
  for (std::size_t k = 0; k < n; ++k) instance.costs.push_back(static_cast<double>(1 + random() % 50));
  for (std::size_t j = random() % 8; j > 0; --j) {
    Moment moment{static_cast<std::int64_t>(random() % 2000), {}};
    for (std::size_t k = 0; k < n; ++k) moment.savings.push_back(static_cast<std::int64_t>(random() % 500) - 60);
    instance.moments.push_back(moment);
  }
  instance.budget = static_cast<std::int64_t>(random() % 1000);
  return instance;
}

bool passes(const Instance& instance, const Selection& set) {
  for (const Moment& moment : instance.moments) {
    std::int64_t live = moment.level;
    for (std::size_t k = 0; k < set.size(); ++k) live -= set[k] ? moment.savings[k] : 0;
    if (live > instance.budget) return false;
  }
  return true;
}

double cost_of(const Instance& instance, const Selection& set) {
  double sum = 0;
  for (std::size_t k = 0; k < set.size(); ++k) sum += set[k] ? instance.costs[k] : 0;
  return sum;
}

// Least cost over all sets that pass and are not in `tried`; infinity if there is none.
double least_cost(const Instance& instance, const std::set<Selection>& tried) {
  double least = std::numeric_limits<double>::infinity();
  const std::size_t n = instance.costs.size();
  for (std::size_t bits = 0; bits < std::size_t{1} << n; ++bits) {
    Selection set(n);
    for (std::size_t k = 0; k < n; ++k) set[k] = bits >> k & 1;
    if (!tried.contains(set) && passes(instance, set)) least = std::min(least, cost_of(instance, set));
  }
  return least;
}

TEST(Cover, IsTheCheapestOfAllSets) {
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    const Instance instance = random_instance(random);
    const double least = least_cost(instance, {});
    const Cover cover =
        cheapest_cover({.costs = instance.costs, .moments = instance.moments, .budget = instance.budget});
    EXPECT_TRUE(cover.complete);
    ASSERT_EQ(cover.cheapest.has_value(), least < std::numeric_limits<double>::infinity());
    EXPECT_DOUBLE_EQ(cover.bound, least);
    if (!cover.cheapest) continue;
    EXPECT_TRUE(passes(instance, *cover.cheapest));
    EXPECT_DOUBLE_EQ(cost_of(instance, *cover.cheapest), least);
  }
}

TEST(Cover, LeavesOutWhatWasTriedAndWhatIsTooDear) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    const Instance instance = random_instance(random);
    std::set<Selection> tried;
    CoverProblem problem{.costs = instance.costs, .moments = instance.moments, .budget = instance.budget, .tried = &tried};
    for (int again = 0; again < 4; ++again) {
      const double least = least_cost(instance, tried);
      const Cover cover = cheapest_cover(problem);
      EXPECT_DOUBLE_EQ(cover.bound, least);
      if (!cover.cheapest) break;
      CoverProblem cheaper = problem;
      cheaper.limit = least;
      EXPECT_FALSE(cheapest_cover(cheaper).cheapest);
      EXPECT_TRUE(tried.insert(*cover.cheapest).second);
    }
  }
}

TEST(Cover, WhenItGivesUpItsBoundStillHolds) {
  // Savings all different, costs nearly in proportion: a subset-sum that no bound cuts short.
  std::mt19937 random(8);
  Instance instance;
  Moment moment{0, {}};
  for (int k = 0; k < 60; ++k) {
    moment.savings.push_back(1'000'000 + static_cast<std::int64_t>(random() % 900'000));
    instance.costs.push_back(static_cast<double>(moment.savings.back()) * (1 + 1e-7 * static_cast<double>(random() % 10)));
    moment.level += moment.savings.back();
  }
  instance.budget = moment.level / 2;
  instance.moments.push_back(moment);
  const Cover cover = cheapest_cover({.costs = instance.costs, .moments = instance.moments, .budget = instance.budget});
  ASSERT_TRUE(cover.cheapest);
  EXPECT_TRUE(passes(instance, *cover.cheapest));
  EXPECT_LE(cover.bound, cost_of(instance, *cover.cheapest));
  EXPECT_GE(cover.bound, static_cast<double>(moment.level - instance.budget)) << "no byte costs less than 1";
  EXPECT_FALSE(cover.complete);
}
}  // namespace
}  // namespace cinch::plan::internal
