#include "cinch/inspect/internal/remedies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cinch::inspect::internal {
namespace {

using namespace cinch::literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Feeds what lives, then lets go of the passing part.
struct Fed {
  std::vector<Kind> kinds;
  std::vector<trace::Event> events;
  void alloc(Kind kind, Bytes bytes) {
    events.push_back({.action = trace::Action::kAlloc,
                      .allocation = trace::AllocationId{static_cast<std::uint32_t>(kinds.size())},
                      .bytes = bytes});
    kinds.push_back(kind);
  }
  void free(std::uint32_t id, Bytes bytes) {
    events.push_back({.action = trace::Action::kFreeCompleted, .allocation = trace::AllocationId{id}, .bytes = bytes});
  }
  Reductions reductions(bool trains = true, Bytes once = {}) const {
    Reductions result([this](trace::AllocationId id) { return kinds[static_cast<std::size_t>(id)]; }, events.size(),
                      trains, once);
    for (const trace::Event& event : events) result.on_event(event);
    return result;
  }
};

/// Parameters and gradients of 100 B and activations of 300 that are gone when state of 200 comes.
Fed step() {
  Fed fed;
  fed.alloc(Kind::kParameter, 100_B);
  fed.alloc(Kind::kActivation, 300_B);
  fed.alloc(Kind::kGradient, 100_B);
  fed.free(1, 300_B);
  fed.alloc(Kind::kOptimizerState, 400_B);
  return fed;
}

TEST(Reductions, AreOfWhicheverMomentIsHighestThen) {
  const Reductions reductions = step().reductions();
  EXPECT_EQ(reductions.highest(0), 600_B);               // In the optimizer's step.
  EXPECT_EQ(reductions.highest(kOffloadState), 500_B);   // In backward.
  EXPECT_EQ(reductions.highest(kEightBitState), 500_B);  // There it is 300.
  EXPECT_EQ(reductions.highest(kLora), 400_B);           // Parameters and activations.
  EXPECT_EQ(reductions.highest(kHalfPrecision), 400_B);
  EXPECT_EQ(reductions.highest(kFewerActivations), 600_B);
  EXPECT_EQ(reductions.highest(kOffloadState | kFewerActivations), 200_B);
  EXPECT_EQ(reductions.highest(kOffloadState | kHalfPrecision), 400_B);
  EXPECT_EQ(reductions.highest(kEightBitState | kHalfPrecision | kFewerActivations), 200_B);
}

TEST(Reductions, NameTheSmallestSetsThatAreEnough) {
  const Reductions reductions = step().reductions();
  EXPECT_THAT(reductions.enough(500_B), ElementsAre(kOffloadState, kEightBitState, kLora, kHalfPrecision));
  EXPECT_THAT(reductions.enough(200_B), ElementsAre(kOffloadState | kFewerActivations, kLora | kFewerActivations,
                                                    kEightBitState | kHalfPrecision | kFewerActivations));
  EXPECT_THAT(reductions.enough(49_B), IsEmpty());
}

Inspection seen_of(const Live& live) {
  Inspection seen;
  seen.peak = live;
  seen.optimizer_steps = 1;
  return seen;
}

TEST(Advice, NamesNoCheckpointingInInference) {
  Fed fed;
  fed.alloc(Kind::kParameter, 100_B);
  fed.alloc(Kind::kActivation, 300_B);
  Live live;
  live.bytes = 400_B;
  live.categories[trace::Category::kParameter] = 100_B;
  live.categories[trace::Category::kActivation] = 300_B;
  OutOfMemory oom;
  oom.capacity = 200_B;
  oom.short_by = 200_B;
  advise(seen_of(live), oom, fed.reductions(false));
  EXPECT_EQ(oom.to_fit, "To fit 200 B: a smaller batch.");
  ASSERT_EQ(oom.remedies.size(), 1U);
  EXPECT_EQ(oom.remedies[0].leaves, 100_B);
  EXPECT_TRUE(oom.remedies[0].at_best);
}

TEST(Advice, NamesNoActivationsThatAreTooSmallToMatter) {
  Fed fed;
  fed.alloc(Kind::kUnknown, 1000_B);
  fed.alloc(Kind::kActivation, 5_B);
  OutOfMemory oom;
  oom.capacity = 1002_B;
  oom.short_by = 3_B;
  advise(seen_of({}), oom, fed.reductions());
  EXPECT_EQ(oom.to_fit, "To fit 1002 B: 3 B less must live at the peak.");
  EXPECT_THAT(oom.remedies, IsEmpty());
}

TEST(Advice, SaysFirstThatTheLeakMustGo) {
  Fed fed;
  fed.alloc(Kind::kParameter, 100_B);
  fed.alloc(Kind::kLeaked, 300_B);
  Inspection seen = seen_of({});
  seen.leaks.found.emplace_back().path = "append, train.py:7 main";
  OutOfMemory oom;
  oom.capacity = 200_B;
  oom.short_by = 200_B;
  advise(seen, oom, fed.reductions(true, 30_B));
  EXPECT_EQ(oom.to_fit, "To fit 200 B: the leak must go (append, train.py:7 main).");
  EXPECT_EQ(oom.remedies[0].leaves, 130_B);  // A step's worth lives for a while as before.
}
}  // namespace
}  // namespace cinch::inspect::internal
