#include "cinch/report/summarize.h"

#include <gtest/gtest.h>

#include <set>

#include "cinch/trace/builder.h"

namespace cinch::report {
namespace {

using namespace cinch::literals;
using trace::Category;
using trace::Phase;
using trace::TraceBuilder;

/// A parameter of 100 B; each step a forward of three activations of 10 B and a backward whose temporary of 7 B is the
/// peak: 137 B in each step.
trace::Trace small_trace(std::uint32_t steps) {
  TraceBuilder b;
  b.phase(Phase::kInit, 0);
  b.label(b.alloc(100_B), Category::kParameter, "weight");
  for (std::uint32_t step = 1; step <= steps; ++step) {
    b.phase(Phase::kForward, step).module("blocks.0");
    b.op("aten::relu");
    const auto first = b.alloc(10_B), second = b.alloc(10_B), third = b.alloc(10_B);
    b.phase(Phase::kBackward, step).module("blocks.0");
    b.op("aten::threshold_backward");
    b.free(b.alloc(7_B));
    b.free(first).free(second).free(third);
  }
  trace::Trace trace = b.build();
  classify(trace);
  return trace;
}

TEST(SummarizePeak, SaysWhenWhereAndOfWhat) {
  const PeakSummary peak = summarize_peak(small_trace(2));
  EXPECT_EQ(peak.requested, 137_B);
  EXPECT_EQ(peak.step, 1u);  // The first of equals.
  EXPECT_EQ(peak.phase, Phase::kBackward);
  EXPECT_EQ(peak.module, "blocks.0");
  EXPECT_EQ(peak.op, "aten::threshold_backward");
  EXPECT_EQ(peak.categories[Category::kParameter], 100_B);
  EXPECT_EQ(peak.categories[Category::kActivation], 30_B);
  EXPECT_EQ(peak.categories[Category::kTemporary], 7_B);
  EXPECT_EQ(peak.categories.sum(), peak.requested);
}

TEST(SummarizePeak, GivesThePeakOfEachStepInitializationBeingStepZero) {
  const std::vector<std::pair<std::uint32_t, Bytes>> expected{{0, 100_B}, {1, 137_B}, {2, 137_B}};
  EXPECT_EQ(summarize_peak(small_trace(2)).steps, expected);
}

TEST(SummarizePeak, KeepsAsManyTensorsAsAskedLargestFirst) {
  const auto tensors = summarize_peak(small_trace(1), 2).tensors;
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].bytes, 100_B);
  EXPECT_EQ(tensors[0].name, "weight");
  EXPECT_EQ(tensors[1].bytes, 10_B);
}

TEST(SummarizePeak, OfAnEmptyTraceIsNothing) {
  const PeakSummary peak = summarize_peak(trace::Trace());
  EXPECT_EQ(peak.requested, 0_B);
  EXPECT_TRUE(peak.steps.empty());
  EXPECT_TRUE(peak.tensors.empty());
}

TEST(Thin, KeepsEveryEventWhileThereIsRoom) {
  const trace::Trace trace = small_trace(1);
  const Curve curve = thin(trace);
  ASSERT_EQ(curve.points.size(), trace.events().size());
  const trace::Timeline timeline(trace);
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    EXPECT_EQ(curve.points[i].event, i);
    EXPECT_EQ(curve.points[i].live, timeline.live_by_category(i));
  }
}

TEST(Thin, KeepsThePeakAndEveryPhaseInFewPoints) {
  const trace::Trace trace = small_trace(20);  // 41 phases.
  const Curve curve = thin(trace, 90);
  EXPECT_LE(curve.points.size(), 90u);
  EXPECT_EQ(curve.peak, 137_B);
  Bytes highest;
  std::set<std::pair<std::uint32_t, Phase>> phases;
  for (const auto& point : curve.points) {
    highest = std::max(highest, point.live.sum());
    phases.insert({point.step, point.phase});
  }
  EXPECT_EQ(highest, curve.peak);
  EXPECT_EQ(phases.size(), 41u);
}

TEST(Thin, NeverExceedsTheNumberOfPointsWhateverItIs) {
  const trace::Trace trace = small_trace(20);
  for (std::size_t points = 0; points < 250; ++points) {
    const Curve curve = thin(trace, points);
    EXPECT_LE(curve.points.size(), points);
    if (points == 0) continue;
    Bytes highest;
    for (const auto& point : curve.points) highest = std::max(highest, point.live.sum());
    EXPECT_EQ(highest, 137_B) << points << " points";
  }
}
}  // namespace
}  // namespace cinch::report
