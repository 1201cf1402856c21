#include "cinch/allocator/on_card.h"

#include <gtest/gtest.h>

#include "cinch/trace/builder.h"

namespace cinch::allocator {
namespace {
using namespace cinch::literals;
using trace::Phase;

device::DeviceSpec card_with(Bytes context) {
  device::DeviceSpec card;
  card.type = device::DeviceType::kCuda;
  card.context = context;
  return card;
}

/// 30 MiB live, with 12 MiB freed before 18 MiB come that find no room in its segment.
trace::Trace growing() {
  trace::TraceBuilder b;
  b.phase(Phase::kInit, 0).module("layers.0");
  b.alloc(12_MiB);
  const auto first = b.alloc(12_MiB);
  b.phase(Phase::kForward, 1).module("layers.1.mlp");
  b.free(first);
  b.alloc(18_MiB);
  return b.build();
}

TEST(OnCard, ReservesSegmentsAndAddsTheContext) {
  const OnCard result = on_card(growing(), card_with(100_MiB), 1_GiB);
  EXPECT_FALSE(result.runs_out);
  EXPECT_EQ(result.bytes.allocated, 30_MiB);
  EXPECT_EQ(result.bytes.reserved, 42_MiB);  // 12 cached.
  EXPECT_EQ(result.bytes.context, 100_MiB);
  EXPECT_EQ(result.bytes.on_card(), 142_MiB);
}

TEST(OnCard, CountsUnderTheSettingsGiven) {
  const OnCard result = on_card(growing(), card_with(100_MiB), 1_GiB, Settings::parse("expandable_segments:True"));
  EXPECT_FALSE(result.runs_out);
  EXPECT_EQ(result.bytes.reserved, 40_MiB);  // Two pages: the 18 grow on from the 12 that were freed.
}

TEST(OnCard, GivesItsCacheBackWhereMemoryIsShort) {
  const OnCard result = on_card(growing(), card_with(100_MiB), 131_MiB);
  EXPECT_FALSE(result.runs_out);
  EXPECT_EQ(result.bytes.reserved, 30_MiB);
}

TEST(OnCard, SaysWhereItRunsOutAndWhatWouldSuffice) {
  const OnCard result = on_card(growing(), card_with(100_MiB), 129_MiB);
  ASSERT_TRUE(result.runs_out);
  EXPECT_EQ(result.runs_out->asked, 18_MiB);
  EXPECT_EQ(result.runs_out->phase, Phase::kForward);
  EXPECT_EQ(result.runs_out->step, 1u);
  EXPECT_EQ(result.runs_out->module, "layers.1.mlp");
  EXPECT_EQ(result.bytes.reserved, 30_MiB);
  const OnCard none = on_card(growing(), card_with(100_MiB), 50_MiB);  // Not even the context.
  ASSERT_TRUE(none.runs_out);
  EXPECT_EQ(none.runs_out->phase, Phase::kInit);
}

}  // namespace
}  // namespace cinch::allocator
