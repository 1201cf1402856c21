#include <gtest/gtest.h>

#include "cinch/trace/builder.h"
#include "cinch/trace/trace.h"

namespace cinch::trace {
namespace {
using namespace literals;

Category category_of(const TraceBuilder& builder, AllocationId id) {
  Trace trace = builder.build();
  classify(trace);
  return trace.allocation(id).category;
}

TEST(Classify, ForwardAliveWhenBackwardBeginsIsActivation) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1);
  const AllocationId kept = b.alloc(1_KiB), scratch = b.alloc(1_KiB);
  b.free(scratch);
  b.phase(Phase::kBackward, 1);
  const AllocationId inside = b.alloc(1_KiB);
  b.free(kept).free(inside);
  EXPECT_EQ(category_of(b, kept), Category::kActivation);
  EXPECT_EQ(category_of(b, scratch), Category::kTemporary);
  EXPECT_EQ(category_of(b, inside), Category::kTemporary);
}

TEST(Classify, FreedByTheFirstEventOfBackwardWasAliveUntilThen) {
  Trace trace;
  const NameTable names;
  trace.on_begin({}, names);
  trace.on_event({.action = Action::kAlloc, .phase = Phase::kForward, .allocation = AllocationId{0}, .bytes = 1_KiB});
  trace.on_event({.action = Action::kFreeCompleted, .phase = Phase::kBackward, .allocation = AllocationId{0}});
  classify(trace);
  EXPECT_EQ(trace.allocation(AllocationId{0}).category, Category::kActivation);
}

TEST(Classify, LabelsComeBeforeLifetimes) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1);
  const AllocationId input = b.alloc(1_KiB);
  b.label(input, Category::kInput, "inputs");
  b.phase(Phase::kBackward, 1);
  const AllocationId gradient = b.alloc(1_KiB);
  b.label(gradient, Category::kGradient, "w.grad");
  EXPECT_EQ(category_of(b, input), Category::kInput);
  EXPECT_EQ(category_of(b, gradient), Category::kGradient);
}

TEST(Classify, EachMicroBatchHasItsOwnBackward) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1);
  const AllocationId first = b.alloc(1_KiB);
  b.phase(Phase::kBackward, 1).free(first);
  b.phase(Phase::kForward, 1);
  const AllocationId scratch = b.alloc(1_KiB);  // Made after the first backward, gone before the second.
  const AllocationId second = b.alloc(1_KiB);
  b.free(scratch);
  b.phase(Phase::kBackward, 1).free(second);
  EXPECT_EQ(category_of(b, first), Category::kActivation);
  EXPECT_EQ(category_of(b, scratch), Category::kTemporary);
  EXPECT_EQ(category_of(b, second), Category::kActivation);
}

TEST(Classify, AnotherStepsBackwardDoesNotCount) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1);
  const AllocationId unused = b.alloc(1_KiB);
  b.phase(Phase::kForward, 2);
  b.alloc(1_KiB);
  b.phase(Phase::kBackward, 2).free(unused);
  EXPECT_EQ(category_of(b, unused), Category::kTemporary);
}

TEST(Classify, ARecomputationsKeptTensorsAreActivations) {
  TraceBuilder b;
  b.phase(Phase::kBackward, 1).recompute(true);
  const AllocationId scratch = b.alloc(1_KiB), kept = b.alloc(1_KiB);
  b.free(scratch).recompute(false);
  b.free(kept);
  EXPECT_EQ(category_of(b, scratch), Category::kTemporary);
  EXPECT_EQ(category_of(b, kept), Category::kActivation);
}

TEST(Classify, EachRecomputationEndsOnItsOwn) {
  TraceBuilder b;
  b.phase(Phase::kBackward, 1).recompute(true);
  const AllocationId first = b.alloc(1_KiB);
  b.recompute(false).free(first).recompute(true);
  const AllocationId second = b.alloc(1_KiB);
  b.free(second);
  const AllocationId never_freed = b.alloc(1_KiB);
  EXPECT_EQ(category_of(b, first), Category::kActivation);
  EXPECT_EQ(category_of(b, second), Category::kTemporary);
  EXPECT_EQ(category_of(b, never_freed), Category::kActivation);
}

TEST(Classify, OtherPhasesMakeTemporaries) {
  for (Phase phase : {Phase::kInit, Phase::kData, Phase::kOptimizer, Phase::kEvaluation, Phase::kSave, Phase::kOther}) {
    TraceBuilder b;
    b.phase(phase, 1);
    const AllocationId made = b.alloc(1_KiB);
    b.phase(Phase::kBackward, 1);
    EXPECT_EQ(category_of(b, made), Category::kTemporary) << name_of(phase);
  }
}

TEST(Classify, TwiceIsAsOnce) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1);
  const AllocationId kept = b.alloc(1_KiB);
  b.phase(Phase::kBackward, 1);
  Trace trace = b.build();
  classify(trace);
  classify(trace);
  EXPECT_EQ(trace.allocation(kept).category, Category::kActivation);
  EXPECT_FALSE(trace.allocation(kept).labelled);
}
}  // namespace
}  // namespace cinch::trace
