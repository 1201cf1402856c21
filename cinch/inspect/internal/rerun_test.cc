#include "cinch/inspect/internal/rerun.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cinch::inspect::internal {
namespace {

using namespace cinch::literals;
using testing::SizeIs;
using trace::Action;
using State = trace::Block::State;

constexpr std::uint64_t kStart = 0x7f0000000000;

/// One segment with a block in the state and a free rest.
snapshot::Device device_with(State state) {
  snapshot::Device device;
  trace::Segment segment{.address = kStart, .total = 2_MiB};
  segment.blocks = {{kStart, 512_B, 500_B, state, {}}, {kStart + 512, 2_MiB - 512_B, 0_B, State::kInactive, {}}};
  device.start = {segment};
  return device;
}

trace::Event event(Action action, std::uint32_t allocation, std::uint64_t address, bool before = false) {
  trace::Event result;
  result.action = action;
  result.allocation = trace::AllocationId{allocation};
  result.address = address;
  result.bytes = 500_B;
  result.before = before;
  return result;
}

TEST(Rerun, FreesWhatWasThereAtTheStart) {
  for (const State state : {State::kActiveAllocated, State::kActivePendingFree}) {
    Rerun rerun({}, device_with(state));
    rerun.on_event(event(Action::kAlloc, 0, kStart, true));
    ASSERT_THAT(rerun.segments()[0].blocks, SizeIs(2));
    rerun.on_event(event(Action::kFreeCompleted, 0, kStart));
    ASSERT_THAT(rerun.segments()[0].blocks, SizeIs(1));
    EXPECT_EQ(rerun.segments()[0].blocks[0].state, State::kInactive);
  }
}

TEST(Rerun, PassesOverAllocationsThatTheSegmentsContradict) {
  Rerun rerun({}, device_with(State::kActiveAllocated));
  rerun.on_event(event(Action::kAlloc, 0, kStart, true));
  rerun.on_event(event(Action::kAlloc, 1, kStart, true));         // The same block a second time,
  rerun.on_event(event(Action::kAlloc, 2, kStart + 4096, true));  // and one where there is none.
  for (const std::uint32_t id : {0, 1, 2}) rerun.on_event(event(Action::kFreeCompleted, id, kStart));
  EXPECT_FALSE(rerun.failed_at());
  ASSERT_THAT(rerun.segments()[0].blocks, SizeIs(1));
  EXPECT_TRUE(rerun.by_address().empty());
}
}  // namespace
}  // namespace cinch::inspect::internal
