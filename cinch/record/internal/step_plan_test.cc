#include "cinch/record/internal/step_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cinch::record::internal {
namespace {

/// a, b, c live one after the other in pairs; `kept` outlives the step.
StepRecord pairs() {
  StepRecord step;
  const auto a = step.made(1000), b = step.made(2000);
  step.freed(a);
  step.made(500);  // kept
  const auto c = step.made(1000);
  step.freed(b);
  step.freed(c);
  return step;
}

TEST(StepRecord, StepsThatDoTheSameAreEqual) {
  EXPECT_EQ(pairs(), pairs());
  auto other = pairs();
  other.made(1);
  EXPECT_NE(other, pairs());
  other.clear();
  EXPECT_EQ(other, StepRecord());
}

TEST(StepPlan, WhatIsNeverLiveTogetherSharesBytes) {
  StepPlan plan(pairs());
  EXPECT_EQ(plan.load(), Bytes(3000));
  EXPECT_EQ(plan.height(), block_size(1000) + block_size(2000));
  const auto a = plan.next(1000), b = plan.next(2000), kept = plan.next(500), c = plan.next(1000);
  EXPECT_EQ(a.offset, c.offset);
  EXPECT_NE(a.offset, b.offset);
  EXPECT_TRUE(kept.known);
  EXPECT_FALSE(kept.offset);
  EXPECT_FALSE(plan.next(1000).known);
  plan.rewind();
  EXPECT_EQ(plan.next(1000).offset, a.offset);
}

TEST(StepPlan, PlacesAreForDataOnABoundary) {
  StepPlan plan(pairs());
  for (const std::size_t bytes : {1000, 2000}) EXPECT_EQ(*plan.next(bytes).offset % kAlignment, 0u);
}

TEST(StepPlan, WhatTheFirstStepMadeToKeepNeedNotComeAgain) {
  StepRecord first;
  const auto a = first.made(1000);
  for (int i = 0; i < 100; ++i) first.made(700);
  const auto b = first.made(800);
  first.freed(a);
  first.freed(b);
  StepPlan plan(first);
  EXPECT_TRUE(plan.next(1000).offset);
  EXPECT_TRUE(plan.next(800).offset);
}

TEST(StepPlan, SkipsAFewRequestsThatDoNotComeAndIgnoresThoseItDoesNotKnow) {
  StepRecord step;
  for (std::size_t bytes = 1; bytes <= 100; ++bytes) step.freed(step.made(bytes));
  StepPlan plan(step);
  EXPECT_TRUE(plan.next(1).offset);
  EXPECT_FALSE(plan.next(5000).known);
  EXPECT_TRUE(plan.next(10).offset);
  EXPECT_FALSE(plan.next(2).known) << "it has been passed over";
  EXPECT_FALSE(plan.next(60).known) << "too far";
  EXPECT_TRUE(plan.next(11).offset);
}
}  // namespace
}  // namespace cinch::record::internal
