// The streaming reader against a plain one: random recordings, pickled in random ways, read by a reader that does
// nothing clever. The plain reader builds every value and looks at them afterwards.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cinch/snapshot/internal/plain_pickle_for_test.h"
#include "cinch/snapshot/snapshot.h"

namespace cinch::snapshot {
namespace {

using plain::dict;
using plain::integer;
using plain::list;
using plain::make;
using plain::Node;
using plain::Ref;
using plain::text;

/// A made-up allocator's run: blocks of 512 B in segments of 2 MiB, none split nor merged, so that all is consistent.
class Recorder {
 public:
  explicit Recorder(std::mt19937& random) : random_(random) {
    for (int i = 0; i < 6; ++i) {
      frames_.push_back(dict({{"filename", text("f" + std::to_string(i % 3) + ".py")},
                              {"line", integer(i * 100)},
                              {"name", text("g" + std::to_string(i))}}));
    }
    for (int i = 0; i < 8; ++i) {
      const Ref stack = list();
      for (std::int64_t k = pick(0, 5); k > 0; --k)
        stack->items.push_back(frames_[static_cast<std::size_t>(pick(0, 5))]);
      stacks_.push_back(stack);
    }
  }

  Ref snapshot() {
    const Ref segments = list(), traces = list(), annotations = list();
    const std::int64_t devices = pick(1, 3);
    for (std::int64_t device = 0; device < devices; ++device) traces->items.push_back(trace(device, segments));
    for (std::int64_t i = pick(0, 3); i > 0; --i) {
      annotations->items.push_back(dict({{"name", text("a")}, {"stage", text("START")}, {"time_us", integer(i)}}));
    }
    std::vector<std::pair<std::string, Ref>> entries{
        {"segments", segments}, {"device_traces", traces}, {"external_annotations", annotations}, {"other", list()}};
    std::shuffle(entries.begin(), entries.end(), random_);
    return dict(entries);
  }

 private:
  static constexpr std::int64_t kBlock = 512, kBlocks = 16, kSegment = kBlock * kBlocks;

  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }
  Ref stack() {
    Ref known = stacks_[static_cast<std::size_t>(pick(0, 7))];
    if (pick(0, 2) > 0) return known;
    Ref own = list();  // As PyTorch: a list of its own for each allocation, of frames that are shared.
    own->items = known->items;
    return own;
  }
  Ref event(const std::string& action, std::int64_t address, std::int64_t size, std::int64_t stream) {
    std::vector<std::pair<std::string, Ref>> entries{
        {"action", text(action)}, {"addr", integer(address)}, {"size", integer(size)}, {"stream", integer(stream)}};
    if (pick(0, 9) > 0) entries.emplace_back("time_us", integer(time_ += pick(0, 3)));
    if (pick(0, 4) > 0) entries.emplace_back("frames", stack());
    if (pick(0, 4) == 0) entries.emplace_back("compile_context", text("N/A"));
    if (pick(0, 9) == 0) entries.emplace_back("user_metadata", pick(0, 1) == 0 ? text("") : make(Node::Type::kNone));
    if (pick(0, 9) == 0) std::shuffle(entries.begin(), entries.end(), random_);
    return dict(entries);
  }
  Ref trace(std::int64_t device, const Ref& segments) {
    Ref events = list();
    std::map<std::int64_t, std::int64_t> live;  // Address → requested.
    const std::int64_t base = (device + 1) << 40, count = pick(1, 4), stream = pick(0, 1) * 0x7f0000001000;
    for (std::int64_t i = pick(0, 1'500); i > 0; --i) {
      const std::int64_t address = base + pick(0, count - 1) * (kSegment * 2) + pick(0, kBlocks - 1) * kBlock;
      const auto found = live.find(address);
      const std::int64_t what = pick(0, 99);
      if (what == 0) {
        events->items.push_back(event("user_defined", 0, 0, 0));
      } else if (what == 1) {
        events->items.push_back(event("snapshot", 0, 5, stream));
      } else if (found == live.end()) {
        const std::int64_t size = pick(1, kBlock);
        live.emplace(address, size);
        events->items.push_back(event("alloc", address, size, stream));
      } else {
        events->items.push_back(event("free_requested", address, found->second, stream));
        events->items.push_back(event("free_completed", address, found->second, stream));
        live.erase(found);
      }
    }
    for (std::int64_t i = 0; i < count; ++i) add_segment(segments, device, base + i * kSegment * 2, stream, live);
    return events;
  }
  void add_segment(const Ref& segments, std::int64_t device, std::int64_t address, std::int64_t stream,
                   const std::map<std::int64_t, std::int64_t>& live) {
    const Ref blocks = list();
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      const auto found = live.find(address + i * kBlock);
      const bool lives = found != live.end();
      blocks->items.push_back(dict({{"address", integer(address + i * kBlock)},
                                    {"size", integer(kBlock)},
                                    {"requested_size", integer(lives ? found->second : 0)},
                                    {"state", text(lives ? "active_allocated" : "inactive")},
                                    {"frames", lives ? stack() : list()}}));
    }
    const Ref pool = list();
    pool->items = {integer(0), integer(device)};
    segments->items.push_back(dict({{"device", integer(device)},
                                    {"address", integer(address)},
                                    {"total_size", integer(kSegment)},
                                    {"stream", integer(stream)},
                                    {"segment_type", text("small")},
                                    {"segment_pool_id", pool},
                                    {"is_expandable", make(Node::Type::kBool)},
                                    {"frames", stack()},
                                    {"blocks", blocks}}));
  }

