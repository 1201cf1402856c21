// fp16 with loss scaling in a job: predicted equals measured, overflows pass by, poison never reaches the weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <filesystem>
#include <limits>

#include "cinch/core/text.h"
#include "cinch/report/summarize.h"
#include "cinch/train/checkpoint.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {
using testing::HasSubstr;

job::Job fp16_job(ModelKind kind, std::int64_t batch_size = 4) {
  auto job = small_job(kind, batch_size);
  job.train.precision = job::Precision::kFp16;
  return job;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

/// As record_run(), from another scale on.
trace::Trace record_run_at(double scale, const job::Job& job, const plan::Plan& plan) {
  trace::Trace trace, until_end;
  {
    const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
    const record::Recorder recorder(trace);
    const auto session = [&] {
      const trace::PhaseScope init(trace::Phase::kInit, 0);
      return std::make_unique<train::Session>(job, plan);
    }();
    session->grad_scaler()->load_state({scale, 0});
    for (std::uint32_t step = 1; step <= 2; ++step) {
      train::run_step(
          *session, [&] { return source->next(); }, step);
      EXPECT_EQ(session->grad_scaler()->state().clean_updates, step) << "another scale, please";
    }
    train::run_evaluation(
        *session, [&] { return source->next(); }, 1, 2);
    until_end = trace;
  }
  trace::classify(until_end);
  return until_end;
}

class Fp16Prediction : public ::testing::TestWithParam<std::tuple<ModelKind, bool>> {};

TEST_P(Fp16Prediction, EqualsTheRecording) {
  const auto [kind, checkpointed] = GetParam();
  train::set_threads(1);
  const auto job = fp16_job(kind);
  auto plan = checkpointed ? checkpoint_all(job) : plan::Plan{};
  if (checkpointed && !job::has_batch_norm(job.model)) plan.micro_batch_size = 3;
  const auto predicted = train::simulator(job, device::find("cpu"))(plan), recorded = record_run_at(64, job, plan);
  EXPECT_EQ(trace::compare_phase_ends(predicted, recorded).value_or("no difference"), "no difference");
  const auto left = report::summarize_peak(predicted), right = report::summarize_peak(recorded);
  EXPECT_EQ(left.requested, right.requested);
  EXPECT_EQ(left.module, right.module);
  for (int c = 0; c < trace::kCategoryCount; ++c) {
    const auto category = static_cast<trace::Category>(c);
    EXPECT_EQ(left.categories[category], right.categories[category]) << trace::name_of(category);
  }
}

// Not the LSTM: oneDNN has its fp16 on some processors alone.
INSTANTIATE_TEST_SUITE_P(Models, Fp16Prediction,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp,
                                                              ModelKind::kBertMasked, ModelKind::kBertClassifier,
                                                              ModelKind::kVit, ModelKind::kLlama, ModelKind::kUnet,
                                                              ModelKind::kLstm),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return name_of(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "Checkpointed" : "Plain");
                         });

/// The first steps of this model overflow at the scale that training begins with.
TEST(Fp16, StepsThatAreLeftOutTakeNoMoreThanPredicted) {
  train::set_threads(1);
  const auto job = fp16_job(ModelKind::kResNet18);
  const auto predicted = train::simulator(job, device::find("cpu"))({}), recorded = record_run(job, {});
  EXPECT_LT(trace::Timeline(recorded).peak().bytes, trace::Timeline(predicted).peak().bytes);
}

// ---- values ---------------------------------------------------------------------------------------------------------

std::vector<at::Tensor> copies(const std::map<std::string, at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const auto& [name, tensor] : tensors) all.push_back(tensor.detach().clone());
  return all;
}

/// Weights, buffers and optimizer state.
std::vector<at::Tensor> everything(train::Session& session) {
  auto all = copies(train::weights_of(session.model()));
  for (auto& tensor : copies(session.optimizer().state())) all.push_back(std::move(tensor));
  return all;
}

bool equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
}

data::Batch batch_of(const job::Job& job) {
  return data::open(job.data, job.model, job.train.batch_size, job.train.seed)->next();
}

