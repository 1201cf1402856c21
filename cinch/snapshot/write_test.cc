#include "cinch/snapshot/write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/trace/builder.h"

namespace cinch::snapshot {
namespace {
using testing::ElementsAre;
using testing::SizeIs;
using trace::Action;

std::filesystem::path recorded(const std::string& name) {
  return std::filesystem::path(CINCH_SOURCE_DIR) / "tests/data/snapshots" / name;
}

class WriteTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("cinch_write_test_" + std::to_string(::getpid()) + "_" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

/// Everything of a snapshot with its stacks spelt out, so that two with other ids can be compared.
nlohmann::json spelt(const Snapshot& snapshot) {
  const auto stack = [&](trace::StackId id) {
    nlohmann::json frames = nlohmann::json::array();
    const trace::NameTable& names = snapshot.stacks().names();
    for (const trace::Frame& frame : snapshot.stacks()[id]) {
      frames.push_back({names[frame.file], frame.line, names[frame.function]});
    }
    return std::to_string(std::hash<std::string>()(frames.dump()));
  };
  const auto segments = [&](const Device& device, const std::vector<trace::Segment>& all) {
    nlohmann::json result = nlohmann::json::array();
    for (const trace::Segment& segment : all) {
      nlohmann::json blocks = nlohmann::json::array();
      for (const trace::Block& block : segment.blocks) {
        blocks.push_back({block.address, block.size.count(), block.requested.count(), static_cast<int>(block.state),
                          stack(block.stack)});
      }
      result.push_back({segment.address, segment.total.count(),
                        device.streams[static_cast<std::size_t>(segment.stream)],
                        device.pools[static_cast<std::size_t>(segment.pool)], segment.large, segment.expandable,
                        stack(segment.stack), blocks});
    }
    return result;
  };
  class Events final : public trace::Sink {
   public:
    explicit Events(std::function<nlohmann::json(const trace::Event&)> spell) : spell_(std::move(spell)) {}
    void on_event(const trace::Event& event) override { all.push_back(spell_(event)); }
    nlohmann::json all = nlohmann::json::array();

   private:
    std::function<nlohmann::json(const trace::Event&)> spell_;
  };
  nlohmann::json result;
  for (const Device& device : snapshot.devices()) {
    Events events([&](const trace::Event& event) -> nlohmann::json {
      return {static_cast<int>(event.action),
              event.before,
              static_cast<std::uint32_t>(event.allocation),
              event.address,
              event.bytes.count(),
              event.time_ns,
              device.streams[static_cast<std::size_t>(event.stream)],
              device.pools[static_cast<std::size_t>(event.pool)],
              stack(event.stack)};
    });
    snapshot.play(device, events);
    result["devices"].push_back(
        {device.index, segments(device, device.start), segments(device, device.end), events.all});
  }
  const RecordedSettings& settings = snapshot.settings();
  result["settings"] = {settings.alloc_conf, settings.max_split_size ? settings.max_split_size->count() : -1,
                        settings.garbage_collection_threshold, settings.expandable_segments,
                        settings.roundup_power2_divisions};
  for (const Annotation& annotation : snapshot.annotations()) {
    result["annotations"].push_back({annotation.name, annotation.start, annotation.device, annotation.time_us});
  }
  result["origin"] = snapshot.origin_us().value_or(-1);
  return result;
}

TEST_F(WriteTest, WhatIsWrittenIsReadAgain) {
  for (const char* name : {"gpt2.7b-b4-s128-fp32-step.pickle.zst", "step-end.pickle"}) {
    const Snapshot snapshot = Snapshot::open(recorded(name));
    write(snapshot, folder_ / "a.pickle", Format::kPickle);
    EXPECT_TRUE(spelt(Snapshot::open(folder_ / "a.pickle")) == spelt(snapshot)) << name;
  }
  const Snapshot snapshot = Snapshot::open(recorded("step-end.pickle"));
  write(snapshot, folder_ / "a.json", Format::kJson);
  EXPECT_TRUE(spelt(Snapshot::open(folder_ / "a.json")) == spelt(snapshot));
}

TEST_F(WriteTest, SeveralDevicesPoolsAndStatesToo) {
  const std::string text = R"({"segments": [
    {"device": 0, "address": 4096, "total_size": 2048, "stream": 9, "segment_pool_id": [3, 1], "segment_type": "small",
     "blocks": [{"size": 1024, "requested_size": 1000, "state": "active_pending_free"}, {"size": 1024, "state": "inactive"}]},
    {"device": 2, "address": 4096, "total_size": 41943040, "stream": 0, "segment_type": "large", "is_expandable": true,
     "blocks": [{"size": 41943040, "requested_size": 41943000, "state": "active_allocated",
                 "frames": [{"filename": "\u00e4 \"q\"", "line": 4294967295, "name": "f"}]}]}],
   "device_traces": [[{"action": "free_requested", "addr": 4096, "size": 1000, "stream": 9}], [],
    [{"action": "segment_map", "addr": 20975616, "size": 20971520, "stream": 0, "time_us": 7},
     {"action": "alloc", "addr": 4096, "size": 41943000, "stream": 0, "time_us": 8},
     {"action": "oom", "device_free": 5, "size": 1099511627776, "stream": 0, "time_us": 9},
     {"action": "snapshot", "addr": 0, "size": 5, "stream": 0, "time_us": 9}]],
   "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": 7,
    "garbage_collection_threshold": 0.75, "expandable_segments": true, "roundup_power2_divisions": {"4": 3}},
   "external_annotations": [{"name": "b", "stage": "END", "device": 2, "time_us": 9},
                            {"name": "b", "stage": "START", "device": 2, "time_us": 3}]})";
  const Snapshot snapshot = Snapshot::parse(text, "x");
  EXPECT_TRUE(snapshot.annotations()[0].start);  // By time.
  for (const char* name : {"a.pickle", "a.json"}) {
    write(snapshot, folder_ / name, format_of(name));
    EXPECT_EQ(spelt(Snapshot::open(folder_ / name)), spelt(snapshot));
  }
}