  std::mt19937& random_;
  std::int64_t time_ = 1'700'000'000'000'000;
  std::vector<Ref> frames_, stacks_;
};

std::string spelt_plain(const Node& frames) {
  std::string all;
  for (const Ref& frame : frames.items) {
    all +=
        (*frame)["filename"].text + ":" + std::to_string((*frame)["line"].number) + ":" + (*frame)["name"].text + ";";
  }
  return all;
}
std::string spelt(const trace::StackTable& stacks, trace::StackId id) {
  std::string all;
  for (const trace::Frame& frame : stacks[id]) {
    all += stacks.names()[frame.file] + ":" + std::to_string(frame.line) + ":" + stacks.names()[frame.function] + ";";
  }
  return all;
}

/// The events of a device as text, a line each.
class Lines final : public trace::Sink {
 public:
  Lines(const Snapshot& snapshot, const Device& device) : snapshot_(snapshot), device_(device) {}
  void on_event(const trace::Event& event) override {
    static const char* const kNames[] = {"alloc", "free_requested", "free_completed", "", "", "", "", "snapshot"};
    if (event.before) return;
    lines.push_back(std::string(kNames[static_cast<int>(event.action)]) + " " + std::to_string(event.address) + " " +
                    std::to_string(event.bytes.count()) + " " +
                    std::to_string(device_.streams[static_cast<std::size_t>(event.stream)]) + " " +
                    std::to_string(event.time_ns < 0 ? -1 : event.time_ns / 1000 + *snapshot_.origin_us()) + " " +
                    spelt(snapshot_.stacks(), event.stack));
  }
  std::vector<std::string> lines;

 private:
  const Snapshot& snapshot_;
  const Device& device_;
};

void compare(const Snapshot& snapshot, const Node& plain) {
  const Node& traces = plain["device_traces"];
  ASSERT_EQ(snapshot.devices().size(), traces.items.size());
  ASSERT_EQ(snapshot.annotations().size(), plain["external_annotations"].items.size());
  std::size_t next_segment = 0;
  for (std::size_t i = 0; i < traces.items.size(); ++i) {
    const Device& device = snapshot.devices()[i];
    EXPECT_EQ(device.left_out, 0u);
    Lines read(snapshot, device);
    snapshot.play(device, read);
    std::vector<std::string> expected;
    for (const Ref& event : traces.items[i]->items) {
      if ((*event)["action"].text == "user_defined") continue;
      expected.push_back((*event)["action"].text + " " + std::to_string((*event)["addr"].number) + " " +
                         std::to_string((*event)["size"].number) + " " + std::to_string((*event)["stream"].number) +
                         " " + std::to_string(event->has("time_us") ? (*event)["time_us"].number : -1) + " " +
                         (event->has("frames") ? spelt_plain((*event)["frames"]) : ""));
    }
    ASSERT_EQ(read.lines, expected);
    for (const trace::Segment& segment : device.end) {
      const Node& told = *plain["segments"].items.at(next_segment++);
      EXPECT_EQ(segment.address, static_cast<std::uint64_t>(told["address"].number));
      EXPECT_EQ(spelt(snapshot.stacks(), segment.stack), spelt_plain(told["frames"]));
      ASSERT_EQ(segment.blocks.size(), told["blocks"].items.size());
      for (std::size_t k = 0; k < segment.blocks.size(); ++k) {
        const Node& block = *told["blocks"].items[k];
        EXPECT_EQ(segment.blocks[k].requested.count(), block["requested_size"].number);
        EXPECT_EQ(segment.blocks[k].state == trace::Block::State::kInactive, block["state"].text == "inactive");
        EXPECT_EQ(spelt(snapshot.stacks(), segment.blocks[k].stack), spelt_plain(block["frames"]));
      }
    }
  }
  EXPECT_EQ(next_segment, plain["segments"].items.size());
}

TEST(RandomPickles, AreReadAsAPlainReaderReadsThem) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::string bytes = plain::Pickler(random)(Recorder(random).snapshot());
    const Ref plain = plain::Reader(bytes).read();
    compare(Snapshot::parse(bytes, "random"), *plain);
    if (testing::Test::HasFailure()) return;
  }
}
}  // namespace
}  // namespace cinch::snapshot
