// Layouts of snapshots, and what is made of recordings that tell less than all, on small ones written out as JSON.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/snapshot/snapshot.h"

namespace cinch::snapshot {
namespace {
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using trace::Action;
using trace::Block;
using trace::Segment;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::string block(std::int64_t size, const std::string& state, std::int64_t requested = 0) {
  return R"({"size": )" + std::to_string(size) + R"(, "requested_size": )" + std::to_string(requested) +
         R"(, "state": ")" + state + R"(", "frames": []})";
}
std::string segment(std::int64_t address, std::int64_t total, const std::string& blocks,
                    const std::string& more = R"("segment_type": "large")") {
  return R"({"device": 0, "address": )" + std::to_string(address) + R"(, "total_size": )" + std::to_string(total) +
         R"(, "stream": 0, )" + more + R"(, "blocks": [)" + blocks + "]}";
}
std::string event(const std::string& action, std::int64_t address, std::int64_t size, const std::string& more = "") {
  return R"({"action": ")" + action + R"(", ")" + (action == "oom" ? "device_free" : "addr") + R"(": )" +
         std::to_string(address) + R"(, "size": )" + std::to_string(size) + R"(, "stream": 0)" + more + "}";
}
std::string freed(std::int64_t address, std::int64_t size) {
  return event("free_requested", address, size) + ", " + event("free_completed", address, size);
}
Snapshot parse(const std::string& segments, const std::string& events, const std::string& more = "",
               const Window& window = {}) {
  return Snapshot::parse(R"({"segments": [)" + segments + R"(], "device_traces": [[)" + events + "]]" + more + "}",
                         "test.json", window);
}

class Events final : public trace::Sink {
 public:
  void on_event(const trace::Event& event) override { all.push_back(event); }
  std::vector<trace::Event> all;
};
std::vector<trace::Event> played(const Snapshot& snapshot, std::size_t device = 0) {
  Events events;
  snapshot.play(snapshot.devices()[device], events);
  return events.all;
}
std::vector<std::int64_t> sizes(const Segment& segment) {
  std::vector<std::int64_t> all;
  for (const Block& block : segment.blocks) all.push_back(block.size.count());
  return all;
}

TEST(Layouts, ABareListIsTheSegments) {
  const std::string text = "[" + segment(4096, 2 * kMiB, block(2 * kMiB, "inactive")) + "]";
  const Snapshot snapshot = Snapshot::parse(text, "old.json");
  ASSERT_THAT(snapshot.devices(), SizeIs(1));
  EXPECT_EQ(snapshot.devices()[0].end, snapshot.devices()[0].start);
  EXPECT_THAT(played(snapshot), SizeIs(1));
}

TEST(Layouts, OldBlocksHaveAHistory) {
  const std::string old =
      R"({"size": 1024, "state": "active_allocated", "history": [)"
      R"({"addr": 4096, "real_size": 900, "frames": [{"filename": "a.py", "line": 3, "name": "f"}]},)"
      R"({"addr": 4096, "real_size": 5, "frames": []}]})";
  const Snapshot snapshot = parse(segment(4096, 2048, old + ", " + block(1024, "inactive")), "");
  const Block& found = snapshot.devices()[0].end[0].blocks[0];
  EXPECT_EQ(found.requested, Bytes(900));
  EXPECT_EQ(found.address, 4096u);
  ASSERT_THAT(snapshot.stacks()[found.stack], SizeIs(1));
  EXPECT_EQ(snapshot.stacks()[found.stack][0].line, 3u);
}

TEST(Layouts, OldNamesOfStatesAndActionsAreKnown) {
  const Snapshot snapshot = parse(
      segment(4096, 1024, block(1024, "active_awaiting_free", 1000)),
      event("user_defined", 0, 0) + ", " + event("free_requested", 4096, 1000) + ", " + event("invented_later", 1, 2));
  EXPECT_EQ(snapshot.devices()[0].end[0].blocks[0].state, Block::State::kActivePendingFree);
  EXPECT_EQ(snapshot.devices()[0].start[0].blocks[0].state, Block::State::kActiveAllocated);
  EXPECT_EQ(snapshot.devices()[0].events, 1u);
}

TEST(Layouts, EveryDeviceHasItsEvents) {
  const std::string text = R"({"device_traces": [[], [)" + event("alloc", 8192, 10) + R"(], []], "segments": [)" +
                           R"({"device": 1, "address": 8192, "total_size": 512, "stream": 7, "blocks": [)" +
                           block(512, "active_allocated", 10) +
                           R"(]}, {"device": 3, "address": 8192, "total_size": 512,)" + R"("stream": 0, "blocks": [)" +
                           block(512, "inactive") + "]}]}";
  const Snapshot snapshot = Snapshot::parse(text, "two.json");
  ASSERT_THAT(snapshot.devices(), SizeIs(2));
  EXPECT_EQ(snapshot.devices()[0].index, 1);
  EXPECT_EQ(snapshot.devices()[0].events, 1u);
  EXPECT_EQ(snapshot.devices()[0].streams.at(static_cast<std::size_t>(snapshot.devices()[0].end[0].stream)), 7u);
  EXPECT_EQ(snapshot.devices()[1].index, 3);
  EXPECT_THAT(played(snapshot, 0), SizeIs(2));
  EXPECT_THAT(played(snapshot, 1), SizeIs(1));
}

TEST(Layouts, SettingsAreRead) {
  const Snapshot snapshot = parse("", "",
                                  R"(, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "a:1", "max_split_size":)"
                                  R"( 1048576, "garbage_collection_threshold": 0.8, "expandable_segments": true,)"
                                  R"( "roundup_power2_divisions": {"1": 8, "32768": 2}, "unknown": [1, {}]})");
  const RecordedSettings& settings = snapshot.settings();
  EXPECT_EQ(settings.alloc_conf, "a:1");
  EXPECT_EQ(settings.max_split_size, Bytes(kMiB));
  EXPECT_DOUBLE_EQ(settings.garbage_collection_threshold, 0.8);
  EXPECT_TRUE(settings.expandable_segments);
  EXPECT_EQ(settings.roundup_power2_divisions.front(), 8);
  EXPECT_EQ(settings.roundup_power2_divisions.back(), 2);
}

TEST(Layouts, AnOutOfMemoryEventHasWhatWasFree) {
  const auto events = played(parse("", event("oom", 77, 5 * kMiB)));
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_EQ(events[0].action, Action::kOom);
  EXPECT_EQ(events[0].address, 77u);
  EXPECT_EQ(events[0].bytes, Bytes(5 * kMiB));
}

TEST(Layouts, EventsHaveThePoolOfTheSegmentTheyLieIn) {
  const Snapshot snapshot =
      parse(segment(0, 1024, block(1024, "inactive"), R"("segment_pool_id": [0, 1])") + "," +
                segment(2048, 1024, block(1024, "active_allocated", 1000), R"("segment_pool_id": [5, 0])"),
            event("alloc", 0, 600) + "," + event("alloc", 2048, 1000) + "," + freed(0, 600));
  const Device& device = snapshot.devices()[0];
  const auto events = played(snapshot);
  const auto pool_of = [&](std::size_t i) { return device.pools[static_cast<std::size_t>(events[i].pool)]; };
  ASSERT_THAT(events, SizeIs(6));
  EXPECT_EQ(pool_of(2), std::pair(std::uint64_t{0}, std::uint64_t{1}));
  EXPECT_EQ(pool_of(3), std::pair(std::uint64_t{5}, std::uint64_t{0}));
  EXPECT_EQ(pool_of(5), std::pair(std::uint64_t{0}, std::uint64_t{1}));
  EXPECT_EQ(device.pools[0], std::pair(std::uint64_t{0}, std::uint64_t{0}));
}

// The start, where the trace does not tell all.

TEST(Start, ABlockThatIsFreedLivedBefore) {
  const Snapshot snapshot =
      parse(segment(0, 1024, block(1024, "inactive"), R"("segment_type": "small")"), freed(512, 100));
  const Segment& start = snapshot.devices()[0].start[0];
  EXPECT_THAT(sizes(start), ElementsAre(512, 512));
  EXPECT_EQ(start.blocks[1].requested, Bytes(100));
  EXPECT_EQ(start.blocks[1].state, Block::State::kActiveAllocated);
  EXPECT_EQ(start.blocks[0].state, Block::State::kInactive);
}

TEST(Start, ABlockWhoseFreeWasRequestedBeforeIsPending) {
  const Snapshot snapshot = parse(segment(0, 1024, block(1024, "inactive"), R"("segment_type": "small")"),
                                  event("free_completed", 0, 100) + "," + freed(512, 9));
  const Segment& start = snapshot.devices()[0].start[0];
  EXPECT_EQ(start.blocks[0].state, Block::State::kActivePendingFree);
  EXPECT_EQ(start.blocks[1].state, Block::State::kActiveAllocated);
}

TEST(Start, RecordersMaySkipOneOfTheTwoPartsOfAFree) {
  for (const char* action : {"free_requested", "free_completed"}) {
    const Snapshot snapshot = parse(segment(0, 512, block(512, "inactive")), event(action, 0, 100));
    EXPECT_EQ(snapshot.devices()[0].start[0].blocks[0].state, Block::State::kActiveAllocated) << action;
    const auto events = played(snapshot);
    EXPECT_EQ(events.back().action, Action::kFreeCompleted);
    EXPECT_EQ(static_cast<int>(events.back().allocation), 0);
  }
}

TEST(Start, InTheLargePoolARestOfAtMostAMebibyteBelongsToTheBlock) {
  const auto start_of = [](std::int64_t total, std::int64_t requested, const std::string& settings) {
    return sizes(
        parse(segment(0, total, block(total, "inactive")), freed(0, requested), settings).devices()[0].start[0]);
  };
  EXPECT_THAT(start_of(4 * kMiB, 3 * kMiB, ""), ElementsAre(4 * kMiB));
  EXPECT_THAT(start_of(4 * kMiB, 3 * kMiB - 512, ""), ElementsAre(3 * kMiB - 512, kMiB + 512));
  const std::string split = R"(, "allocator_settings": {"max_split_size": 2097152})";
  EXPECT_THAT(start_of(8 * kMiB, 3 * kMiB, split), ElementsAre(8 * kMiB));  // Too large to be split at all.
  const std::string rounds = R"(, "allocator_settings": {"roundup_power2_divisions": {"2": 4}})";
  EXPECT_THAT(start_of(8 * kMiB, 2 * kMiB + 1, rounds),
              ElementsAre(2 * kMiB + kMiB / 2, 8 * kMiB - 2 * kMiB - kMiB / 2));
}

TEST(Start, ALaterAllocationTellsWhereABlockEnds) {
  const std::int64_t end = 2 * kMiB + 5 * 512;
  const Snapshot snapshot =
      parse(segment(0, 20 * kMiB, block(20 * kMiB, "inactive")),
            event("alloc", end, 4 * kMiB) + "," + freed(end, 4 * kMiB) + "," + freed(0, 2 * kMiB));
  EXPECT_THAT(sizes(snapshot.devices()[0].start[0]), ElementsAre(end, 20 * kMiB - end));
  const Snapshot freed_first =
      parse(segment(0, 20 * kMiB, block(20 * kMiB, "inactive")),
            freed(0, 2 * kMiB) + "," + event("alloc", end, 4 * kMiB) + "," + freed(end, 4 * kMiB));
  EXPECT_THAT(sizes(freed_first.devices()[0].start[0]), ElementsAre(2 * kMiB, 18 * kMiB));
}

TEST(Start, SegmentsThatCameAreGoneAndThoseThatWentAreThere) {
  const Snapshot snapshot =
      parse(segment(0, 2 * kMiB, block(2 * kMiB, "inactive"), R"("segment_type": "small")"),
            event("segment_free", 8 * kMiB, 20 * kMiB) + "," + event("segment_alloc", 0, 2 * kMiB));
  const Device& device = snapshot.devices()[0];
  ASSERT_THAT(device.start, SizeIs(1));
  EXPECT_EQ(device.start[0].address, static_cast<std::uint64_t>(8 * kMiB));
  EXPECT_TRUE(device.start[0].large);
  EXPECT_EQ(device.left_out, 0u);
}

TEST(Start, ExpandableSegmentsShrinkAndGrow) {
  const std::string expandable = R"("segment_type": "large", "is_expandable": true)";
  const Snapshot grown =
      parse(segment(0, 60 * kMiB, block(60 * kMiB, "inactive"), expandable),
            event("segment_map", 20 * kMiB, 20 * kMiB) + "," + event("segment_map", 40 * kMiB, 20 * kMiB));
  ASSERT_THAT(grown.devices()[0].start, SizeIs(1));
  EXPECT_THAT(sizes(grown.devices()[0].start[0]), ElementsAre(20 * kMiB));

  const Snapshot hole = parse(segment(0, 60 * kMiB, block(60 * kMiB, "inactive"), expandable),
                              event("segment_map", 20 * kMiB, 20 * kMiB));
  EXPECT_THAT(hole.devices()[0].start, SizeIs(2));

  const Snapshot shrunk = parse(segment(0, 20 * kMiB, block(20 * kMiB, "inactive"), expandable),
                                freed(20 * kMiB, 5 * kMiB) + "," + event("segment_unmap", 20 * kMiB, 20 * kMiB));
  ASSERT_THAT(shrunk.devices()[0].start, SizeIs(1));
  EXPECT_THAT(sizes(shrunk.devices()[0].start[0]), ElementsAre(20 * kMiB, 5 * kMiB, 15 * kMiB));
  EXPECT_EQ(shrunk.devices()[0].left_out, 0u);
}

// In time that grows as the trace does: ranges mapped and blocks freed, a hundred thousand of each.
TEST(Start, ManyBlocksInASegmentThatGrowsOftenTakeNoLonger) {
  constexpr std::int64_t kCount = 100'000;
  std::string events;
  for (std::int64_t i = 0; i < kCount; ++i) events += event("segment_map", (kCount + i) * 512, 512) + ",";
  for (std::int64_t i = 0; i < kCount; ++i) events += (i > 0 ? "," : "") + event("free_completed", i * 512, 100);
  const Snapshot snapshot = parse(segment(0, 2 * kCount * 512, block(2 * kCount * 512, "inactive"),
                                          R"("segment_type": "large", "is_expandable": true)"),
                                  events);
  ASSERT_THAT(snapshot.devices()[0].start, SizeIs(1));
  EXPECT_THAT(snapshot.devices()[0].start[0].blocks, SizeIs(kCount));
}

TEST(Start, WhatContradictsTheRestIsLeftOut) {
  const std::string small = segment(0, 1024, block(512, "active_allocated", 400) + "," + block(512, "inactive"));
  // A free of what lives on, an allocation of which nothing is left, segments that are not there, a second allocation.
  const Snapshot snapshot =
      parse(small, event("alloc", 0, 400) + "," + event("free_completed", 0, 400) + "," + event("alloc", 512, 9) + "," +
                       event("segment_alloc", 4096, 4096) + "," + event("segment_free", 512, 4096) + "," +
                       event("free_completed", 9999, 1) + "," + event("alloc", 0, 400));
  EXPECT_EQ(snapshot.devices()[0].left_out, 4u);
  const auto events = played(snapshot);
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[1].action, Action::kAlloc);
  EXPECT_EQ(events[2].action, Action::kFreeCompleted);
  EXPECT_EQ(events[3].action, Action::kAlloc);
}

TEST(Start, BlocksThatOverlapAreLeftOut) {
  const std::string small = segment(0, 4096, block(1024, "active_allocated", 1000) + "," + block(3072, "inactive"));
  const Snapshot snapshot = parse(small, freed(512, 100) + "," + freed(2048, 1000) + "," + freed(2560, 100));
  const Device& device = snapshot.devices()[0];
  EXPECT_EQ(device.left_out, 4u);
  EXPECT_THAT(played(snapshot), SizeIs(1 + 2 + 2));
}

TEST(Start, FreesThatCarryTheStacksOfWhatTheyFreeNameTheBlocksOfTheStart) {
  const std::string frames_a = R"(, "frames": [{"filename": "a", "line": 1, "name": "f"}])";
  const std::string frames_b = R"(, "frames": [{"filename": "b", "line": 1, "name": "f"}])";
  const std::string small = segment(0, 1024, block(1024, "inactive"), R"("segment_type": "small")");
  const auto stack_at_start = [&](const std::string& of_free) {
    const Snapshot snapshot =
        parse(small, event("free_completed", 512, 9, frames_a) + "," + event("alloc", 0, 9, frames_b) + "," +
                         event("free_completed", 0, 9, of_free));
    return static_cast<std::uint32_t>(snapshot.devices()[0].start[0].blocks[1].stack);
  };
  EXPECT_EQ(stack_at_start(frames_b), 1u);
  EXPECT_EQ(stack_at_start(frames_a), 0u);
}

TEST(Windows, OfTimeNeedAClock) {
  EXPECT_THROW(parse("", event("oom", 0, 1), "", {.from_us = 1}), UsageError);
  const Snapshot snapshot = parse("", event("oom", 0, 1));
  EXPECT_FALSE(snapshot.origin_us());
  EXPECT_EQ(played(snapshot)[0].time_ns, -1);
}

TEST(Windows, BeyondTheRecordingAreEmpty) {
  const Snapshot snapshot = parse("", event("oom", 0, 1), "", {.first = 5, .last = 2});
  EXPECT_EQ(snapshot.devices()[0].events, 0u);
  EXPECT_THAT(played(snapshot), IsEmpty());
}

struct Wrong {
  std::string text, message;
};
class WrongJson : public testing::TestWithParam<Wrong> {};

TEST_P(WrongJson, IsRefusedWithTheOffset) {
  try {
    Snapshot::parse(GetParam().text, "wrong.json");
    FAIL() << GetParam().text.substr(0, 200);
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
    EXPECT_THAT(error.what(), HasSubstr("wrong.json, byte "));
    EXPECT_LE(error.offset(), GetParam().text.size());
  }
}

std::string of_events(const std::string& events) { return R"({"segments": [], "device_traces": [[)" + events + "]]}"; }
std::string of_segments(const std::string& segments) { return R"({"segments": [)" + segments + "]}"; }

INSTANTIATE_TEST_SUITE_P(
    All, WrongJson,
    testing::Values(
        Wrong{"", "empty"}, Wrong{"{}", "no memory snapshot"}, Wrong{"hello", "neither a pickle nor JSON"},
        Wrong{"PK\x03\x04zip", "zip archive"}, Wrong{"{\"segments\": [", "parse error"},
        Wrong{of_events(event("alloc", 1, 2)) + "x", "parse error"}, Wrong{R"({"segments": {}})", "list is wanted"},
        Wrong{R"({"segments": 5})", "a list is wanted"}, Wrong{R"({"device_traces": [{}]})", "list is wanted"},
        Wrong{R"({"device_traces": [[[]]]})", "an object is wanted"}, Wrong{R"({"device_traces": [[7]]})", "is wanted"},
        Wrong{of_events(R"({"addr": 1, "size": 2})"), "without an action"},
        Wrong{of_events(R"({"action": "alloc", "addr": 1})"), "without size or address"},
        Wrong{of_events(R"({"action": "oom", "addr": 1, "size": 2})"), "without size or address"},
        Wrong{of_events(R"({"action": 5, "addr": 1, "size": 2})"), "no text"},
        Wrong{of_events(event("alloc", -4, 2)), "address of an event is -4"},
        Wrong{of_events(event("alloc", 4, -2)), "size of an event is -2"},
        Wrong{of_events(R"({"action": "alloc", "addr": 18446744073709551615, "size": 2})"), "no integer of 64 bits"},
        Wrong{of_events(R"({"action": "alloc", "addr": 1e5, "size": 2})"), "no integer of 64 bits"},
        Wrong{of_events(event("alloc", 1, 2, R"(, "time_us": 9000000000000000000)")), "the time of an event"},
        Wrong{of_events(event("alloc", 1, 2, R"(, "frames": [{"filename": "a", "line": 1}])")), "has not filename"},
        Wrong{of_segments(segment(0, 1024, block(512, "inactive"))), "sum to 512 B"},
        Wrong{of_segments(segment(0, 512, block(512, "happy"))), "state is none of"},
        Wrong{of_segments(segment(0, 512, block(512, "active_allocated", 513))), "requested size"},
        Wrong{of_segments(segment(-1, 512, block(512, "inactive"))), "address of a segment"},
        Wrong{of_segments(segment(0, 512, block(512, "inactive"), R"("segment_type": "huge")")),
              "neither small nor large"},
        Wrong{of_segments(segment(0, 512, block(512, "inactive"), R"("segment_pool_id": [1])")), "no pair"},
        Wrong{of_segments(segment(0, 1024, block(1024, "inactive")) + "," + segment(512, 512, block(512, "inactive"))),
              "overlap"},
        Wrong{of_segments(
                  R"({"address": 0, "total_size": 5, "blocks": [{"address": 3, "size": 5, "state": "inactive"}]})"),
              "does not follow"},
        Wrong{R"({"x": )" + std::string(1000, '['), "nested more than"},
        Wrong{R"({"segments": [], "external_annotations": [{"name": "a", "stage": "MIDDLE", "time_us": 5}]})",
              "stage"}),
    [](const auto& info) { return "Case" + std::to_string(info.index); });
}  // namespace
}  // namespace cinch::snapshot
