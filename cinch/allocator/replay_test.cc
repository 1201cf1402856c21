#include "cinch/allocator/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace cinch::allocator {
namespace {

using namespace cinch::literals;
using nlohmann::json;
using snapshot::Snapshot;
using testing::HasSubstr;
using testing::StartsWith;
using trace::Action;
using trace::AllocationId;
using trace::Block;
using trace::Event;

Snapshot recorded(const std::string& name) {
  return Snapshot::open(std::string(CINCH_SOURCE_DIR) + "/tests/data/snapshots/" + name + ".pickle.zst");
}
const Snapshot& recorded_step() {
  static const Snapshot step = recorded("gpt2.7b-b4-s128-fp32-step");
  return step;
}

/// A program under the allocator's model, recorded as PyTorch records. What verify() makes of it shows whether it
/// takes such recordings as they are meant.
class Program : SegmentListener {
 public:
  explicit Program(const std::string& conf, Bytes memory = kUnlimitedMemory)
      : settings_(Settings::parse(conf)),
        addresses_(make_addresses(AddressOrder::kDriver)),
        allocator_({.settings = settings_, .device_memory = memory}, *addresses_, this),
        memory_(memory) {}

  std::uint64_t get(Bytes bytes, int stream = 0, int pool = 0) {
    stream_ = stream;
    const auto result = allocator_.allocate(bytes, StreamId{static_cast<std::uint16_t>(stream)},
                                            PoolId{static_cast<std::uint16_t>(pool)});
    const auto* block = std::get_if<Block>(&result);
    if (block == nullptr) {
      const Bytes asked = std::get<OutOfMemory>(result).asked;
      events_.push_back({{"action", "oom"},
                         {"size", asked.count()},
                         {"stream", stream},
                         {"device_free", (memory_ - allocator_.stats().reserved).count()}});
      return 0;
    }
    log("alloc", block->address, bytes, stream);
    requests_[block->address] = {bytes, stream};
    return block->address;
  }
  void request_free(std::uint64_t address) {
    const auto [bytes, stream] = requests_.at(address);
    log("free_requested", address, bytes, stream);
    allocator_.free(address);
  }
  void complete(std::uint64_t address) {
    const auto [bytes, stream] = requests_.at(address);
    log("free_completed", address, bytes, stream);
    allocator_.complete(address);
  }
  void free(std::uint64_t address) {
    request_free(address);
    complete(address);
  }
  void record_stream(std::uint64_t address) { allocator_.record_stream(address, StreamId{9}); }
  void empty_cache() { allocator_.empty_cache(); }
  Stats stats() const { return allocator_.stats(); }

  Snapshot snapshot() const { return read(document()); }
  static Snapshot read(const json& document) { return Snapshot::parse(document.dump(), "program.json"); }

  /// As _dump_snapshot() gives it.
  json document() const {
    json document;
    document["segments"] = json::array();
    for (const trace::Segment& segment : allocator_.segments()) document["segments"].push_back(written(segment));
    document["device_traces"] = json::array({events_});
    json divisions;
    for (std::size_t i = 0; i < 16; ++i) divisions[std::to_string(1 << i)] = settings_.roundup_power2_divisions[i];
    document["allocator_settings"] = {
        {"PYTORCH_CUDA_ALLOC_CONF", settings_.to_string()},
        {"max_split_size", settings_.max_split_size ? settings_.max_split_size->count() : -1},
        {"garbage_collection_threshold", settings_.garbage_collection_threshold},
        {"expandable_segments", settings_.expandable_segments},
        {"roundup_power2_divisions", divisions}};
    return document;
  }

