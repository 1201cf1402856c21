#include "cinch/plan/internal/cover.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace cinch::plan::internal {
namespace {

struct Instance {
  std::vector<std::size_t> offsets{0};
  std::vector<double> costs;
  std::vector<Moment> moments;
  std::int64_t budget = 0;

  std::size_t items() const { return offsets.size() - 1; }
  std::size_t options(std::size_t item) const { return offsets[item + 1] - offsets[item]; }
  CoverProblem problem() const { return {.offsets = offsets, .costs = costs, .moments = moments, .budget = budget}; }
};

/// An item of plain training's option and as many others as costs are given.
void add_item(Instance& instance, std::initializer_list<double> costs) {
  instance.costs.push_back(0);
  instance.costs.insert(instance.costs.end(), costs);
  instance.offsets.push_back(instance.costs.size());
}

// Some options are cheaper than plain training's, as a loss in chunks may be.
Instance random_instance(std::mt19937& random) {
  Instance instance;
  const std::size_t items = 1 + random() % 6;
  const auto cost = [&] { return static_cast<double>(random() % 50) - (random() % 5 == 0 ? 20 : -1); };
  for (std::size_t k = 0; k < items; ++k) {
    if (random() % 3 == 0)
      add_item(instance, {cost()});
    else
      add_item(instance, {cost(), cost()});
  }
  for (std::size_t j = random() % 8; j > 0; --j) {
    Moment moment{static_cast<std::int64_t>(random() % 2000), PerOption<std::int64_t>(instance.costs.size())};
    for (std::size_t i = 0; i < items; ++i)
      for (std::size_t o = 1; o < instance.options(i); ++o)
        moment.savings[instance.offsets[i] + o] = static_cast<std::int64_t>(random() % 500) - 60;
    instance.moments.push_back(moment);
  }
  instance.budget = static_cast<std::int64_t>(random() % 1000);
  return instance;
}

template <typename Numbers>
auto sum_over(const Instance& instance, const Choice& choice, const Numbers& numbers) {
  typename Numbers::value_type sum{};
  for (std::size_t i = 0; i < choice.size(); ++i) sum += numbers[instance.offsets[i] + choice[i]];
  return sum;
}

bool passes(const Instance& instance, const Choice& choice) {
  return std::ranges::all_of(instance.moments, [&](const Moment& moment) {
    return moment.level - sum_over(instance, choice, moment.savings) <= instance.budget;
  });
}

// Least cost over all choices that pass and are not in `tried`; infinity if there is none.
double least_cost(const Instance& instance, const std::set<Choice>& tried) {
  double least = std::numeric_limits<double>::infinity();
  Choice choice(instance.items());
  for (;;) {
    if (!tried.contains(choice) && passes(instance, choice))
      least = std::min(least, sum_over(instance, choice, instance.costs));
    std::size_t i = 0;
    while (i < choice.size() && ++choice[i] == instance.options(i)) choice[i++] = 0;
    if (i == choice.size()) return least;
  }
}

TEST(Cover, IsTheCheapestOfAllChoices) {
  std::mt19937 random(4);
  for (int round = 0; round < 1000; ++round) {
    const Instance instance = random_instance(random);
    const double least = least_cost(instance, {});
    const Cover cover = cheapest_cover(instance.problem());
    EXPECT_TRUE(cover.complete);
    ASSERT_EQ(cover.cheapest.has_value(), least < std::numeric_limits<double>::infinity()) << round;
    EXPECT_DOUBLE_EQ(cover.bound, least);
    if (!cover.cheapest) continue;
    EXPECT_TRUE(passes(instance, *cover.cheapest));
    EXPECT_DOUBLE_EQ(sum_over(instance, *cover.cheapest, instance.costs), least);
  }
}

TEST(Cover, LeavesOutWhatWasTriedAndWhatIsTooDear) {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const Instance instance = random_instance(random);
    std::set<Choice> tried;
    CoverProblem problem = instance.problem();
    problem.tried = &tried;
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
    const auto saving = 1'000'000 + static_cast<std::int64_t>(random() % 900'000);
    add_item(instance, {static_cast<double>(saving) * (1 + 1e-7 * static_cast<double>(random() % 10))});
    moment.savings.insert(moment.savings.end(), {0, saving});
    moment.level += saving;
  }
  instance.budget = moment.level / 2;
  instance.moments.push_back(moment);
  const Cover cover = cheapest_cover(instance.problem());
  ASSERT_TRUE(cover.cheapest);
  EXPECT_TRUE(passes(instance, *cover.cheapest));
  EXPECT_LE(cover.bound, sum_over(instance, *cover.cheapest, instance.costs));
  EXPECT_GE(cover.bound, static_cast<double>(moment.level - instance.budget)) << "no byte costs less than 1";
  EXPECT_FALSE(cover.complete);
}
}  // namespace
}  // namespace cinch::plan::internal
