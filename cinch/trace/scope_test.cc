#include "cinch/trace/scope.h"

#include <gtest/gtest.h>

#include <thread>

namespace cinch::trace {
namespace {

TEST(Scope, OutsideAnyThereIsNoModuleAndNoPhase) {
  EXPECT_EQ(current().phase, Phase::kOther);
  EXPECT_EQ(current().module, nullptr);
  EXPECT_EQ(current().step, 0u);
  EXPECT_FALSE(current().recompute);
}

TEST(Scope, ScopesNestAndEnd) {
  const std::string outer = "layers.0", inner = "layers.0.attention";
  {
    PhaseScope forward(Phase::kForward, 3);
    EXPECT_EQ(current().phase, Phase::kForward);
    EXPECT_EQ(current().step, 3u);
    ModuleScope layer(outer);
    {
      ModuleScope attention(inner);
      EXPECT_EQ(current().module, &inner);
      EXPECT_EQ(current().phase, Phase::kForward);
    }
    EXPECT_EQ(current().module, &outer);
  }
  EXPECT_EQ(current().module, nullptr);
  EXPECT_EQ(current().phase, Phase::kOther);
}

TEST(Scope, APhaseBeginsAtTheRoot) {
  const std::string path = "layers.0";
  ModuleScope module(path);
  RecomputeScope recompute;
  {
    PhaseScope evaluation(Phase::kEvaluation, 1);
    EXPECT_EQ(current().module, nullptr);
    EXPECT_FALSE(current().recompute);
  }
  EXPECT_EQ(current().module, &path);
  EXPECT_TRUE(current().recompute);
}

TEST(Scope, RecomputationKeepsPhaseStepAndModule) {
  const std::string path = "head";
  PhaseScope backward(Phase::kBackward, 2);
  ModuleScope module(path);
  RecomputeScope recompute;
  EXPECT_EQ(current().phase, Phase::kBackward);
  EXPECT_EQ(current().step, 2u);
  EXPECT_EQ(current().module, &path);
  EXPECT_TRUE(current().recompute);
}

TEST(Scope, AContextCrossesThreadsAsACopy) {
  PhaseScope forward(Phase::kForward, 7);
  const Context here = current();
  Context bare, copied;
  std::thread([&] {
    bare = current();
    ContextScope scope(here);
    copied = current();
  }).join();
  EXPECT_EQ(bare.step, 0u);
  EXPECT_EQ(copied.step, 7u);
  EXPECT_EQ(copied.phase, Phase::kForward);
}
}  // namespace
}  // namespace cinch::trace
