#include "cinch/train/internal/run_recording.h"

#include <gtest/gtest.h>

#include "cinch/trace/builder.h"

namespace cinch::train {
namespace {
using trace::Phase;
using trace::TraceBuilder;
using namespace cinch::literals;

/// Weights of 10 B, optimizer state of 20 B from step 1 on; each step takes `step_bytes`. Evaluations (5 B) after every
/// second step and before the first, a save (1 B) after the last.
trace::Trace run_of(std::uint32_t steps, const std::vector<Bytes>& step_bytes = {}) {
  TraceBuilder b(trace::TraceHeader::Source::kRecording);
  const auto passing = [&](Phase phase, std::uint32_t step, Bytes bytes) { b.phase(phase, step).free(b.alloc(bytes)); };
  b.phase(Phase::kInit, 0);
  b.label(b.alloc(10_B), trace::Category::kParameter, "w");
  passing(Phase::kEvaluation, 0, 5_B);
  for (std::uint32_t step = 1; step <= steps; ++step) {
    passing(Phase::kForward, step, step <= step_bytes.size() ? step_bytes[step - 1] : 7_B);
    if (step == 1) b.phase(Phase::kOptimizer, step).alloc(20_B);
    if (step % 2 == 0) passing(Phase::kEvaluation, step, 5_B);
  }
  passing(Phase::kSave, steps, 1_B);
  return b.build();
}

void feed(RunRecording& recording, const trace::Trace& run) { run.replay(recording); }

TEST(RunRecording, KeepsWhatAPredictionHas) {
  RunRecording recording({.last_step = 2, .evaluation_step = 4, .save_step = 9});
  feed(recording, run_of(9));
  const std::vector<trace::PhaseEnd> expected{{0, Phase::kInit, 10_B},      {1, Phase::kForward, 10_B},
                                              {1, Phase::kOptimizer, 30_B}, {2, Phase::kForward, 30_B},
                                              {2, Phase::kEvaluation, 30_B}, {2, Phase::kSave, 30_B}};
  std::vector<trace::PhaseEnd> ends = trace::phase_ends(recording.kept());
  // Marks of phases that are not kept leave no trace either.
  EXPECT_EQ(ends, expected);
  EXPECT_EQ(recording.kept().left_out(), 0u);
  EXPECT_EQ(recording.kept().allocations().size(), 6u);
  EXPECT_EQ(recording.kept().name(recording.kept().allocations()[0].name), "w");
  EXPECT_EQ(recording.peak(), 37_B);
}

TEST(RunRecording, DoesNotGrowWithSteps) {
  RunRecording few({2, 4, 20}), many({2, 4, 2000});
  feed(few, run_of(20));
  feed(many, run_of(2000));
  EXPECT_EQ(few.kept().events().size(), many.kept().events().size());
}

TEST(RunRecording, ThePeakIsOfEverything) {
  RunRecording recording({2, 4, 9});
  feed(recording, run_of(9, {7_B, 7_B, 7_B, 7_B, 7_B, 50_B, 49_B}));
  EXPECT_EQ(recording.peak(), 80_B);
  EXPECT_EQ(recording.peak_event().step, 6u);
  EXPECT_EQ(recording.peak_event().phase, Phase::kForward);
  EXPECT_EQ(trace::Timeline(recording.kept()).peak().bytes, 37_B);
}

TEST(RunRecording, WhatIsFreedLaterIsFreed) {
  TraceBuilder b;
  b.phase(Phase::kForward, 2);
  const auto kept = b.alloc(8_B);
  b.phase(Phase::kForward, 3);
  const auto passed_over = b.alloc(16_B);
  b.free(kept).free(passed_over);
  RunRecording recording({2, kNoStep, kNoStep});
  feed(recording, b.build());
  EXPECT_EQ(recording.kept().allocations().size(), 1u);
  EXPECT_EQ(trace::Timeline(recording.kept()).live(recording.kept().events().size() - 1), 0_B);
  EXPECT_EQ(recording.kept().left_out(), 0u);
}
}  // namespace
}  // namespace cinch::train
