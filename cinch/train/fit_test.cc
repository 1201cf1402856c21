#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>

#include <nlohmann/json.hpp>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/record/recorder.h"
#include "cinch/train/checkpoint.h"
#include "cinch/train/internal/jobs_for_test.h"
#include "cinch/train/run_folder.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::int64_t> steps_of(const std::vector<report::FitSummary::StepLoss>& losses) {
  std::vector<std::int64_t> steps;
  steps.reserve(losses.size());
  for (const auto& entry : losses) steps.push_back(entry.step);
  return steps;
}
std::vector<nlohmann::json> log_of(const fs::path& run) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(run / "log.jsonl");
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}
/// All that the next step depends on.
std::string state_of(const fs::path& run, std::int64_t step) {
  const fs::path folder = run / "checkpoints" / ("step-" + std::to_string(step));
  std::string all;
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "generator.safetensors"}) {
    all += bytes_of(folder / name);
  }
  return all + read_checkpoint_state(folder).data_position;
}
/// Trains until step `step` is done, then stops as a signal would.
report::FitSummary fit_until(const job::Job& job, std::int64_t step, bool resume = false) {
  std::stop_source stop;
  return fit(job, {},
             {.resume = resume,
              .on_progress = [&](const Progress& progress) { if (progress.step == step) stop.request_stop(); },
              .stop = stop.get_token()});
}
plan::Plan micro_batched(std::int64_t size) {
  plan::Plan plan;
  plan.micro_batch_size = size;
  return plan;
}
template <class Exception>
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Exception& error) {
    return error.what() + std::string("|") + error.hint();
  }
  return "accepted";
}

TEST(Fit, PredictsWhatItMeasures) {
  const TestFolder folder;
  for (job::Job job : {small_mlp(folder / "mlp"), small_gpt(folder, folder / "gpt")}) {
    job.train.evaluate_every = 3;
    const report::FitSummary summary = fit(job, {});
    EXPECT_EQ(summary.divergence, std::nullopt);
    EXPECT_GT(summary.measured.requested.count(), 0);
    EXPECT_EQ(summary.measured.requested, summary.predicted.requested);
    EXPECT_EQ(summary.measured.categories.sum(), summary.measured.requested);
    EXPECT_EQ(summary.measured.categories, summary.predicted.categories);
    EXPECT_EQ(summary.measured.steps, summary.predicted.steps);
    EXPECT_EQ(summary.measured_curve.peak, summary.measured.requested);
    EXPECT_THAT(steps_of(summary.steps), ElementsAre(1, 2, 3, 4, 5, 6));
    EXPECT_THAT(steps_of(summary.evaluations), ElementsAre(0, 3, 6));
    EXPECT_GT(summary.samples_per_second, 0);
    EXPECT_GE(summary.step_seconds.max, summary.step_seconds.p50);
    EXPECT_FALSE(summary.interrupted);
    EXPECT_EQ(summary.environment.threads, 1);
  }
}

TEST(Fit, AMicroBatchedPlanIsPredictedToo) {
  const TestFolder folder;
  const report::FitSummary summary = fit(small_gpt(folder, folder / "run"), micro_batched(3));
  EXPECT_EQ(summary.divergence, std::nullopt);
  EXPECT_EQ(summary.measured.requested, summary.predicted.requested);
}

TEST(Fit, LearnsAndWrites) {
  const TestFolder folder;
  job::Job job = small_gpt(folder, folder / "run");
  job.train.steps = 60;
  const report::FitSummary summary = fit(job, {});
  EXPECT_LT(summary.evaluations.back().loss, summary.evaluations.front().loss - 0.5);
  EXPECT_FALSE(summary.sample.empty());
}

TEST(Fit, FillsItsFolder) {
  const TestFolder folder;
  const fs::path run = folder / "deep" / "run";
  const job::Job job = small_mlp(run);
  fit(job, micro_batched(2));
  EXPECT_EQ(job::to_toml(job::load(run / "job.toml")), job::to_toml(job));
  EXPECT_EQ(plan::load_plan(run / "plan.toml").micro_batch_size, 2);
  EXPECT_TRUE(fs::exists(run / "checkpoints" / "step-4"));
  EXPECT_TRUE(fs::exists(run / "checkpoints" / "step-6"));
  const auto lines = log_of(run);
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[0].size(), 2u);
  for (const char* key : {"step", "loss", "learning_rate", "seconds", "live_bytes", "peak_bytes", "evaluation"}) {
    EXPECT_TRUE(lines[6].contains(key)) << key;
  }
  EXPECT_FALSE(lines[3].contains("evaluation"));
}

