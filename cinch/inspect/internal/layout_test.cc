#include "cinch/inspect/internal/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cinch::inspect::internal {
namespace {

using namespace cinch::literals;
using testing::SizeIs;
using trace::Action;
using State = trace::Block::State;

constexpr std::uint64_t kStart = 0x7f0000000000, kPage = 2 << 20;

trace::Event event(Action action, std::uint64_t address, Bytes bytes) {
  trace::Event result;
  result.action = action;
  result.address = address;
  result.bytes = bytes;
  return result;
}

TEST(Layout, JoinsWhatIsMappedWithTheFreeEndsOfItsNeighbours) {
  Layout layout({}, {});
  layout.apply(event(Action::kSegmentMap, kStart, 2_MiB));
  layout.apply(event(Action::kSegmentMap, kStart + 2 * kPage, 2_MiB));
  layout.apply(event(Action::kAlloc, kStart, 512_B));
  ASSERT_THAT(layout.segments(), SizeIs(2));
  layout.apply(event(Action::kSegmentMap, kStart + kPage, 2_MiB));
  const auto segments = layout.segments();
  ASSERT_THAT(segments, SizeIs(1));
  EXPECT_EQ(segments[0].total, 6_MiB);
  ASSERT_THAT(segments[0].blocks, SizeIs(2));
  EXPECT_EQ(segments[0].blocks[0].state, State::kActiveAllocated);
  EXPECT_EQ(segments[0].blocks[1].address, kStart + 512);
  EXPECT_EQ(segments[0].blocks[1].size, 6_MiB - 512_B);
  EXPECT_EQ(layout.ignored(), 0U);
}

TEST(Layout, DoesNotJoinThePartsOfDifferentStreams) {
  Layout layout({}, {});
  layout.apply(event(Action::kSegmentMap, kStart, 2_MiB));
  trace::Event other = event(Action::kSegmentMap, kStart + kPage, 2_MiB);
  other.stream = trace::StreamId{1};
  layout.apply(other);
  EXPECT_THAT(layout.segments(), SizeIs(2));
}

/// What each map costs does not grow with the blocks that there are: this would take minutes if it did.
TEST(Layout, FollowsAnExpandableSegmentOfManyPartsAndBlocks) {
  constexpr std::uint64_t kParts = 50'000, kBlocksAPart = 8;
  Layout layout({}, {});
  for (std::uint64_t part = 0; part < kParts; ++part) {
    const std::uint64_t begin = kStart + part * kPage;
    layout.apply(event(Action::kSegmentMap, begin, 2_MiB));
    for (std::uint64_t i = 0; i < kBlocksAPart; ++i) {
      layout.apply(event(Action::kAlloc, begin + i * kPage / kBlocksAPart, 256_KiB));
    }
  }
  const auto segments = layout.segments();
  ASSERT_THAT(segments, SizeIs(1));
  EXPECT_EQ(segments[0].total, Bytes(static_cast<std::int64_t>(kParts * kPage)));
  EXPECT_THAT(segments[0].blocks, SizeIs(kParts * kBlocksAPart));
  EXPECT_EQ(layout.ignored(), 0U);
}
}  // namespace
}  // namespace cinch::inspect::internal