 private:
  void on_segment(Action action, std::uint64_t address, Bytes bytes, StreamId stream) override {
    const char* name = action == Action::kSegmentAlloc  ? "segment_alloc"
                       : action == Action::kSegmentFree ? "segment_free"
                       : action == Action::kSegmentMap  ? "segment_map"
                                                        : "segment_unmap";
    log(name, address, bytes, static_cast<int>(stream));
  }
  void log(const char* action, std::uint64_t address, Bytes bytes, int stream) {
    events_.push_back({{"action", action}, {"addr", address}, {"size", bytes.count()}, {"stream", stream}});
  }
  static json written(const trace::Segment& segment) {
    json blocks = json::array();
    Bytes allocated, active, requested;
    for (const Block& block : segment.blocks) {
      const bool is_allocated = block.state == Block::State::kActiveAllocated;
      const bool is_active = block.state != Block::State::kInactive;
      allocated += is_allocated ? block.size : 0_B;
      active += is_active ? block.size : 0_B;
      requested += block.requested;
      blocks.push_back({{"address", block.address},
                        {"size", block.size.count()},
                        {"requested_size", block.requested.count()},
                        {"state", is_allocated ? "active_allocated"
                                  : is_active  ? "active_pending_free"
                                               : "inactive"},
                        {"frames", json::array()}});
    }
    return {{"device", 0},
            {"address", segment.address},
            {"total_size", segment.total.count()},
            {"allocated_size", allocated.count()},
            {"active_size", active.count()},
            {"requested_size", requested.count()},
            {"stream", static_cast<int>(segment.stream)},
            {"segment_type", segment.large ? "large" : "small"},
            {"segment_pool_id", json::array({static_cast<int>(segment.pool), 0})},
            {"is_expandable", segment.expandable},
            {"frames", json::array()},
            {"blocks", blocks}};
  }

  Settings settings_;
  std::unique_ptr<AddressSource> addresses_;
  CachingAllocator allocator_;
  Bytes memory_;
  int stream_ = 0;
  json events_ = json::array();
  std::map<std::uint64_t, std::pair<Bytes, int>> requests_;
};

/// Many sizes and lifetimes, a second stream, a private pool, delayed frees, an emptied cache.
void work(Program& program) {
  std::vector<std::uint64_t> held;
  const auto keep = [&](std::uint64_t address) {
    if (address != 0) held.push_back(address);
  };
  for (int i = 0; i < 400; ++i) {
    keep(program.get(Bytes(1 + (i * 7919) % (i % 3 == 0 ? 60'000'000 : 3'000'000)), i % 11 == 0 ? 1 : 0,
                     i % 17 == 0 ? 1 : 0));
    if (i % 5 == 4 && held.size() > 4) {
      const std::uint64_t shared = held[held.size() - 3];
      held.erase(held.end() - 3);
      program.record_stream(shared);
      program.request_free(shared);
      keep(program.get(Bytes(700000)));
      program.complete(shared);
    }
    while (held.size() > 12) {
      program.free(held[static_cast<std::size_t>(i) % held.size()]);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) % held.size()));
    }
    if (i % 100 == 60) program.empty_cache();
  }
}

struct Recorded {
  const char* name;
  std::size_t events;
  std::int64_t peak_requested, peak_reserved, end_allocated, end_reserved;
};

class RecordedRuns : public testing::TestWithParam<Recorded> {};