TEST(Fit, WritesNothingWithoutAFolder) {
  const TestFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder / "");
  EXPECT_EQ(fit(small_mlp(), {}).steps.size(), 6u);
  fs::current_path(before);
  EXPECT_TRUE(fs::is_empty(folder / ""));
}

TEST(Fit, ResumesBitForBitFromAnyStep) {
  const TestFolder folder;
  for (int kind = 0; kind < 2; ++kind) {
    const auto job_in = [&](const std::string& run) {
      return kind == 0 ? small_mlp(folder / run) : small_gpt(folder, folder / run);
    };
    const std::string suffix = std::to_string(kind);
    fit(job_in("straight" + suffix), {});
    const std::string expected = state_of(folder / ("straight" + suffix), 6);
    for (std::int64_t stop = 1; stop < 6; ++stop) {
      const std::string run = "stopped" + suffix + std::to_string(stop);
      const report::FitSummary first = fit_until(job_in(run), stop);
      EXPECT_TRUE(first.interrupted);
      EXPECT_EQ(first.divergence, std::nullopt);
      const report::FitSummary second = fit(job_in(run), {}, {.resume = true});
      EXPECT_EQ(second.resumed_at, stop);
      EXPECT_FALSE(second.interrupted);
      EXPECT_THAT(steps_of(second.steps), ElementsAre(1, 2, 3, 4, 5, 6));
      EXPECT_EQ(state_of(folder / run, 6), expected) << stop;
      EXPECT_LE(second.measured.requested, second.predicted.requested);
    }
  }
}

TEST(Fit, AResumedLogHasEachStepOnce) {
  const TestFolder folder;
  const fs::path run = folder / "run";
  fit_until(small_mlp(run), 3);
  std::ofstream(run / "log.jsonl", std::ios::app) << "{\"step\":4,\"loss\":1.0}\n{\"step\":5,\"lo";  // Killed after a save.
  fit(small_mlp(run), {}, {.resume = true});
  const auto lines = log_of(run);
  ASSERT_EQ(lines.size(), 7u);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_EQ(lines[i]["step"], i);
  EXPECT_TRUE(lines[4].contains("learning_rate"));
}

TEST(Fit, EvaluatingChangesNothing) {
  const TestFolder folder;
  job::Job often = small_gpt(folder, folder / "often"), never = small_gpt(folder, folder / "never");
  often.train.evaluate_every = 1;
  fit(often, {});
  std::get<job::TextData>(never.data).path = {(folder / "corpus.txt").string()};
  fit(never, {});
  EXPECT_EQ(state_of(folder / "often", 6), state_of(folder / "never", 6));
}

TEST(Fit, ANumberThatIsNotFiniteStopsAndNamesTheStep) {
  const TestFolder folder;
  job::Job job = small_mlp(folder / "run");
  job.train.optimizer.kind = job::OptimizerKind::kSgd;
  job.train.learning_rate = 1e30;
  const std::string what = refusal<Error>([&] { fit(job, {}); });
  EXPECT_THAT(what, HasSubstr("step 2"));
  EXPECT_THAT(what, HasSubstr("not finite"));
  EXPECT_THAT(what, HasSubstr("learning_rate"));
  EXPECT_EQ(newest_checkpoint(folder / "run"), std::nullopt);
  job.train.learning_rate = 1e-2;
  EXPECT_EQ(fit(job, {}).steps.size(), 6u);  // Nothing of it stayed.
}

TEST(Fit, ACapOfThePredictedPeakRunsAndAByteLessDoesNot) {
  const TestFolder folder;
  const Bytes peak = fit(small_gpt(folder, folder / "free"), {}).predicted.requested;
  EXPECT_THROW(fit(small_gpt(folder, folder / "capped"), {}, {.cap = peak - Bytes(1)}), record::OutOfMemoryError);
  const report::FitSummary summary = fit(small_gpt(folder, folder / "capped"), {}, {.cap = peak});
  EXPECT_EQ(summary.measured.requested, peak);
  EXPECT_EQ(summary.budget, peak);
  EXPECT_EQ(state_of(folder / "capped", 6), state_of(folder / "free", 6));
}

