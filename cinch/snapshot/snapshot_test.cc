#include "cinch/snapshot/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/core/text.h"

namespace cinch::snapshot {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using trace::Action;
using trace::Block;
using trace::Segment;

std::filesystem::path recorded(const std::string& name) {
  return std::filesystem::path(CINCH_SOURCE_DIR) / "tests/data/snapshots" / name;
}
const std::filesystem::path kStep = recorded("gpt2.7b-b4-s128-fp32-step.pickle.zst");

/// Follows a recording and keeps what lives.
class Forward final : public trace::Sink {
 public:
  explicit Forward(std::size_t stop = static_cast<std::size_t>(-1)) : stop_(stop) {}
  void on_event(const trace::Event& event) override {
    if (!event.before && events++ >= stop_) return;
    switch (event.action) {
      case Action::kAlloc:
        EXPECT_EQ(static_cast<std::size_t>(event.allocation), allocations++);
        EXPECT_TRUE(live.emplace(event.address, event.bytes).second) << event.address;
        requested += event.bytes;
        break;
      case Action::kFreeRequested:
        EXPECT_TRUE(live.contains(event.address)) << event.address;
        break;
      case Action::kFreeCompleted:
        EXPECT_EQ(live.erase(event.address), 1u) << event.address;
        requested -= event.bytes;
        break;
      case Action::kSegmentAlloc:
      case Action::kSegmentMap:
        segments[event.address] = event.bytes;
        reserved += event.bytes;
        break;
      case Action::kSegmentFree:
      case Action::kSegmentUnmap:
        segments.erase(event.address);
        reserved -= event.bytes;
        break;
      default:
        break;
    }
    if (event.before) {
      start = requested;
      blocks_at_start = live.size();
    }
    peak_requested = std::max(peak_requested, requested);
    peak_reserved = std::max(peak_reserved, reserved);
  }
  std::map<std::uint64_t, Bytes> live, segments;
  std::size_t events = 0, allocations = 0, blocks_at_start = 0;
  Bytes requested, reserved, start, peak_requested, peak_reserved;

 private:
  std::size_t stop_;
};

std::map<std::uint64_t, Bytes> live_of(const std::vector<Segment>& segments) {
  std::map<std::uint64_t, Bytes> live;
  for (const Segment& segment : segments) {
    for (const Block& block : segment.blocks) {
      if (block.state != Block::State::kInactive) live.emplace(block.address, block.requested);
    }
  }
  return live;
}

void expect_tiled(const std::vector<Segment>& segments) {
  for (const Segment& segment : segments) {
    std::uint64_t at = segment.address;
    for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
      EXPECT_EQ(segment.blocks[i].address, at);
      EXPECT_GT(segment.blocks[i].size, Bytes());
      EXPECT_LE(segment.blocks[i].requested, segment.blocks[i].size);
      at += static_cast<std::uint64_t>(segment.blocks[i].size.count());
    }
    EXPECT_EQ(at - segment.address, static_cast<std::uint64_t>(segment.total.count()));
  }
}

