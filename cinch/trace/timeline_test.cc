#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/trace/builder.h"
#include "cinch/trace/trace.h"

namespace cinch::trace {

void PrintTo(const PhaseEnd& end, std::ostream* out) {
  *out << name_of(end.phase) << " of step " << end.step << ": " << end.live.count() << " B";
}

namespace {
using namespace literals;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(Timeline, FollowsLiveBytes) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1);
  const AllocationId a = b.alloc(100_B);
  b.alloc(20_B);
  b.free(a);
  b.oom(1_GiB);
  const Trace trace = b.build();
  const Timeline timeline(trace);
  EXPECT_EQ(timeline.live(0), 0_B);
  EXPECT_EQ(timeline.live(1), 100_B);
  EXPECT_EQ(timeline.live(2), 120_B);
  EXPECT_EQ(timeline.live(3), 20_B);
  EXPECT_EQ(timeline.live(4), 20_B);
}

TEST(Timeline, PeakSaysWhereItWas) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1).module("head");
  const OpId op = b.op("aten::mm");
  const AllocationId a = b.alloc(100_B);
  b.phase(Phase::kBackward, 1).free(a).alloc(100_B);  // As high again: the first counts.
  const Trace trace = b.build();
  const Timeline::Peak peak = Timeline(trace).peak();
  EXPECT_EQ(peak.bytes, 100_B);
  EXPECT_EQ(peak.event, 1u);
  EXPECT_EQ(peak.step, 1u);
  EXPECT_EQ(peak.phase, Phase::kForward);
  EXPECT_EQ(trace.name(peak.module), "head");
  EXPECT_EQ(peak.op, op);
}

TEST(Timeline, AStepsPeakIncludesWhatWasThereBefore) {
  TraceBuilder b;
  b.phase(Phase::kInit, 0);
  b.alloc(100_B);
  const AllocationId scratch = b.alloc(500_B);
  b.free(scratch);
  b.phase(Phase::kForward, 1);
  const AllocationId h = b.alloc(10_B);
  b.free(h);
  b.phase(Phase::kForward, 2);
  b.alloc(20_B);
  const Trace trace = b.build();
  const Timeline timeline(trace);
  EXPECT_EQ(timeline.peak().bytes, 600_B);
  EXPECT_EQ(timeline.peak(0).bytes, 600_B);
  EXPECT_EQ(timeline.peak(1).bytes, 110_B);
  EXPECT_EQ(timeline.peak(1).event, 5u);
  EXPECT_EQ(timeline.peak(2).bytes, 120_B);
  EXPECT_EQ(timeline.peak(3).bytes, 0_B);
  EXPECT_EQ(timeline.peak(3).step, 3u);
}

TEST(Timeline, LiveAllocationsAreLargestFirst) {
  TraceBuilder b;
  const AllocationId small = b.alloc(1_B), large = b.alloc(3_B), same = b.alloc(1_B), gone = b.alloc(9_B);
  b.free(gone);
  const Trace trace = b.build();
  const Timeline timeline(trace);
  EXPECT_THAT(timeline.live_allocations(0), ElementsAre(small));
  EXPECT_THAT(timeline.live_allocations(3), ElementsAre(gone, large, small, same));
  EXPECT_THAT(timeline.live_allocations(4), ElementsAre(large, small, same));
}

TEST(Timeline, CategoriesSumToLiveAtEveryEvent) {
  TraceBuilder b;
  b.phase(Phase::kInit, 0);
  const AllocationId w = b.alloc(40_B);
  b.label(w, Category::kParameter, "w");
  b.phase(Phase::kForward, 1);
  const AllocationId h = b.alloc(7_B), scratch = b.alloc(5_B);
  b.free(scratch);
  b.phase(Phase::kBackward, 1);
  b.alloc(40_B);
  b.free(h);
  Trace trace = b.build();
  const Timeline before(trace);
  EXPECT_EQ(before.live_by_category(4)[Category::kUnknown], 12_B);  // Not classified yet.
  classify(trace);
  const Timeline timeline(trace);
  EXPECT_EQ(timeline.live_by_category(4)[Category::kParameter], 40_B);
  EXPECT_EQ(timeline.live_by_category(4)[Category::kActivation], 7_B);
  EXPECT_EQ(timeline.live_by_category(4)[Category::kTemporary], 5_B);
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    EXPECT_EQ(timeline.live_by_category(i).sum(), timeline.live(i)) << i;
  }
}

TEST(Timeline, AnEmptyTraceHasAPeakOfNothing) {
  const Trace trace;
  const Timeline timeline(trace);
  EXPECT_EQ(timeline.peak().bytes, 0_B);
  EXPECT_EQ(timeline.peak().event, 0u);
  EXPECT_EQ(timeline.live(0), 0_B);
  EXPECT_THAT(timeline.live_allocations(0), IsEmpty());
  EXPECT_EQ(timeline.live_by_category(0).sum(), 0_B);
  EXPECT_THAT(phase_ends(trace), IsEmpty());
}

TEST(PhaseEnds, OneForEachRunOfEqualStepAndPhase) {
  TraceBuilder b;
  b.phase(Phase::kInit, 0);
  b.alloc(100_B);
  b.phase(Phase::kForward, 1);
  const AllocationId h = b.alloc(10_B);
  b.recompute(true).alloc(1_B);  // Not a phase.
  b.phase(Phase::kForward, 1);   // Nor is a second mark of the same.
  b.phase(Phase::kBackward, 1).free(h);
  b.phase(Phase::kForward, 1);
  b.phase(Phase::kForward, 2);
  b.alloc(5_B);
  EXPECT_THAT(phase_ends(b.build()),
              ElementsAre(PhaseEnd{0, Phase::kInit, 100_B}, PhaseEnd{1, Phase::kForward, 111_B},
                          PhaseEnd{1, Phase::kBackward, 101_B}, PhaseEnd{1, Phase::kForward, 101_B},
                          PhaseEnd{2, Phase::kForward, 106_B}));
}
}  // namespace
}  // namespace cinch::trace