void set_scale(train::Session& session, double scale) { session.grad_scaler()->load_state({scale, 0}); }

/// One that no gradient of these models survives.
constexpr double kTooLarge = 0x1p120;

TEST(Fp16, LearnsAsFloat32Does) {
  auto job = fp16_job(ModelKind::kMlp, 8);
  job.train.steps = 30;
  const auto batch = batch_of(job);
  const auto losses = [&](job::Precision precision) {
    job.train.precision = precision;
    train::Session session(job, {});
    const auto first = session.step(batch).loss.item<double>();
    for (int i = 1; i < 29; ++i) session.step(batch);
    return std::pair(first, session.step(batch).loss.item<double>());
  };
  const auto single = losses(job::Precision::kFp32), half = losses(job::Precision::kFp16);
  EXPECT_LT(half.second, 0.5 * half.first);
  EXPECT_NEAR(half.second, single.second, 0.05 * single.first);
}

TEST(Fp16, AnOverflowAtAnyStepIsPassedBy) {
  auto job = fp16_job(ModelKind::kMlp, 6);
  job.train.steps = 6;
  const auto batch = batch_of(job);
  plan::Plan plan;
  plan.micro_batch_size = 4;
  for (int bad = 0; bad < 5; ++bad) {
    train::Session session(job, plan);
    for (int step = 0; step < 5; ++step) {
      if (step == bad) set_scale(session, kTooLarge);
      const auto before = everything(session);
      const auto report = session.step(batch);
      EXPECT_EQ(equal(before, everything(session)), step == bad) << bad << " " << step;
      EXPECT_EQ(report.grad_norm.defined(), step != bad);
      EXPECT_TRUE(std::isfinite(report.loss.item<double>()));
      if (step == bad) {
        EXPECT_EQ(session.grad_scaler()->scale(), kTooLarge / 2);
        set_scale(session, 65536);
      }
    }
    EXPECT_EQ(session.steps_done(), 5);
    EXPECT_FALSE(session.model().parameters().front().grad().defined());
  }
}

TEST(Fp16, AnyDivisionOfTheBatchGivesTheSameGradient) {
  auto job = fp16_job(ModelKind::kMlp, 8);
  std::get<job::MlpConfig>(job.model).dropout = 0;
  job.train.optimizer = {.kind = job::OptimizerKind::kSgd};
  job.train.learning_rate = 1;
  job.train.max_grad_norm.reset();
  const auto batch = batch_of(job);
  const auto weights_after = [&](std::int64_t micro_batch) {
    plan::Plan plan;
    plan.micro_batch_size = micro_batch;
    train::Session session(job, plan);
    const auto before = everything(session);
    session.step(batch);
    auto steps = everything(session);
    for (std::size_t i = 0; i < steps.size(); ++i) steps[i] -= before[i];
    return steps;
  };
  const auto whole = weights_after(8);
  for (const std::int64_t micro_batch : {1, 3, 4}) {  // 3: the last one is short
    const auto parts = weights_after(micro_batch);
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_LT((parts[i] - whole[i]).norm().item<double>(), 2e-3 * whole[i].norm().item<double>()) << micro_batch;
  }
}

TEST(Fp16, TheScaleFallsUntilGradientsFit) {
  const auto job = fp16_job(ModelKind::kMlp);
  const auto batch = batch_of(job);
  train::Session session(job, {});
  set_scale(session, 0x1p60);
  int skipped = 0;
  for (; skipped < 60 && !session.step(batch).grad_norm.defined(); ++skipped) {
  }
  EXPECT_GT(skipped, 10);
  EXPECT_LT(skipped, 60);
  EXPECT_GE(session.grad_scaler()->scale(), 1024) << "nor further than it must";
}

