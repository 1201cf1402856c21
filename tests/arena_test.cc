// Training in an arena is training: the same weights to the bit, and at most 5 % more memory than is live.
#include "cinch/record/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "tests/jobs.h"

namespace cinch::tests {
namespace {

struct Trained {
  std::map<std::string, at::Tensor> weights;
  std::vector<double> losses;
  record::ArenaStats arena;
  Bytes peak, reserved;
};

std::map<std::string, at::Tensor> weights_of(train::Session& session) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& item : session.model().named_parameters()) weights[item.key()] = item.value().detach().clone();
  for (const auto& item : session.model().named_buffers()) weights[item.key()] = item.value().clone();
  return weights;
}

class Training {
 public:
  Training(const job::Job& job, const plan::Plan& plan, bool in_arena)
      : source_(data::open(job.data, job.model, job.train.batch_size, job.train.seed)),
        recorder_(meter_),
        session_(job, plan) {
    if (in_arena) arena_.emplace();
  }

  void step(std::uint32_t step) {
    std::optional<record::Arena::Step> scope;
    if (arena_) scope.emplace(*arena_, 0);
    trained_.losses.push_back(train::run_step(
                                  session_, [&] { return source_->next(); }, step)
                                  .loss);
  }
  void evaluate(std::uint32_t step) {
    std::optional<record::Arena::Step> scope;
    if (arena_) scope.emplace(*arena_, 1);
    trained_.losses.push_back(train::run_evaluation(
        session_, [&] { return source_->next(); }, 1, step));
  }

  Trained finish() {
    trained_.peak = recorder_.peak();
    trained_.reserved = recorder_.reserved_peak();
    if (arena_) trained_.arena = arena_->stats();
    trained_.weights = weights_of(session_);
    return std::move(trained_);
  }

 private:
  Trained trained_;
  std::unique_ptr<data::Source> source_;
  trace::PeakMeter meter_;
  record::Recorder recorder_;
  train::Session session_;
  std::optional<record::Arena> arena_;
};

void expect_same(const Trained& left, const Trained& right) {
  EXPECT_EQ(left.losses, right.losses);
  ASSERT_EQ(left.weights.size(), right.weights.size());
  for (const auto& [name, tensor] : left.weights) EXPECT_TRUE(at::equal(tensor, right.weights.at(name))) << name;
  EXPECT_EQ(left.peak, right.peak);
}

enum class Technique : std::uint8_t { kNone, kBoth };

plan::Plan plan_of(const job::Job& job, Technique technique) {
  if (technique == Technique::kNone) return {};
  plan::Plan plan = checkpoint_all(job);
  plan.micro_batch_size = job.train.batch_size / 2;
  return plan;
}

class InArena : public ::testing::TestWithParam<std::tuple<ModelKind, Technique>> {};

TEST_P(InArena, TwentyStepsWithEvaluationsGiveTheSameBits) {
  train::set_threads(1);
  const auto [kind, technique] = GetParam();
  const auto job = small_job(kind, kind == ModelKind::kMlp ? 256 : 4);
  const auto plan = plan_of(job, technique);
  const auto train = [&](bool in_arena) {
    Training training(job, plan, in_arena);
    training.evaluate(0);
    for (std::uint32_t step = 1; step <= 20; ++step) {
      training.step(step);
      if (step % 5 == 0) training.evaluate(step);
    }
    return training.finish();
  };
  const auto with = train(true), without = train(false);
  expect_same(with, without);
  EXPECT_GT(with.arena.served, 19 * 20);
  EXPECT_EQ(with.arena.plans, 2);
  EXPECT_EQ(with.arena.missed, 0);
  EXPECT_LE(with.reserved.count() * 100, with.peak.count() * 105);
}

TEST_P(InArena, ShortBatchesAndFailedAllocationsInBetweenGiveTheSameBits) {
  train::set_threads(1);
  const auto [kind, technique] = GetParam();
  const auto job = small_job(kind, kind == ModelKind::kMlp ? 64 : 4);
  const auto plan = plan_of(job, technique);
  const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
  const auto train = [&](bool in_arena) {
    Trained trained;
    std::optional<record::Arena> arena;
    train::Session session(job, plan);
    if (in_arena) arena.emplace();
    source->restore(data::open(job.data, job.model, job.train.batch_size, job.train.seed)->state());
    for (std::uint32_t step = 1; step <= 12; ++step) {
      const auto try_step = [&](std::int64_t fail_at) {
        trace::PeakMeter meter;
        const record::Recorder recorder(meter, {.fail_at = fail_at});
        std::optional<record::Arena::Step> scope;
        if (arena) scope.emplace(*arena);
        const auto next = [&] {
          const auto batch = source->next();
          return step % 5 == 0 ? data::narrow(batch, 0, batch.size() / 2) : batch;
        };
        trained.losses.push_back(train::run_step(session, next, step).loss);
      };
      if (step % 3 == 1) {
        EXPECT_THROW(try_step(10 + 3 * step), record::OutOfMemoryError);
      }
      try_step(-1);
    }
    trained.weights = weights_of(session);
    if (arena) trained.arena = arena->stats();
    return trained;
  };
  const auto with = train(true), without = train(false);
  expect_same(with, without);
  EXPECT_GT(with.arena.served, 0);
  // Half a batch is one micro-batch of two: nothing that was not planned.
  if (technique == Technique::kNone) {
    EXPECT_GT(with.arena.missed, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(All, InArena,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp),
                                            ::testing::Values(Technique::kNone, Technique::kBoth)));
}  // namespace
}  // namespace cinch::tests