TEST(Fit, ResumingFitsUnderTheSameCap) {
  const TestFolder folder;
  const Bytes peak = fit_until(small_gpt(folder, folder / "run"), 3).predicted.requested;
  EXPECT_EQ(fit(small_gpt(folder, folder / "run"), {}, {.cap = peak, .resume = true}).resumed_at, 3);
}

TEST(Fit, FoldersAreNotMixedUp) {
  const TestFolder folder;
  const fs::path run = folder / "run";
  EXPECT_THAT(refusal<UsageError>([&] { fit(small_mlp(), {}, {.resume = true}); }), HasSubstr("run_dir"));
  EXPECT_THAT(refusal<UsageError>([&] { fit(small_mlp(run), {}, {.resume = true}); }), HasSubstr("no checkpoint"));
  {
    const RunLock lock(run);
    EXPECT_THAT(refusal<UsageError>([&] { fit(small_mlp(run), {}); }), HasSubstr("another training"));
  }
  fit(small_mlp(run), {});
  const std::string saved = state_of(run, 6);
  EXPECT_THAT(refusal<UsageError>([&] { fit(small_mlp(run), {}); }), HasSubstr("--resume"));
  job::Job other = small_mlp(run);
  other.train.seed = 4;
  other.train.steps = 8;
  EXPECT_THAT(refusal<DataError>([&] { fit(other, {}, {.resume = true}); }), HasSubstr("seed"));
  EXPECT_EQ(state_of(run, 6), saved);
}

TEST(Fit, ATrainingThatIsDoneIsLeftAsItIs) {
  const TestFolder folder;
  const fs::path run = folder / "run";
  job::Job job = small_mlp(run);
  fit(job, {});
  const std::string saved = state_of(run, 6), log = bytes_of(run / "log.jsonl"), kept = bytes_of(run / "job.toml");
  for (const std::int64_t steps : {6, 4}) {
    job.train.steps = steps;
    EXPECT_EQ(check_run_dir(job, true), 6);
    const auto summary = fit(job, micro_batched(2), {.resume = true});
    EXPECT_EQ(summary.resumed_at, 6);
    EXPECT_EQ(summary.already_done, steps);
    EXPECT_TRUE(summary.steps.empty());
    EXPECT_EQ(state_of(run, 6), saved);
    EXPECT_EQ(bytes_of(run / "log.jsonl"), log);
    EXPECT_EQ(bytes_of(run / "job.toml"), kept);
  }
  job.train.steps = 7;
  EXPECT_EQ(fit(job, {}, {.resume = true}).already_done, std::nullopt);
  EXPECT_TRUE(fs::exists(run / "checkpoints" / "step-7"));
}

TEST(Fit, AnUnwritableFolderIsAnIoError) {
  const TestFolder folder;
  std::ofstream(folder / "file") << "x";
  EXPECT_THROW(fit(small_mlp(folder / "file"), {}), IoError);
}

TEST(Fit, MemoryDoesNotGrowWithSteps) {
  job::Job job = small_mlp();
  const report::FitSummary few = fit(job, {});
  job.train.steps = 200;
  const report::FitSummary many = fit(job, {});
  EXPECT_EQ(many.measured.requested, few.measured.requested);
  EXPECT_EQ(many.measured_curve.points.size(), few.measured_curve.points.size());
}

TEST(Calibrate, FindsRisingSizesAndLeavesTheGeneratorAlone) {
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state();
  const plan::Calibration calibration = calibrate();
  EXPECT_TRUE(at::equal(before, at::detail::getDefaultCPUGenerator().get_state()));
  for (const auto& points : {calibration.matrix, calibration.elementwise}) {
    ASSERT_GE(points.size(), 4u);
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_GT(points[i].per_second, 0);
      if (i > 0) {
        EXPECT_GT(points[i].size, points[i - 1].size);
      }
    }
  }
}
}  // namespace
}  // namespace cinch::train
