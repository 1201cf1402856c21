#include "cinch/cli/progress.h"

#include <gtest/gtest.h>

#include <limits>

namespace cinch::cli {
namespace {

train::Progress sample() {
  train::Progress progress;
  progress.step = 12;
  progress.steps = 48;
  progress.loss = 2.34567;
  progress.live = Bytes(120 << 20);
  progress.peak = Bytes(412 << 20);
  progress.samples_per_second = 76.12;
  progress.seconds_left = 83;
  return progress;
}

TEST(Progress, SaysWhereItIs) {
  train::Progress progress = sample();
  EXPECT_EQ(words_of(progress), "step 12/48  loss 2.3457  76.1 samples/s  live 120 MiB  peak 412 MiB  1:23 left");
  progress.evaluation = 2.5;
  progress.step = 48;
  EXPECT_EQ(words_of(progress), "step 48/48  loss 2.3457  held out 2.5000  76.1 samples/s  live 120 MiB  peak 412 MiB");
}

TEST(Progress, DrawsABar) {
  train::Progress progress = sample();
  EXPECT_EQ(bar_of(progress, 8), "[##......]");
  progress.step = 48;
  EXPECT_EQ(bar_of(progress, 8), "[########]");
  progress.steps = 0;
  EXPECT_EQ(bar_of(progress, 4), "[....]");
}

TEST(Progress, WritesTimeAsAClock) {
  EXPECT_EQ(clock_of(7), "0:07");
  EXPECT_EQ(clock_of(83), "1:23");
  EXPECT_EQ(clock_of(7384), "2:03:04");
  EXPECT_EQ(clock_of(std::numeric_limits<double>::infinity()), "?");
}

TEST(Progress, OfLinesShowsTheFirstStepEvaluationsAndTheLast) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::kLines);
    train::Progress now = sample();
    for (now.step = 1; now.step <= 4; ++now.step) {
      now.steps = 4;
      now.evaluation = now.step == 3 ? std::optional(2.5) : std::nullopt;
      progress.trained(now);
    }
  }
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find("step 1/4"), std::string::npos);
  EXPECT_EQ(lines.find("step 2/4"), std::string::npos);
  EXPECT_NE(lines.find("step 3/4"), std::string::npos);
  EXPECT_NE(lines.find("step 4/4"), std::string::npos);
  EXPECT_EQ(lines.find('\x1b'), std::string::npos) << "no terminal codes in a file";
}

TEST(Progress, IsSilentWhenAsked) {
  testing::internal::CaptureStderr();
  {
    Progress progress(Progress::Style::kSilent);
    progress.trained(sample());
    progress.planned(3, Bytes(1));
    progress.note("x");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}
}  // namespace
}  // namespace cinch::cli
