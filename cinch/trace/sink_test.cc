#include "cinch/trace/sink.h"

#include <gtest/gtest.h>

namespace cinch::trace {
namespace {
using namespace literals;

TEST(NameTable, GivesDenseIdsOncePerText) {
  NameTable names;
  EXPECT_EQ(names.intern(""), NameId{0});
  EXPECT_EQ(names.intern("layers.0"), NameId{1});
  EXPECT_EQ(names.intern("layers.1"), NameId{2});
  EXPECT_EQ(names.intern("layers.0"), NameId{1});
  EXPECT_EQ(names[NameId{2}], "layers.1");
  EXPECT_EQ(names.size(), 3u);
}

TEST(NameTable, StaysValidWhileItGrowsAndMoves) {
  NameTable names;
  const std::string& first = names[names.intern("first")];
  for (int i = 0; i < 5000; ++i) names.intern("name" + std::to_string(i));
  EXPECT_EQ(first, "first");
  NameTable moved = std::move(names);
  EXPECT_EQ(moved.intern("first"), NameId{1});
  EXPECT_EQ(moved.intern("name4999"), NameId{5001});
}

TEST(PeakMeter, CountsAllocationsAndFreesOnly) {
  PeakMeter meter;
  meter.on_event({.action = Action::kAlloc, .bytes = 4_KiB});
  meter.on_event({.action = Action::kAlloc, .bytes = 1_KiB});
  meter.on_event({.action = Action::kFreeCompleted, .bytes = 4_KiB});
  meter.on_event({.action = Action::kOom, .bytes = 1_GiB});
  meter.on_event({.action = Action::kMark});
  EXPECT_EQ(meter.live(), 1_KiB);
  EXPECT_EQ(meter.peak(), 5_KiB);
}

TEST(PeakMeter, CountsSegmentsApart) {
  PeakMeter meter;
  meter.on_event({.action = Action::kSegmentAlloc, .bytes = 20_MiB});
  meter.on_event({.action = Action::kSegmentMap, .bytes = 2_MiB});
  meter.on_event({.action = Action::kAlloc, .bytes = 5_MiB});
  meter.on_event({.action = Action::kSegmentUnmap, .bytes = 2_MiB});
  meter.on_event({.action = Action::kSegmentFree, .bytes = 20_MiB});
  EXPECT_EQ(meter.reserved(), 0_B);
  EXPECT_EQ(meter.peak_reserved(), 22_MiB);
  EXPECT_EQ(meter.live(), 5_MiB);
}

TEST(Names, AreThoseOfTheJson) {
  EXPECT_EQ(name_of(Phase::kInit), "init");
  EXPECT_EQ(name_of(Phase::kData), "data");
  EXPECT_EQ(name_of(Phase::kForward), "forward");
  EXPECT_EQ(name_of(Phase::kBackward), "backward");
  EXPECT_EQ(name_of(Phase::kOptimizer), "optimizer");
  EXPECT_EQ(name_of(Phase::kEvaluation), "evaluation");
  EXPECT_EQ(name_of(Phase::kSave), "save");
  EXPECT_EQ(name_of(Phase::kOther), "other");
  EXPECT_EQ(name_of(Category::kParameter), "parameter");
  EXPECT_EQ(name_of(Category::kGradient), "gradient");
  EXPECT_EQ(name_of(Category::kActivation), "activation");
  EXPECT_EQ(name_of(Category::kOptimizerState), "optimizer_state");
  EXPECT_EQ(name_of(Category::kInput), "input");
  EXPECT_EQ(name_of(Category::kBuffer), "buffer");
  EXPECT_EQ(name_of(Category::kTemporary), "temporary");
  EXPECT_EQ(name_of(Category::kUnknown), "unknown");
}

TEST(CategoryBytes, SumsAllCategories) {
  CategoryBytes bytes;
  bytes[Category::kParameter] = 3_B;
  bytes[Category::kUnknown] = 4_B;
  EXPECT_EQ(bytes.sum(), 7_B);
}
}  // namespace
}  // namespace cinch::trace
