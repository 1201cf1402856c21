// A plan that is said to fit runs under a hard cap of that size; one byte less fails, cleanly.
#include <map>
#include <string>
#include <utility>

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
  const auto simulate = train::abridged_simulator(job, cpu());
  auto problem = problem_of(job, may_divide);
  static std::map<std::pair<ModelKind, bool>, Bytes> floors;
  auto& floor = floors[{kind, may_divide}];
  if (floor == Bytes()) floor = std::get<plan::Infeasible>(plan::solve(problem, costs, simulate)).smallest.peak;
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
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp,
                                                              ModelKind::kVit, ModelKind::kLlama),
                                            ::testing::Values(60, 10), ::testing::Bool()));

/// Plans that divide a batch in five, with what else may be in them.
std::vector<plan::Plan> dividing_plans(const job::Job& job) {
  const plan::Problem problem = train::make_problem(job, cpu(), Bytes(1));
  std::vector<plan::Plan> plans;
  const auto add = [&](const auto& change) {
    plan::Plan plan{.micro_batch_size = 3, .activations = {}};
    change(plan);
    if (plan::validate(problem, plan).empty()) plans.push_back(std::move(plan));
  };
  add([](plan::Plan&) {});
  add([&](plan::Plan& plan) { plan.activations[problem.modules.front()] = plan::ActivationPolicy::kCheckpoint; });
  add([&](plan::Plan& plan) { plan.activations[problem.modules.back()] = plan::ActivationPolicy::kSelective; });
  add([&](plan::Plan& plan) { plan.activations[problem.modules.back()] = plan::ActivationPolicy::kOffload; });
  add([](plan::Plan& plan) { plan.loss_chunk_size = 64; });
  add([](plan::Plan& plan) { plan.optimizer.in_backward = true; });
  add([](plan::Plan& plan) { plan.optimizer.place = plan::StatePlace::kHost; });
  add([](plan::Plan& plan) { plan.autocast = plan::Autocast::kBf16; });
  return plans;
}

/// How often the second step calls each op.
std::map<std::string, std::size_t> calls(const trace::Trace& trace) {
  std::map<std::string, std::size_t> calls;
  for (const trace::OpCall& call : trace.ops())
    if (call.step == 2) calls[std::string(trace.name(call.name))] += call.times;
  return calls;
}

TEST(Abridged, ADryRunHasThePeakAndTheTimeOfTheWholeOne) {
  train::set_threads(2);
  const plan::CostModel costs(cpu());
  for (const auto kind : {ModelKind::kGpt, ModelKind::kMlp, ModelKind::kVit, ModelKind::kLlama}) {
    const auto job = small_job(kind, 14);  // Four parts of three and one of two.
    for (const plan::Plan& plan : dividing_plans(job)) {
      const auto whole = train::simulator(job, cpu())(plan), abridged = train::abridged_simulator(job, cpu())(plan);
      SCOPED_TRACE(testing::Message() << name_of(kind) << ", " << plan::describe(plan, 9));
      EXPECT_LT(abridged.events().size(), whole.events().size());
      EXPECT_EQ(trace::Timeline(abridged).peak().bytes, trace::Timeline(whole).peak().bytes);
      EXPECT_EQ(calls(abridged), calls(whole));
      EXPECT_NEAR(costs.step_time(abridged) / costs.step_time(whole), 1, 1e-9);
    }
  }
}

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