// Recordings of real runs.

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
  Forward figures;
  snapshot.play(device, figures);
  EXPECT_EQ(figures.events, expected.events);
  EXPECT_EQ(device.events, expected.events);
  EXPECT_EQ(device.left_out, 0u);
  EXPECT_EQ(figures.blocks_at_start, 324u);
  EXPECT_EQ(figures.start, Bytes(13'628'553'216));
  EXPECT_EQ(figures.peak_requested, Bytes(expected.peak_requested));
  EXPECT_EQ(figures.peak_reserved, Bytes(expected.peak_reserved));
  EXPECT_EQ(figures.reserved, Bytes(expected.end_reserved));
  EXPECT_EQ(figures.live, live_of(device.end));
  expect_tiled(device.start);
  expect_tiled(device.end);
  Bytes allocated;
  for (const Segment& segment : device.end) {
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

TEST(Snapshot, HasStacksSettingsAndAnnotations) {
  const Snapshot snapshot = Snapshot::open(kStep);
  EXPECT_EQ(snapshot.settings().alloc_conf, "");
  EXPECT_FALSE(snapshot.settings().max_split_size);
  EXPECT_THAT(snapshot.settings().roundup_power2_divisions, testing::AllOf(testing::SizeIs(16), testing::Each(0)));
  ASSERT_EQ(snapshot.annotations().size(), 4u);
  EXPECT_EQ(snapshot.annotations()[0].name, "Optimizer.zero_grad#AdamW.zero_grad");
  EXPECT_TRUE(snapshot.annotations()[0].start);
  EXPECT_EQ(snapshot.annotations()[0].time_us, 1748730219595970);
  EXPECT_EQ(snapshot.stacks().size(), 179u);  // 178 and the empty one.
  const trace::Frame innermost = snapshot.stacks()[trace::StackId{1}].front();
  EXPECT_EQ(snapshot.stacks().names()[innermost.function], "torch::unwind::unwind()");
}

TEST(Snapshot, TheEndOfARecordingBeginsInTheStateThatTheRestLeft) {
  const Snapshot whole = Snapshot::open(kStep);
  for (const std::size_t position : {0, 1, 4'000, 9'671, 15'000, 19'341, 19'342}) {
    Forward forward(position);
    whole.play(whole.devices()[0], forward);
    const Snapshot rest = Snapshot::open(kStep, {.first = position});
    const Device& device = rest.devices()[0];
    EXPECT_EQ(device.first_event, position);
    EXPECT_EQ(device.events, 19'342 - position);
    EXPECT_EQ(device.left_out, 0u);
    EXPECT_EQ(live_of(device.start), forward.live) << position;
    EXPECT_EQ(device.start.size(), forward.segments.size());
    expect_tiled(device.start);
    Forward again;
    rest.play(device, again);
    EXPECT_EQ(again.live, live_of(device.end));

    const Snapshot before = Snapshot::open(kStep, {.last = position});
    EXPECT_EQ(before.devices()[0].end.size(), device.start.size());
    EXPECT_EQ(live_of(before.devices()[0].end), forward.live);
  }
}

// The blocks whose rounded size nobody recorded: their sizes as they follow from the geometry, against those of the
// blocks that are still there at the end.
TEST(Snapshot, SizesOfBlocksFollowFromWhereTheNextOneBegins) {
  const Snapshot whole = Snapshot::open(kStep);
  std::map<std::uint64_t, std::pair<Bytes, Bytes>> at_end;
  for (const Segment& segment : whole.devices()[0].end) {
    for (const Block& block : segment.blocks) at_end[block.address] = {block.requested, block.size};
  }
  const Snapshot before = Snapshot::open(kStep, {.last = 15'000});
  std::size_t compared = 0;
  for (const Segment& segment : before.devices()[0].end) {
    for (const Block& block : segment.blocks) {
      const auto found = at_end.find(block.address);
      if (block.state == Block::State::kInactive || found == at_end.end() || found->second.first != block.requested)
        continue;
      EXPECT_EQ(block.size, found->second.second) << block.address;
      ++compared;
    }
  }
  EXPECT_GT(compared, 500u);
}

TEST(Snapshot, OpensAWindowOfTime) {
  const std::int64_t step = 1748730220044133;  // Optimizer.step begins.
  const Snapshot snapshot = Snapshot::open(kStep, {.from_us = step, .to_us = step + 1'000});
  const Device& device = snapshot.devices()[0];
  EXPECT_GT(device.first_event, 0u);
  EXPECT_GT(device.events, 0u);
  class Times final : public trace::Sink {
   public:
    void on_event(const trace::Event& event) override {
      if (!event.before) times.push_back(event.time_ns);
    }
    std::vector<std::int64_t> times;
  } times;
  snapshot.play(device, times);
  const std::int64_t begin = (step - *snapshot.origin_us()) * 1000;
  EXPECT_GE(*std::ranges::min_element(times.times), begin);
  EXPECT_LT(*std::ranges::max_element(times.times), begin + 1'000'000);
}

TEST(Snapshot, ARingBufferThatLostTheBeginningStillTells) {
  const Snapshot snapshot = Snapshot::open(recorded("step-end.pickle"));
  const Device& device = snapshot.devices()[0];
  EXPECT_EQ(device.events, 400u);
  EXPECT_EQ(device.left_out, 0u);
  expect_tiled(device.start);
  Forward forward;
  snapshot.play(device, forward);
  EXPECT_EQ(forward.live, live_of(device.end));
}

// Compressed files.

std::string gzipped(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

TEST(Snapshot, IsInflatedByItsMagicBytes) {
  const std::string plain = read_file(recorded("step-end.pickle"));
  const std::string half = plain.substr(0, plain.size() / 2), rest = plain.substr(plain.size() / 2);
  for (const std::string& bytes :
       {plain, gzipped(plain), zstandard(plain), gzipped(half) + gzipped(rest), zstandard(half) + zstandard(rest)}) {
    EXPECT_EQ(Snapshot::parse(bytes, "x").devices()[0].events, 400u);
  }
  for (const std::string& bytes : {gzipped(plain), zstandard(plain)}) {
    EXPECT_THROW(Snapshot::parse(bytes.substr(0, bytes.size() - 10), "x"), DataError);
    std::string damaged = bytes;
    damaged[bytes.size() / 2] ^= 0x55;
    EXPECT_THROW(Snapshot::parse(damaged, "x"), DataError);
  }
}

TEST(Snapshot, MissingFilesAreIoErrors) { EXPECT_THROW(Snapshot::open("/nowhere/x.pickle"), IoError); }

}  // namespace
}  // namespace cinch::snapshot
