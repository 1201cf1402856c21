// A plan that is said to fit runs under a hard cap of that size; one byte less fails, cleanly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/plan/solver.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {

const device::DeviceSpec& cpu() {
  static const auto spec = device::find("cpu", 2);
  return spec;
}

Bytes peak_of(const job::Job& job, const plan::Plan& plan) {
  return trace::Timeline(train::simulator(job, cpu())(plan)).peak().bytes;
}

class Budget : public ::testing::TestWithParam<std::tuple<ModelKind, int, bool>> {
 protected:
  void SetUp() override { train::set_threads(2); }
};

/// Both techniques, or checkpointing alone.
plan::Problem problem_of(const job::Job& job, bool may_divide) {
  auto problem = train::make_problem(job, cpu(), Bytes(1));
  problem.may_divide_batch = may_divide;
  return problem;
}

TEST_P(Budget, APlannedTrainingRunsUnderItsCap) {
  const auto [kind, percent, may_divide] = GetParam();
  const auto job = small_job(kind, kind == ModelKind::kMlp ? 512 : 16);  // an MLP's activations need many samples to matter
  const plan::CostModel costs(cpu());
  const auto simulate = train::simulator(job, cpu());
  auto problem = problem_of(job, may_divide);
  const auto floor = std::get<plan::Infeasible>(plan::solve(problem, costs, simulate)).smallest.peak;
  const auto unconstrained = peak_of(job, {});
  ASSERT_LT(floor, unconstrained);
  problem.budget = floor + Bytes((unconstrained - floor).count() * percent / 100);
  const auto result = plan::solve(problem, costs, simulate);
  ASSERT_TRUE(std::holds_alternative<plan::Solution>(result));
  const auto& solution = std::get<plan::Solution>(result);
  EXPECT_LE(solution.best.peak, problem.budget);
  EXPECT_THAT(plan::validate(problem, costs, simulate, solution), ::testing::IsEmpty());
  const auto recorded = record_run(job, solution.best.plan, {.cap = problem.budget});
  EXPECT_EQ(trace::Timeline(recorded).peak().bytes, solution.best.peak);
}

INSTANTIATE_TEST_SUITE_P(All, Budget,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp),
                                            ::testing::Values(75, 50, 10), ::testing::Bool()));

TEST(Cap, OfExactlyThePeakRunsAndOneByteLessFailsCleanly) {
  train::set_threads(2);
  for (auto kind : {ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp}) {
    const auto job = small_job(kind, 8);
    const auto plan = checkpoint_all(job);
    const auto peak = peak_of(job, plan);
    EXPECT_NO_THROW(record_run(job, plan, {.cap = peak}));
    try {
      record_run(job, plan, {.cap = peak - Bytes(1)});
      FAIL() << "a cap below the peak was not enforced";
    } catch (const record::OutOfMemoryError& error) {
      EXPECT_EQ(error.cap(), peak - Bytes(1));
      EXPECT_GT(error.live() + error.requested(), error.cap());
      EXPECT_EQ(error.live_by_category().sum(), error.live());
    }
  }
}
}  // namespace
}  // namespace cinch::tests