TEST_F(WriteTest, AWindowIsARecordingOfItsOwn) {
  const Snapshot window =
      Snapshot::open(recorded("gpt2.7b-b4-s128-fp32-step.pickle.zst"), {.first = 3'000, .last = 9'000});
  write(window, folder_ / "a.pickle", Format::kPickle);
  const Snapshot again = Snapshot::open(folder_ / "a.pickle");
  EXPECT_EQ(again.devices()[0].events, 6'000u);
  EXPECT_EQ(again.devices()[0].left_out, 0u);
  EXPECT_EQ(again.devices()[0].end.size(), window.devices()[0].end.size());
}

// PyTorch's MemoryViz.js reads no other opcodes; MARK … STOP by their bytes.
TEST_F(WriteTest, OldViewersKnowAllOpcodes) {
  write(Snapshot::open(recorded("step-end.pickle")), folder_ / "a.pickle", Format::kPickle);
  const std::string bytes = read_file(folder_ / "a.pickle");
  ASSERT_EQ(bytes.substr(0, 2), "\x80\x02");
  std::size_t at = 2;
  while (bytes.at(at) != '.') {
    const auto opcode = static_cast<unsigned char>(bytes[at++]);
    switch (opcode) {
      case '(':
      case '}':
      case ']':
      case 'u':
      case 'e':
      case 0x86:
      case 0x88:
      case 0x89:
        break;
      case 'K':
      case 'h':
      case 'q':
        at += 1;
        break;
      case 'M':
        at += 2;
        break;
      case 'J':
      case 'j':
      case 'r':
        at += 4;
        break;
      case 'G':
        at += 8;
        break;
      case 'X':
        at += 4 + (static_cast<unsigned char>(bytes[at]) | static_cast<unsigned char>(bytes[at + 1]) << 8);
        break;
      case 0x8a:
        ASSERT_LE(bytes[at], 8);
        at += 1 + static_cast<std::size_t>(bytes[at]);
        break;
      default:
        FAIL() << "opcode " << int{opcode} << " at " << at - 1;
    }
  }
  EXPECT_EQ(at + 1, bytes.size());
}

trace::Trace small_trace() {
  trace::TraceBuilder builder;
  builder.phase(trace::Phase::kForward, 1).module("layers.0");
  builder.op("aten::mm");
  const auto h = builder.alloc(Bytes(1000));
  builder.label(h, trace::Category::kActivation, "h");
  builder.alloc(Bytes(3 << 20));
  builder.phase(trace::Phase::kBackward, 1).free(h);
  builder.oom(Bytes(77));
  return builder.build();
}

TEST_F(WriteTest, ATraceOfOurOwnHasAddressesStacksAndPhases) {
  for (const char* name : {"own.pickle", "own.json"}) {
    write(small_trace(), folder_ / name, format_of(name));
    const Snapshot snapshot = Snapshot::open(folder_ / name);
    ASSERT_THAT(snapshot.devices(), SizeIs(1));
    const Device& device = snapshot.devices()[0];
    EXPECT_EQ(device.left_out, 0u);
    EXPECT_TRUE(device.start.empty());
    ASSERT_THAT(device.end, SizeIs(1));
    EXPECT_EQ(device.end[0].blocks[0].requested, Bytes(3 << 20));
    trace::Trace played;
    snapshot.play(device, played);
    std::vector<Action> actions;
    for (const trace::Event& event : played.events()) actions.push_back(event.action);
    EXPECT_THAT(actions,
                ElementsAre(Action::kSegmentAlloc, Action::kAlloc, Action::kSegmentAlloc, Action::kAlloc,
                            Action::kFreeRequested, Action::kFreeCompleted, Action::kSegmentFree, Action::kOom));
    EXPECT_NE(played.events()[1].address, played.events()[3].address);
    std::vector<std::string> names;
    for (const trace::Frame& frame : snapshot.stacks()[played.events()[1].stack]) {
      names.push_back(snapshot.stacks().names()[frame.file] + " " + snapshot.stacks().names()[frame.function]);
    }
    EXPECT_THAT(names, ElementsAre("activation h", "op aten::mm", "module layers.0", "phase forward"));
    ASSERT_THAT(snapshot.annotations(), SizeIs(4));
    EXPECT_EQ(snapshot.annotations()[0].name, "step 1 forward");
  }
}

TEST_F(WriteTest, ChromeSeesCountersAndSlices) {
  write(small_trace(), folder_ / "own.trace.json", Format::kChrome);
  const auto own = nlohmann::json::parse(read_file(folder_ / "own.trace.json"))["traceEvents"];
  std::vector<std::string> kinds;
  for (const auto& event : own) kinds.push_back(event["ph"]);
  EXPECT_THAT(kinds, ElementsAre("M", "B", "E", "B", "E", "C", "C", "C", "i"));
  EXPECT_EQ(own[6]["args"]["requested"], 1000 + (3 << 20));

  write(Snapshot::open(recorded("step-end.pickle")), folder_ / "a.trace.json", Format::kChrome);
  const auto events = nlohmann::json::parse(read_file(folder_ / "a.trace.json"))["traceEvents"];
  std::size_t counters = 0, slices = 0;
  for (const auto& event : events) {
    counters += event["ph"] == "C" ? 1 : 0;
    slices += event["ph"] == "B" ? 1 : 0;
    if (event["ph"] == "C") {
      EXPECT_GE(event["args"]["reserved"], event["args"]["requested"]);
    }
  }
  EXPECT_GT(counters, 200u);
  EXPECT_EQ(slices, 2u);
}

TEST_F(WriteTest, TheNameSaysTheFormat) {
  EXPECT_EQ(format_of("a/b.pickle"), Format::kPickle);
  EXPECT_EQ(format_of("b.pkl"), Format::kPickle);
  EXPECT_EQ(format_of("b.json"), Format::kJson);
  EXPECT_EQ(format_of("b.trace.json"), Format::kChrome);
  EXPECT_EQ(format_of("b.chrome.json"), Format::kChrome);
  EXPECT_THROW(format_of("b.txt"), UsageError);
}

TEST_F(WriteTest, FoldersThatAreMissingAreIoErrors) {
  EXPECT_THROW(write(small_trace(), folder_ / "no" / "a.pickle", Format::kPickle), IoError);
  trace::Trace of_snapshot;
  const Snapshot snapshot = Snapshot::open(recorded("step-end.pickle"));
  snapshot.play(snapshot.devices()[0], of_snapshot);
  EXPECT_THROW(write(of_snapshot, folder_ / "a.pickle", Format::kPickle), UsageError);
}
}  // namespace
}  // namespace cinch::snapshot