TEST(Fp16, APoisonedBatchNeverReachesTheWeights) {
  const auto job = fp16_job(ModelKind::kMlp);
  const auto good = batch_of(job);
  auto bad = good;
  bad.inputs = good.inputs.clone();
  bad.inputs.view({-1})[3] = std::numeric_limits<float>::quiet_NaN();
  train::Session session(job, {});
  session.step(good);
  const auto before = everything(session);
  EXPECT_TRUE(std::isnan(session.step(bad).loss.item<double>())) << "and is seen";
  EXPECT_TRUE(equal(before, everything(session)));
  session.step(good);
  for (const auto& tensor : everything(session)) EXPECT_TRUE(at::isfinite(tensor).all().item<bool>());
}

TEST(Fp16, ALossThatStaysNanIsAnErrorThatSaysSo) {
  const auto job = fp16_job(ModelKind::kMlp);
  auto batch = batch_of(job);
  batch.inputs = at::full_like(batch.inputs, std::numeric_limits<float>::quiet_NaN());
  train::Session session(job, {});
  const auto before = everything(session);
  std::string error;
  for (int i = 0; i < 40 && error.empty(); ++i) {
    try {
      session.step(batch);
    } catch (const Error& caught) {
      error = caught.what();
    }
  }
  EXPECT_THAT(error, HasSubstr("fallen to its floor"));
  EXPECT_TRUE(equal(before, everything(session)));
}

TEST(Fp16, AStepThatFailsCanBeTakenAgain) {
  const auto job = fp16_job(ModelKind::kMlp);
  const auto batch = batch_of(job);
  train::Session straight(job, {});
  straight.step(batch);
  straight.step(batch);
  const auto wanted = everything(straight);
  for (const std::int64_t fail_at : {5, 40, 80, 100, 110, 120}) {
    train::Session session(job, {});
    session.step(batch);
    auto generator = at::globalContext().defaultGenerator(at::kCPU);
    const auto random = generator.get_state();
    const auto before = everything(session);
    bool failed = false;
    {
      trace::Trace trace;
      const record::Recorder recorder(trace, {.fail_at = fail_at});
      try {
        session.step(batch);
      } catch (const record::OutOfMemoryError&) {
        failed = true;
      }
    }
    if (failed) {
      EXPECT_TRUE(equal(before, everything(session))) << fail_at;
      generator.set_state(random);
      session.step(batch);
    }
    EXPECT_TRUE(equal(wanted, everything(session))) << fail_at;
  }
}

TEST(Fp16, GoesOnFromACheckpointWithItsScale) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "cinch_fp16_resume";
  std::filesystem::remove_all(folder);
  auto job = fp16_job(ModelKind::kMlp);
  job.train.steps = 6;
  const auto batch = batch_of(job);
  std::vector<at::Tensor> wanted;
  optim::GradScalerState scaler;
  {
    train::Session session(job, {});
    set_scale(session, 0x1p100);
    for (int i = 0; i < 3; ++i) session.step(batch);
    set_scale(session, 1024);
    session.step(batch);
    train::save_checkpoint(folder, session, at::globalContext().defaultGenerator(at::kCPU).get_state(),
                           {.step = 4, .seed = 7});
    for (int i = 0; i < 2; ++i) session.step(batch);
    wanted = everything(session);
    scaler = session.grad_scaler()->state();
  }
  train::Session session(job, {});
  const auto state = train::load_checkpoint(folder / "checkpoints/step-4", session);
  EXPECT_EQ(state.grad_scaler, (optim::GradScalerState{1024, 1}));
  for (int i = 0; i < 2; ++i) session.step(batch);
  EXPECT_TRUE(equal(wanted, everything(session)));
  EXPECT_EQ(session.grad_scaler()->state(), scaler);

  const auto file = folder / "checkpoints/step-4/state.json";
  auto text = read_file(file);
  text.replace(text.find("1024.0"), 6, "-1.0");
  write_file(file, text);
  EXPECT_THROW(train::load_checkpoint(folder / "checkpoints/step-4", session), DataError);
  EXPECT_TRUE(equal(wanted, everything(session))) << "untouched";
}

TEST(Fp16, OtherPrecisionsHaveNoScaler) {
  const auto job = small_job(ModelKind::kMlp, 4);
  EXPECT_EQ(train::Session(job, {}).grad_scaler(), nullptr);
}
}  // namespace
}  // namespace cinch::tests
