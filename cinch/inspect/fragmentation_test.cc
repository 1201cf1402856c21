#include "cinch/inspect/fragmentation.h"

#include <gtest/gtest.h>

#include <random>

namespace cinch::inspect {
namespace {

using namespace cinch::literals;
using trace::Block;
using trace::PoolId;
using trace::Segment;
using trace::StreamId;
using State = Block::State;

constexpr auto kLive = State::kActiveAllocated, kFree = State::kInactive, kPending = State::kActivePendingFree;

struct Part {
  Bytes size, requested;
  State state;
};

Segment segment(const std::vector<Part>& parts, StreamId stream = {}, PoolId pool = {}, bool expandable = false) {
  static std::uint64_t next = 1 << 30;
  Segment result{next, Bytes(0), stream, pool, true, expandable, {}, {}};
  for (const Part& part : parts) {
    result.blocks.push_back({next, part.size, part.requested, part.state, {}});
    next += static_cast<std::uint64_t>(part.size.count());
    result.total += part.size;
  }
  next = (next + (1 << 30)) / (1 << 30) * (1 << 30);
  return result;
}

Fragmentation parts_of(const std::vector<Segment>& segments, const allocator::Settings& settings = {}) {
  return fragmentation(segments, settings);
}

void expect_exact(const Fragmentation& parts) { EXPECT_EQ(parts.requested + parts.wasted(), parts.reserved); }

TEST(Fragmentation, OfNothing) {
  const Fragmentation parts = parts_of({});
  EXPECT_EQ(parts.reserved, 0_B);
  expect_exact(parts);
}

TEST(Fragmentation, RoundingIsUpTo512) {
  const Fragmentation parts = parts_of({segment({{512_B, 4_B, kLive}, {1024_B, 513_B, kLive}, {512_B, 512_B, kLive}})});
  EXPECT_EQ(parts.rounding, Bytes(508 + 511));
  EXPECT_EQ(parts.unsplittable, 0_B);
  expect_exact(parts);
}

TEST(Fragmentation, RoundingFollowsTheSettings) {
  const auto settings = allocator::Settings::parse("roundup_power2_divisions:4");
  EXPECT_EQ(round_request(1200_B * 1024, settings), Bytes(1280 << 10));
  EXPECT_EQ(round_request(2_MiB, settings), 2_MiB);
  const Fragmentation parts = parts_of({segment({{1280_KiB, 1200_KiB, kLive}})}, settings);
  EXPECT_EQ(parts.rounding, 80_KiB);
  expect_exact(parts);
}

TEST(Fragmentation, WhatIsTooSmallToBeSplitOff) {
  const Fragmentation parts = parts_of({segment({{12_MiB, 11_MiB, kLive}})});
  EXPECT_EQ(parts.unsplittable, 1_MiB);
  EXPECT_EQ(parts.rounding, 0_B);
  expect_exact(parts);
}

TEST(Fragmentation, FreeBlocksBesideLivingOnesAreStrandedAndPinned) {
  const Fragmentation parts =
      parts_of({segment({{8_MiB, 8_MiB, kLive}, {12_MiB, 0_B, kFree}}),
                segment({{2_MiB, 0_B, kFree}, {1_MiB, 1_MiB, kLive}, {3_MiB, 0_B, kFree}, {14_MiB, 14_MiB, kLive}})});
  EXPECT_EQ(parts.stranded, 17_MiB);
  EXPECT_EQ(parts.stranded_blocks, 3U);
  EXPECT_EQ(parts.largest_free, 12_MiB);
  ASSERT_EQ(parts.pinned.size(), 2U);
  EXPECT_EQ(parts.pinned[0].free, 12_MiB);
  EXPECT_EQ(parts.pinned[1].largest_free, 3_MiB);
  ASSERT_EQ(parts.pinned[1].holders.size(), 2U);
  EXPECT_EQ(parts.pinned[1].holders[0].requested, 1_MiB);  // The smallest first.
  expect_exact(parts);
}

TEST(Fragmentation, SegmentsInWhichNothingLivesAreCached) {
  const Fragmentation parts = parts_of({segment({{20_MiB, 0_B, kFree}}), segment({{30_MiB, 30_MiB, kLive}})});
  EXPECT_EQ(parts.cached_segments, 20_MiB);
  EXPECT_EQ(parts.cached_segment_count, 1U);
  EXPECT_EQ(parts.stranded, 0_B);
  EXPECT_TRUE(parts.pinned.empty());
  expect_exact(parts);
}

TEST(Fragmentation, OfAnExpandableSegmentWholePagesCanGoBack) {
  // Free: [10, 65) MiB; of the pages of 20 MiB two lie within, [20, 60).
  const Fragmentation parts =
      parts_of({segment({{10_MiB, 10_MiB, kLive}, {55_MiB, 0_B, kFree}, {15_MiB, 15_MiB, kLive}}, {}, {}, true)});
  EXPECT_EQ(parts.cached_segments, 40_MiB);
  EXPECT_EQ(parts.stranded, 15_MiB);
  expect_exact(parts);
}

TEST(Fragmentation, OfOtherStreamsAndPrivatePools) {
  const Fragmentation parts =
      parts_of({segment({{30_MiB, 30_MiB, kLive}}), segment({{5_MiB, 5_MiB, kLive}, {15_MiB, 0_B, kFree}}, StreamId{1}),
                segment({{20_MiB, 0_B, kFree}}, StreamId{1}),
                segment({{6_MiB, 6_MiB, kLive}, {14_MiB, 0_B, kFree}}, {}, PoolId{1})});
  EXPECT_EQ(parts.stream, StreamId{0});
  EXPECT_EQ(parts.other_streams, 35_MiB);
  EXPECT_EQ(parts.private_pools, 14_MiB);
  EXPECT_EQ(parts.stranded + parts.cached_segments, 0_B);
  expect_exact(parts);
}

TEST(Fragmentation, TheStreamThatIsAskedForCounts) {
  const std::vector<Segment> segments = {segment({{30_MiB, 30_MiB, kLive}, {2_MiB, 0_B, kFree}}),
                                         segment({{5_MiB, 5_MiB, kLive}, {15_MiB, 0_B, kFree}}, StreamId{1})};
  const Fragmentation parts = fragmentation(segments, {}, StreamId{1});
  EXPECT_EQ(parts.stranded, 15_MiB);
  EXPECT_EQ(parts.other_streams, 2_MiB);
  expect_exact(parts);
}

TEST(Fragmentation, PendingFreesCountWhole) {
  const Fragmentation parts = parts_of({segment({{12_MiB, 11_MiB, kPending}, {8_MiB, 8_MiB, kLive}})});
  EXPECT_EQ(parts.pending_frees, 12_MiB);
  EXPECT_EQ(parts.requested, 8_MiB);
  expect_exact(parts);
}

TEST(Fragmentation, PartsOfAnyStateSumToWhatIsReserved) {
  std::mt19937 random(1);
  const auto up_to = [&](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); };
  for (int round = 0; round < 200; ++round) {
    std::vector<Segment> segments;
    for (std::int64_t i = up_to(12); i > 0; --i) {
      std::vector<Part> blocks;
      for (std::int64_t j = up_to(6); j > 0; --j) {
        const Bytes size(up_to(40'000) * 512);
        const auto state = std::array{kLive, kFree, kPending}[static_cast<std::size_t>(up_to(3) - 1)];
        blocks.push_back({size, state == kFree ? 0_B : Bytes(up_to(size.count())), state});
      }
      segments.push_back(segment(blocks, StreamId{static_cast<std::uint16_t>(up_to(2))},
                                 PoolId{static_cast<std::uint16_t>(up_to(3) / 3)}, up_to(2) == 1));
    }
    expect_exact(parts_of(segments));
    expect_exact(parts_of(segments, allocator::Settings::parse("roundup_power2_divisions:8,expandable_segments:True")));
  }
}
}  // namespace
}  // namespace cinch::inspect
