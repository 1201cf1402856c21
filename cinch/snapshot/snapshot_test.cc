#include "cinch/snapshot/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "cinch/core/error.h"

namespace cinch::snapshot {
namespace {
using trace::Action;
using trace::Block;

std::filesystem::path recorded(const std::string& name) {
  return std::filesystem::path(CINCH_SOURCE_DIR) / "tests/data/snapshots" / name;
}

/// What the README of the recordings says of each.
class Figures final : public trace::Sink {
 public:
  void on_event(const trace::Event& event) override {
    if (!event.before) ++events;
    if (event.action == Action::kAlloc) requested += event.bytes;
    if (event.action == Action::kFreeCompleted) requested -= event.bytes;
    if (event.action == Action::kSegmentAlloc) reserved += event.bytes;
    if (event.action == Action::kSegmentFree) reserved -= event.bytes;
    if (event.before) start = requested;
    if (event.before && event.action == Action::kAlloc) ++blocks_at_start;
    peak_requested = std::max(peak_requested, requested);
    peak_reserved = std::max(peak_reserved, reserved);
  }
  std::size_t events = 0, blocks_at_start = 0;
  Bytes requested, reserved, start, peak_requested, peak_reserved;
};

struct Expected {
  const char* file;
  std::size_t events;
  std::int64_t peak_requested, peak_reserved, end_allocated, end_reserved;
};

class Recordings : public testing::TestWithParam<Expected> {};

TEST_P(Recordings, HaveTheFiguresOfTheirReadme) {
  const Expected& expected = GetParam();
  const Snapshot snapshot = Snapshot::open(recorded(expected.file));
  ASSERT_EQ(snapshot.devices().size(), 1u);
  const Device& device = snapshot.devices()[0];
  Figures figures;
  snapshot.play(device, figures);
  EXPECT_EQ(figures.events, expected.events);
  EXPECT_EQ(device.events, expected.events);
  EXPECT_EQ(device.left_out, 0u);
  EXPECT_EQ(figures.blocks_at_start, 324u);
  EXPECT_EQ(figures.start, Bytes(13'628'553'216));
  EXPECT_EQ(figures.peak_requested, Bytes(expected.peak_requested));
  EXPECT_EQ(figures.peak_reserved, Bytes(expected.peak_reserved));
  EXPECT_EQ(figures.reserved, Bytes(expected.end_reserved));
  Bytes allocated;
  for (const trace::Segment& segment : device.end) {
    for (const Block& block : segment.blocks) {
      if (block.state == Block::State::kActiveAllocated) allocated += block.size;
    }
  }
  EXPECT_EQ(allocated, Bytes(expected.end_allocated));
}

INSTANTIATE_TEST_SUITE_P(Real, Recordings,
                         testing::Values(Expected{"gpt2.7b-b4-s128-fp32-forward.pickle.zst", 4'657, 19'352'504'320,
                                                  19'667'091'456, 19'498'420'224, 19'667'091'456},
                                         Expected{"gpt2.7b-b4-s128-bf16-autocast-forward.pickle.zst", 5'992,
                                                  23'873'313'792, 24'245'174'272, 24'018'738'176, 24'245'174'272},
                                         Expected{"gpt2.7b-b4-s128-fp32-step.pickle.zst", 19'342, 54'802'667'524,
                                                  61'111'009'280, 54'873'829'888, 61'111'009'280}),
                         [](const auto& info) { return "Recording" + std::to_string(info.index); });
}  // namespace
}  // namespace cinch::snapshot
