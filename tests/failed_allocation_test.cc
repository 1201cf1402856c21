// Each allocation of a training step fails once: a clean error each time, nothing stays held, and training goes on as if
// it had not happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jobs.h"

namespace cinch::tests {
namespace {

std::vector<at::Tensor> weights(train::Session& session) {
  std::vector<at::Tensor> all;
  for (const auto& tensor : session.model().parameters()) all.push_back(tensor.detach().clone());
  return all;
}

bool equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
}

/// Without dropout and batch norm, so that a step that failed leaves no trace at all.
job::Job job_without_randomness(ModelKind kind) {
  auto job = small_job(kind, 4);
  if (auto* gpt = std::get_if<job::GptConfig>(&job.model)) *gpt = {.layers = 2, .hidden_size = 32, .heads = 2, .context_length = 16, .vocab_size = 50};
  if (auto* mlp = std::get_if<job::MlpConfig>(&job.model)) *mlp = {.sizes = {20, 16, 16, 5}};
  return job;
}

/// Trains one step with allocation `number` of it failing, and that step once more. False if there is no such allocation.
bool step_after_failure(const job::Job& job, const plan::Plan& plan, const data::Batch& batch, std::int64_t number,
                        const std::vector<at::Tensor>& expected) {
  train::Session session(job, plan);
  bool failed = false;
  {
    trace::PeakMeter meter;
    const record::Recorder recorder(meter, {.fail_at = number});
    try {
      session.step(batch);
    } catch (const record::OutOfMemoryError&) {
      failed = true;
      EXPECT_EQ(session.steps_done(), 0);
      for (const auto& parameter : session.model().parameters()) EXPECT_FALSE(parameter.grad().defined());
      Bytes state;  // what an optimizer made before it failed stays, and is used next time
      for (const auto& [name, tensor] : session.optimizer().state()) state += Bytes(static_cast<std::int64_t>(tensor.nbytes()));
      EXPECT_LE(recorder.live(), state) << "allocation " << number;
    }
  }
  if (!failed) return false;
  session.step(batch);
  EXPECT_TRUE(equal(weights(session), expected)) << "allocation " << number;
  return true;
}

class FailedAllocation : public ::testing::TestWithParam<std::tuple<ModelKind, bool>> {};

TEST_P(FailedAllocation, LeavesTheNextStepRight) {
  train::set_threads(2);
  const auto [kind, techniques] = GetParam();
  const auto job = job_without_randomness(kind);
  plan::Plan plan;
  if (techniques) {
    plan = checkpoint_all(job);
    plan.micro_batch_size = 3;
  }
  const auto batch = data::open(job.data, job.model, job.train.batch_size, job.train.seed)->next();
  train::Session session(job, plan);
  session.step(batch);
  const auto expected = weights(session);
  std::int64_t number = 0;
  while (step_after_failure(job, plan, batch, number, expected)) ++number;
  EXPECT_GT(number, 50);
}

INSTANTIATE_TEST_SUITE_P(All, FailedAllocation,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kMlp), ::testing::Bool()));
}  // namespace
}  // namespace cinch::tests