TEST_P(RecordedRuns, AreWhatTheModelDoes) {
  const Snapshot snapshot = recorded(GetParam().name);
  const Verdict verdict = verify(snapshot, snapshot.devices()[0]);
  EXPECT_EQ(verdict.mismatches, 0u) << verdict.first;
  EXPECT_EQ(verdict.events, GetParam().events);
  EXPECT_EQ(verdict.stats.peak_requested.count(), GetParam().peak_requested);
  EXPECT_EQ(verdict.stats.peak_reserved.count(), GetParam().peak_reserved);
  EXPECT_EQ(verdict.stats.allocated.count(), GetParam().end_allocated);
  EXPECT_EQ(verdict.stats.reserved.count(), GetParam().end_reserved);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedRuns,
                         testing::Values(Recorded{"gpt2.7b-b4-s128-fp32-forward", 4657, 19'352'504'320, 19'667'091'456,
                                                  19'498'420'224, 19'667'091'456},
                                         Recorded{"gpt2.7b-b4-s128-bf16-autocast-forward", 5992, 23'873'313'792,
                                                  24'245'174'272, 24'018'738'176, 24'245'174'272},
                                         Recorded{"gpt2.7b-b4-s128-fp32-step", 19342, 54'802'667'524, 61'111'009'280,
                                                  54'873'829'888, 61'111'009'280}));

class Programs : public testing::TestWithParam<const char*> {};

TEST_P(Programs, AreVerifiedEventByEvent) {
  Program program(GetParam());
  work(program);
  const Snapshot snapshot = program.snapshot();
  ASSERT_EQ(snapshot.devices()[0].left_out, 0u);
  const Verdict verdict = verify(snapshot, snapshot.devices()[0]);
  EXPECT_EQ(verdict.mismatches, 0u) << verdict.first;
  EXPECT_EQ(verdict.stats.reserved, program.stats().reserved);
  EXPECT_EQ(verdict.stats.peak_reserved, program.stats().peak_reserved);
  EXPECT_EQ(recorded_settings(snapshot.settings()), Settings::parse(GetParam()));
}

TEST_P(Programs, ThatRunOutToo) {
  Program program(GetParam(), 500_MiB);
  work(program);
  ASSERT_EQ(program.get(600_MiB), 0u);
  const Snapshot snapshot = program.snapshot();
  const Verdict verdict = verify(snapshot, snapshot.devices()[0]);
  EXPECT_EQ(verdict.mismatches, 0u) << verdict.first;
  EXPECT_EQ(recorded_memory(snapshot, snapshot.devices()[0]), 500_MiB);
}

INSTANTIATE_TEST_SUITE_P(All, Programs,
                         testing::Values("", "expandable_segments:True", "max_split_size_mb:30",
                                         "roundup_power2_divisions:[1:4,>:2]", "large_segment_size_mb:48",
                                         "expandable_segments:True,large_segment_size_mb:48",
                                         "garbage_collection_threshold:0.3,per_process_memory_fraction:0.9",
                                         "max_split_size_mb:40,expandable_segments:True"));

TEST(Verify, SaysWhatIsOtherwise) {
  Program program("large_segment_size_mb:48");
  program.get(30_MiB);
  program.get(4_MiB);
  json document = program.document();
  const Snapshot truthful = Program::read(document);
  EXPECT_EQ(verify(truthful, truthful.devices()[0]).mismatches, 0u);
  document["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = "";
  const Snapshot snapshot = Program::read(document);
  const Verdict verdict = verify(snapshot, snapshot.devices()[0]);
  EXPECT_GT(verdict.mismatches, 0u);
  EXPECT_THAT(verdict.first, StartsWith("event 3: recorded segment_alloc of 50,331,648 B at 0x"));
  EXPECT_THAT(verdict.first, HasSubstr(", model segment_alloc of 20,971,520 B at 0x"));
}

TEST(Verify, ABlockElsewhereIsAMismatch) {
  Program program("");
  const auto a = program.get(4_MiB), b = program.get(4_MiB), c = program.get(4_MiB);
  program.get(4_MiB);
  program.free(a);
  program.free(c);
  const auto d = program.get(4_MiB);
  ASSERT_EQ(d, a);  // The lowest of the two holes; the recording shall say the other.
  json document = program.document();
  document["device_traces"][0].back()["addr"] = c;
  json& blocks = document["segments"][0]["blocks"];
  std::swap(blocks[0]["state"], blocks[2]["state"]);
  std::swap(blocks[0]["requested_size"], blocks[2]["requested_size"]);
  const Snapshot snapshot = Program::read(document);
  const Verdict verdict = verify(snapshot, snapshot.devices()[0]);
  EXPECT_EQ(verdict.mismatches, 3u) << verdict.first;  // The request, and two blocks at the end.
  EXPECT_THAT(verdict.first, HasSubstr("4,194,304 B recorded at 0x"));
  EXPECT_NE(b, c);
}

TEST(Verify, WhatIsGivenBackMustBeAll) {
  Program program("");
  const auto a = program.get(30_MiB), b = program.get(40_MiB);
  program.free(a);
  program.free(b);
  json document = program.document();
  json& segments = document["segments"];
  const json gone = segments[0];
  segments.erase(0);
  document["device_traces"][0].push_back(
      {{"action", "segment_free"}, {"addr", gone["address"]}, {"size", gone["total_size"]}, {"stream", 0}});
  const Snapshot snapshot = Program::read(document);
  const Verdict verdict = verify(snapshot, snapshot.devices()[0]);
  EXPECT_GT(verdict.mismatches, 0u);
  EXPECT_THAT(verdict.first, HasSubstr("model segment_free of"));
}

TEST(WhatIf, TheRecordedSettingsGiveTheRecordedFigures) {
  const snapshot::Device& device = recorded_step().devices()[0];
  const WhatIf run = what_if(recorded_step(), device, {});
  EXPECT_TRUE(run.exact_start);
  EXPECT_EQ(run.peak_reserved.low, run.peak_reserved.high);
  EXPECT_EQ(run.peak_reserved.high.count(), 61'111'009'280);
  EXPECT_EQ(run.alloc_retries, 0);
  EXPECT_EQ(run.orders, 1u);
}

TEST(WhatIf, ACardOfThePeakIsEnoughAndOneByteLessTakesARetry) {
  const snapshot::Device& device = recorded_step().devices()[0];
  const WhatIf enough = what_if(recorded_step(), device, {.device_memory = Bytes(61'111'009'280)});
  EXPECT_EQ(enough.alloc_retries, 0);
  const WhatIf tight = what_if(recorded_step(), device, {.device_memory = Bytes(61'111'009'279)});
  EXPECT_EQ(tight.alloc_retries, 1);
  EXPECT_FALSE(tight.failure.has_value());
  EXPECT_LT(tight.end_reserved.high.count(), 61'111'009'280);
}

TEST(WhatIf, ACardThatIsTooSmall) {
  const snapshot::Device& device = recorded_step().devices()[0];
  for (const char* conf : {"", "expandable_segments:True", "max_split_size_mb:128"}) {
    const WhatIf run = what_if(recorded_step(), device, {.settings = Settings::parse(conf), .device_memory = 23_GiB});
    ASSERT_TRUE(run.failure.has_value()) << conf;
    // At the latest where tensors alone are more than the card: event 12,630.
    EXPECT_GT(run.failure->event, 11'000u) << conf;
    EXPECT_LE(run.failure->event, 12'630u) << conf;
    EXPECT_LE(run.peak_reserved.high, 23_GiB) << conf;
    EXPECT_GT(run.alloc_retries, 0) << conf;
    EXPECT_LT(run.failure->why.free_on_device, run.failure->asked) << conf;
  }
}

TEST(WhatIf, ExpandableSegmentsWouldHaveSavedFiveGigabytes) {
  const snapshot::Device& device = recorded_step().devices()[0];
  const WhatIf run = what_if(recorded_step(), device, {.settings = Settings::parse("expandable_segments:True")});
  EXPECT_FALSE(run.exact_start);
  EXPECT_EQ(run.orders, 1u);  // One range: the driver has nothing to choose.
  EXPECT_GE(run.peak_reserved.low.count(), 54'802'667'524);
  EXPECT_EQ(run.peak_reserved.high.count(), 55'511'613'440);
}

/// A trace by hand.
class Script {
 public:
  AllocationId alloc(Bytes bytes, bool before = false) {
    push({.action = Action::kAlloc, .before = before, .allocation = AllocationId{next_}, .bytes = bytes});
    return AllocationId{next_++};
  }
  void free(AllocationId id) { push({.action = Action::kFreeCompleted, .allocation = id}); }
  void push(const Event& event) { trace_.on_event(event); }
  const trace::Trace& trace() const { return trace_; }

 private:
  trace::Trace trace_;
  std::uint32_t next_ = 0;
};

// Two segments of 20 MiB with equal holes of 11 MiB. Whether the next 11 MiB go to the one that is about to be freed
// decides whether 20 MiB find room afterwards.
TEST(WhatIf, AnIntervalWhereTheDriverChooses) {
  Script script;
  const AllocationId a = script.alloc(9_MiB), first = script.alloc(11_MiB);
  script.alloc(9_MiB);
  const AllocationId second = script.alloc(11_MiB);
  script.free(first);
  script.free(second);
  script.alloc(11_MiB);
  script.free(a);
  script.alloc(20_MiB);
  const WhatIf run = what_if(script.trace(), {});
  EXPECT_GT(run.orders, 1u);
  EXPECT_EQ(run.peak_reserved.low, 40_MiB);
  EXPECT_EQ(run.peak_reserved.high, 60_MiB);
  EXPECT_EQ(run.peak_allocated.low, run.peak_allocated.high);
  const WhatIf tight = what_if(script.trace(), {.device_memory = 50_MiB});
  EXPECT_GT(tight.orders_failed, 0u);
  EXPECT_LT(tight.orders_failed, tight.orders);
  ASSERT_TRUE(tight.failure.has_value());
  EXPECT_EQ(tight.failure->event, 8u);
  EXPECT_EQ(tight.failure->asked, 20_MiB);
}

TEST(Replay, TakesADryRun) {
  Script script;
  const AllocationId a = script.alloc(30_MiB);
  script.alloc(0_B);
  script.free(a);
  script.alloc(20_MiB);
  FreshAddresses addresses;
  Replay replay({}, addresses);
  script.trace().replay(replay);
  EXPECT_EQ(replay.stats().peak_reserved, 30_MiB);
  EXPECT_EQ(replay.stats().allocations, 1);
  EXPECT_EQ(replay.events(), 4u);
  ASSERT_EQ(replay.segments().size(), 1u);
  EXPECT_EQ(replay.segments()[0].blocks.size(), 2u);
}

TEST(Replay, StopsWhereItRunsOut) {
  Script script;
  script.alloc(60_MiB, true);
  script.alloc(30_MiB);
  script.alloc(20_MiB);
  script.alloc(1_B);
  FreshAddresses addresses;
  Replay replay({.device_memory = 100_MiB}, addresses);
  script.trace().replay(replay);
  ASSERT_TRUE(replay.failure().has_value());
  EXPECT_EQ(replay.failure()->event, 1u);
  EXPECT_FALSE(replay.failure()->at_start);
  EXPECT_EQ(replay.failure()->asked, 20_MiB);
  EXPECT_EQ(replay.failure()->live, 90_MiB);
  EXPECT_EQ(replay.failure()->why.free_on_device, 10_MiB);
  EXPECT_EQ(replay.stats().allocations, 2);
  FreshAddresses others;
  Replay smaller({.device_memory = 50_MiB}, others);
  script.trace().replay(smaller);
  ASSERT_TRUE(smaller.failure().has_value());
  EXPECT_TRUE(smaller.failure()->at_start);
}

TEST(Replay, PassesOverWhatCannotBe) {
  FreshAddresses addresses;
  Replay replay({}, addresses);
  replay.on_event({.action = Action::kAlloc, .allocation = AllocationId{7}, .bytes = 1_MiB});
  replay.on_event({.action = Action::kAlloc, .allocation = AllocationId{0}, .bytes = Bytes(-5)});
  replay.on_event({.action = Action::kFreeCompleted, .allocation = AllocationId{0}});
  replay.on_event({.action = Action::kFreeCompleted, .allocation = AllocationId{5}});
  replay.on_event({.action = Action::kAlloc, .allocation = AllocationId{1}, .bytes = 1_MiB});
  replay.on_event({.action = Action::kFreeCompleted, .allocation = AllocationId{1}});
  replay.on_event({.action = Action::kFreeCompleted, .allocation = AllocationId{1}});
  EXPECT_EQ(replay.stats().allocations, 0);
  EXPECT_EQ(replay.stats().reserved, 2_MiB);
  EXPECT_FALSE(replay.failure().has_value());
}

TEST(Replay, FollowsAnEmptiedCache) {
  Program program("");
  const auto a = program.get(300_MiB);
  program.free(a);
  program.empty_cache();
  program.get(200_MiB);
  const Snapshot snapshot = program.snapshot();
  const snapshot::Device& device = snapshot.devices()[0];
  EXPECT_EQ(what_if(snapshot, device, {.settings = Settings::parse("max_split_size_mb:100")}).end_reserved.high,
            200_MiB);
  EXPECT_EQ(what_if(snapshot, device, {.settings = Settings::parse("expandable_segments:True")}).end_reserved.high,
            200_MiB);
}

TEST(Replay, ARecordedOutOfMemoryIsTriedAgain) {
  Program program("", 500_MiB);  // The 40 MiB pin a segment of 240 MiB: 300 do not fit, though 460 are free.
  const auto a = program.get(240_MiB);
  program.free(a);
  program.get(40_MiB);
  ASSERT_EQ(program.get(300_MiB), 0u);
  const Snapshot snapshot = program.snapshot();
  const snapshot::Device& device = snapshot.devices()[0];
  ASSERT_EQ(recorded_memory(snapshot, device), 500_MiB);
  const WhatIf now = what_if(snapshot, device, {.device_memory = 500_MiB});
  ASSERT_TRUE(now.failure.has_value());
  EXPECT_EQ(now.failure->asked, 300_MiB);
  const Settings expandable = Settings::parse("expandable_segments:True");
  const WhatIf other = what_if(snapshot, device, {.settings = expandable, .device_memory = 500_MiB});
  EXPECT_FALSE(other.failure.has_value());
  const std::vector<WhatIf> runs{other};
  ASSERT_NE(recommend(runs, now), nullptr);
  EXPECT_EQ(recommend(runs, now)->settings, expandable);
  EXPECT_EQ(recommend(std::vector<WhatIf>{now}, now), nullptr);
}

TEST(Grid, RecommendsExpandableSegmentsForTheRecordedStep) {
  const snapshot::Device& device = recorded_step().devices()[0];
  std::size_t heard = 0;
  const std::vector<WhatIf> runs = grid(recorded_step(), device, {}, [&](const WhatIf&) { ++heard; });
  EXPECT_GE(heard, 20u);
  EXPECT_LE(runs.size(), heard);
  for (std::size_t i = 1; i < runs.size(); ++i) EXPECT_LE(runs[i - 1].peak_reserved.high, runs[i].peak_reserved.high);
  const WhatIf now = what_if(recorded_step(), device, {});
  const WhatIf* best = recommend(runs, now);
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(best->settings.to_string(), "expandable_segments:True");
  for (const WhatIf& run : runs) EXPECT_EQ(Settings::parse(run.settings.to_string()), run.settings);
}

TEST(Grid, LeavesAloneWhatIsWell) {
  Script script;
  for (int i = 0; i < 5; ++i) script.alloc(64_MiB);
  const std::vector<WhatIf> runs = grid(script.trace(), {});
  EXPECT_EQ(recommend(runs, what_if(script.trace(), {})), nullptr);
  const trace::Trace empty;
  EXPECT_EQ(recommend(grid(empty, {}), what_if(empty, {})), nullptr);
}

TEST(RecordedSettings, ExplicitOnesCountAndTheRestIsRead) {
  snapshot::RecordedSettings recorded;
  recorded.alloc_conf = "large_segment_size_mb:64,max_split_size_mb:999";
  recorded.max_split_size = 128_MiB;
  recorded.expandable_segments = true;
  Settings settings = recorded_settings(recorded);
  EXPECT_EQ(settings.large_segment_size, 64_MiB);
  EXPECT_EQ(settings.max_split_size, 128_MiB);
  EXPECT_TRUE(settings.expandable_segments);
  recorded.alloc_conf = "key_of_tomorrow:1";
  recorded.garbage_collection_threshold = -3;
  recorded.max_split_size = Bytes(-1);
  settings = recorded_settings(recorded);
  EXPECT_FALSE(settings.max_split_size.has_value());
  EXPECT_EQ(settings.garbage_collection_threshold, 0);
}
}  // namespace
}  // namespace cinch::allocator
