#include "cinch/inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "cinch/allocator/replay.h"
#include "cinch/inspect/internal/layout.h"
#include "cinch/inspect/internal/out_of_memory.h"
#include "cinch/inspect/internal/passes.h"
#include "cinch/inspect/internal/recording_for_test.h"

namespace cinch::inspect {
namespace {

using namespace cinch::literals;
using namespace internal;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::StartsWith;
using trace::Category;
using trace::Phase;

snapshot::Snapshot recorded(const std::string& name) {
  return snapshot::Snapshot::open(std::filesystem::path(CINCH_SOURCE_DIR) / "tests/data/snapshots" /
                                  ("gpt2.7b-b4-s128-" + name + ".pickle.zst"));
}

Inspection inspected(const snapshot::Snapshot& snapshot, const Options& options = {}) {
  return inspect(snapshot, snapshot.devices()[0], options);
}

Live::OfKind row_of(const Live& live, Kind kind) {
  for (const Live::OfKind& row : live.kinds) {
    if (row.kind == kind) return row;
  }
  return {kind, {}, {}, 0, 0, {}};
}

/// What holds of every Inspection.
void expect_sound(const Inspection& seen) {
  for (const Live* live : {&seen.peak, &seen.end}) {
    EXPECT_EQ(live->categories.sum(), live->bytes);
    Bytes kinds, paths = live->more_bytes;
    std::size_t tensors = 0;
    for (const auto& row : live->kinds) {
      kinds += row.bytes;
      tensors += row.tensors;
    }
    for (const auto& row : live->paths) paths += row.bytes;
    EXPECT_EQ(kinds, live->bytes);
    EXPECT_EQ(paths, live->bytes);
    EXPECT_EQ(tensors, live->tensors);
  }
  Bytes highest;
  for (const CurvePoint& point : seen.curve) highest = std::max(highest, point.live.sum());
  if (!seen.curve.empty() && seen.peak.bytes >= seen.end.bytes) {
    EXPECT_EQ(highest, seen.peak.bytes);
  }
  for (const Fragmentation* parts : {&seen.at_peak, &seen.at_end}) {
    EXPECT_EQ(parts->requested + parts->wasted(), parts->reserved);
  }
  EXPECT_THAT(seen.findings, testing::Not(IsEmpty()));
}

TEST(RecordedStep, ThePeakIsInTheFirstOptimizerStep) {
  const auto snapshot = recorded("fp32-step");
  const Inspection seen = inspected(snapshot);
  expect_sound(seen);
  EXPECT_EQ(seen.events, 19'342U);
  EXPECT_EQ(seen.optimizer, "AdamW");
  EXPECT_EQ(seen.optimizer_steps, 1U);
  EXPECT_EQ(seen.peak.bytes, 54'802'667'524_B);
  EXPECT_EQ(seen.peak.event, 19'335U);
  EXPECT_EQ(seen.peak.phase, Phase::kOptimizer);
  EXPECT_EQ(seen.peak.where, "div_Tensor, user/optimizer.py:100 step");
  const auto parameters = row_of(seen.peak, Kind::kParameter), gradients = row_of(seen.peak, Kind::kGradient),
             state = row_of(seen.peak, Kind::kOptimizerState), buffers = row_of(seen.peak, Kind::kBuffer);
  EXPECT_EQ(parameters.bytes, 13'627'238'400_B);
  EXPECT_EQ(parameters.tensors, 291U);
  EXPECT_EQ(parameters.before, parameters.bytes);
  EXPECT_EQ(gradients.bytes, parameters.bytes);
  EXPECT_EQ(gradients.tensors, 291U);
  EXPECT_EQ(state.bytes, parameters.bytes * 2);
  EXPECT_EQ(state.tensors, 582U);
  EXPECT_EQ(buffers.bytes, 1'314'816_B);
  EXPECT_EQ(buffers.tensors, 33U);
  EXPECT_EQ(row_of(seen.peak, Kind::kCublasWorkspace).tensors, 2U);
  EXPECT_EQ(row_of(seen.peak, Kind::kCublasWorkspace).note, "(main, autograd thread)");
  EXPECT_EQ(row_of(seen.peak, Kind::kTemporary).bytes, 204'810'240_B);  // Square root and quotient of AdamW by hand.
  EXPECT_EQ(seen.peak.categories[Category::kUnknown], 0_B);
  EXPECT_THAT(seen.findings[0].text,
              StartsWith("The peak is 54,802,667,524 B (51.04 GiB), in the first optimizer step"));
  EXPECT_THAT(seen.findings[1].text,
              HasSubstr("temporaries of the optimizer's step (div_Tensor, user/optimizer.py:100 step)"));
}

TEST(RecordedStep, WhatIsReservedAtTheEndIsSplitWithoutRest) {
  const auto snapshot = recorded("fp32-step");
  const Fragmentation parts = inspected(snapshot).at_end;
  EXPECT_EQ(parts.reserved, 61'111'009'280_B);
  EXPECT_EQ(parts.requested, 54'597'857'284_B);
  EXPECT_EQ(parts.rounding, 508_B);
  EXPECT_EQ(parts.unsplittable, 275'972'096_B);
  EXPECT_EQ(parts.stranded, 174'312'960_B);
  EXPECT_EQ(parts.cached_segments, 6'062'866'432_B);
  EXPECT_EQ(parts.cached_segment_count, 283U);
  EXPECT_EQ(parts.other_streams + parts.private_pools + parts.pending_frees, 0_B);
}

TEST(RecordedStep, OnACardOf23GiBNoSettingHelps) {
  const auto snapshot = recorded("fp32-step");
  const Inspection seen = inspected(snapshot, {.capacity = 23_GiB});
  expect_sound(seen);
  ASSERT_TRUE(seen.oom);
  const OutOfMemory& oom = *seen.oom;
  EXPECT_FALSE(oom.recorded);
  EXPECT_EQ(oom.event, 12'630U);
  EXPECT_EQ(oom.asked, 100_MiB);
  EXPECT_EQ(oom.short_by, 24'701'718'536_B - 23_GiB);
  EXPECT_EQ(oom.asked - oom.free, oom.short_by);
  EXPECT_FALSE(oom.any_setting_helps);
  EXPECT_EQ(oom.already_at, 12'181U);  // What AdamW's step is spared: rounding and the rest come on top before.
  EXPECT_EQ(oom.headline, "Would run out in backward, event 12,630 of 19,342, asking 100 MiB.");
  EXPECT_EQ(oom.verdict, "NO ALLOCATOR SETTING HELPS: tensors alone need 24,701,718,536 B, 5.4 MiB over 23 GiB.");
  EXPECT_EQ(oom.to_fit, "To fit 23 GiB: AdamW itself must go (offload or 8-bit state, parameters in bf16, or LoRA).");
  EXPECT_EQ(oom.live.categories.sum(), 24'701'718'536_B);
  EXPECT_EQ(row_of(oom.live, Kind::kGradient).bytes, 9'015'736'320_B);
  EXPECT_EQ(row_of(oom.live, Kind::kGradient).tensors, 192U);
  EXPECT_EQ(row_of(oom.live, Kind::kGradient).note, "of 291; 4.29 GiB still to come");
  EXPECT_EQ(row_of(oom.live, Kind::kActivation).bytes + row_of(oom.live, Kind::kTemporary).bytes, 1'990'320'136_B);
  EXPECT_EQ(row_of(oom.live, Kind::kCublasWorkspace).bytes, 67'108'864_B);
  EXPECT_EQ(row_of(oom.live, Kind::kBuffer).bytes, 1'314'816_B);
  // One tensor makes room for 5.4 MiB, but not for what comes after.
  EXPECT_THAT(oom.make_room, IsEmpty());
  EXPECT_EQ(oom.short_at_peak, 54'802'667'524_B - 23_GiB);
  std::vector<std::string> fitting;
  for (const Remedy& remedy : oom.remedies) {
    EXPECT_EQ(remedy.fits, remedy.leaves <= 23_GiB);
    if (remedy.fits) fitting.push_back(remedy.name);
  }
  EXPECT_THAT(fitting, ElementsAre("LoRA", "offloaded state with bf16 parameters and gradients",
                                   "8-bit state with bf16 parameters and gradients"));
}

TEST(RecordedStep, OnOneOf55GiBWouldNotRunOut) {
  const auto snapshot = recorded("fp32-step");
  const Inspection seen = inspected(snapshot, {.capacity = 55_GiB});
  EXPECT_FALSE(seen.oom);
  EXPECT_EQ(seen.fits_capacity, 55_GiB);
}

TEST(RecordedStep, OnOneOf51GiBAndABitFragmentationEndsIt) {
  const auto snapshot = recorded("fp32-step");
  const Inspection seen = inspected(snapshot, {.capacity = Bytes::parse("51.2GiB")});
  ASSERT_TRUE(seen.oom);
  EXPECT_EQ(seen.oom->short_by, 0_B);
  EXPECT_FALSE(seen.oom->already_at);
  EXPECT_THAT(seen.oom->why, HasSubstr("lie free in"));
  EXPECT_THAT(seen.oom->make_room, SizeIs(1));
  EXPECT_EQ(seen.oom->waste.requested + seen.oom->waste.wasted(), seen.oom->waste.reserved);
}

TEST(RecordedStep, OnACardTooSmallForTheModelSaysSo) {
  const auto snapshot = recorded("fp32-step");
  const Inspection seen = inspected(snapshot, {.capacity = 10_GiB});
  ASSERT_TRUE(seen.oom);
  EXPECT_THAT(seen.oom->headline, HasSubstr("before the recording begins"));
  EXPECT_FALSE(seen.oom->any_setting_helps);
}

TEST(RecordedForwards, HaveParametersActivationsAndNoLeak) {
  const auto snapshot = recorded("fp32-forward");
  const Inspection seen = inspected(snapshot);
  expect_sound(seen);
  EXPECT_EQ(seen.peak.bytes, 19'352'504'320_B);
  EXPECT_EQ(seen.peak.categories[Category::kParameter], 13'628'553'216_B);  // Buffers too: nothing tells them apart.
  EXPECT_EQ(row_of(seen.peak, Kind::kActivation).bytes, 5'686'202'368_B);
  EXPECT_EQ(seen.at_end.reserved, 19'667'091'456_B);
  EXPECT_THAT(seen.leaks.found, IsEmpty());
}

TEST(RecordedForwards, UnderAutocastHoldCopiesOfTheWeights) {
  const auto snapshot = recorded("bf16-autocast-forward");
  const Inspection seen = inspected(snapshot);
  expect_sound(seen);
  EXPECT_EQ(seen.peak.bytes, 23'873'313'792_B);
  EXPECT_EQ(row_of(seen.peak, Kind::kAutocastCopy).tensors, 290U);  // All matrices but the embedding, and the gains.
  EXPECT_EQ(row_of(seen.peak, Kind::kAutocastCopy).bytes, Bytes((13'627'238'400 - 102'400'000) / 2));
  EXPECT_THAT(seen.leaks.found, IsEmpty());
}

TEST(Layout, FollowsARecordingToItsLastBlock) {
  for (const char* name : {"fp32-forward", "bf16-autocast-forward", "fp32-step"}) {
    const auto snapshot = recorded(name);
    const snapshot::Device& device = snapshot.devices()[0];
    Layout layout(device.start, allocator::recorded_settings(snapshot.settings()));
    struct Feed final : trace::Sink {
      explicit Feed(Layout& to) : layout(to) {}
      void on_event(const trace::Event& event) override { layout.apply(event); }
      Layout& layout;
    } feed(layout);
    snapshot.play(device, feed);
    EXPECT_EQ(layout.ignored(), 0U) << name;
    auto made = layout.segments(), end = device.end;
    for (auto* segments : {&made, &end}) {  // Whose stacks are as they were recorded, or not.
      for (trace::Segment& segment : *segments) {
        segment.stack = {};
        for (trace::Block& block : segment.blocks) block.stack = {};
      }
    }
    EXPECT_TRUE(made == end) << name;
  }
}

TEST(Window, OfARecordingKeepsItsPositions) {
  const auto path =
      std::filesystem::path(CINCH_SOURCE_DIR) / "tests/data/snapshots/gpt2.7b-b4-s128-fp32-step.pickle.zst";
  const auto snapshot = snapshot::Snapshot::open(path, {.first = 16'748, .last = 19'342, .from_us = {}, .to_us = {}});
  const Inspection seen = inspected(snapshot);
  expect_sound(seen);
  EXPECT_EQ(seen.first_event, 16'748U);
  EXPECT_EQ(seen.events, 2'594U);
  EXPECT_EQ(seen.peak.event, 19'335U);
  EXPECT_EQ(seen.peak.bytes, 54'802'667'524_B);
}

/// Eight tensors of 11 MiB in segments of 12: a rest of 1 MiB is not split off.
RecordingForTest tight(Bytes asked, Bytes free) {
  RecordingForTest made;
  for (int i = 0; i < 8; ++i) made.alloc(11_MiB, kForward);
  made.oom(asked, free, kForward);
  return made;
}

TEST(OutOfMemory, ThatWasRecordedAndThatASettingWouldHaveAvoided) {
  const auto snapshot = tight(12_MiB, 4_MiB).snapshot();
  const Inspection seen = inspected(snapshot);
  ASSERT_TRUE(seen.oom);
  const OutOfMemory& oom = *seen.oom;
  EXPECT_TRUE(oom.recorded);
  EXPECT_EQ(oom.capacity, 100_MiB);
  EXPECT_EQ(oom.asked, 12_MiB);
  EXPECT_EQ(oom.free, 4_MiB);
  EXPECT_EQ(oom.short_by, 0_B);
  EXPECT_TRUE(oom.any_setting_helps) << oom.verdict;
  EXPECT_THAT(oom.setting, HasSubstr("expandable_segments:True"));
  EXPECT_LE(*oom.setting_needs, 100_MiB);
  EXPECT_THAT(oom.headline, StartsWith("Ran out in forward, event 16 of 17, asking 12 MiB."));
  ASSERT_THAT(oom.make_room, SizeIs(1));  // Its segment of 12 MiB is what was asked for.
  EXPECT_EQ(oom.make_room[0].bytes, 11_MiB);
}

TEST(OutOfMemory, ThatWasRecordedAndThatNoSettingAvoids) {
  const auto snapshot = tight(14_MiB, 4_MiB).snapshot();
  const Inspection seen = inspected(snapshot);
  ASSERT_TRUE(seen.oom);
  EXPECT_EQ(seen.oom->short_by, 2_MiB);
  EXPECT_FALSE(seen.oom->any_setting_helps);
  EXPECT_THAT(seen.oom->verdict,
              StartsWith("NO ALLOCATOR SETTING HELPS: tensors alone need 106,954,752 B, 2 MiB over"));
  EXPECT_EQ(seen.findings[0].bytes, 2_MiB);
}

std::vector<Moments::Allocation> of_sizes(const std::vector<std::int64_t>& sizes) {
  std::vector<Moments::Allocation> live;
  live.reserve(sizes.size());
  for (const std::int64_t size : sizes) {
    live.push_back({trace::AllocationId{static_cast<std::uint32_t>(live.size())}, Bytes(size), {}, false, 0});
  }
  return live;
}

std::vector<std::int64_t> sizes_of(const std::vector<Moments::Allocation>& chosen) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(chosen.size());
  for (const auto& allocation : chosen) sizes.push_back(allocation.bytes.count());
  return sizes;
}

TEST(SmallestSet, HasFewestTensorsThenLeastBytes) {
  EXPECT_THAT(sizes_of(smallest_set(of_sizes({10, 50, 30, 20}), 25_B)), ElementsAre(30));
  EXPECT_THAT(sizes_of(smallest_set(of_sizes({10, 50, 30, 20}), 55_B)), ElementsAre(50, 10));
  EXPECT_THAT(sizes_of(smallest_set(of_sizes({10, 50, 30, 20}), 110_B)), ElementsAre(50, 30, 20, 10));
  EXPECT_THAT(smallest_set(of_sizes({10, 50}), 61_B), IsEmpty());
}

trace::Segment segment(std::uint64_t address, const std::vector<std::int64_t>& mib) {
  trace::Segment result{address, {}, {}, {}, true, false, {}, {}};
  for (const std::int64_t size : mib) {  // Negative: free.
    const Bytes bytes(std::abs(size) << 20);
    result.blocks.push_back({address,
                             bytes,
                             size < 0 ? 0_B : bytes,
                             size < 0 ? trace::Block::State::kInactive : trace::Block::State::kActiveAllocated,
                             {}});
    address += static_cast<std::uint64_t>(bytes.count());
    result.total += bytes;
  }
  return result;
}

std::vector<std::int64_t> room(const std::vector<trace::Segment>& segments, Bytes asked, Bytes free = {}) {
  std::vector<std::int64_t> sizes;
  for (const auto& block : smallest_room(segments, asked, asked, free, {}, {}))
    sizes.push_back(block.requested.count() >> 20);
  return sizes;
}

TEST(SmallestRoom, IsTheCheapestRunOfNeighboursOrEmptiedSegments) {
  EXPECT_THAT(room({segment(0, {-8, 4, -8, 30, -18})}, 20_MiB), ElementsAre(4));
  EXPECT_THAT(room({segment(0, {-8, 14, -8}), segment(1 << 30, {5, -25})}, 30_MiB), ElementsAre(5));
  // The driver's 16 MiB and a segment of 20 are 36; a run would cost 14.
  EXPECT_THAT(room({segment(0, {-8, 14, -18}), segment(1 << 30, {2, -18})}, 36_MiB, 16_MiB), ElementsAre(2));
  EXPECT_THAT(room({segment(0, {10})}, 20_MiB), IsEmpty());
}

TEST(CallPath, IsTheOpAndTheUsersLines) {
  trace::StackTable stacks;
  const auto frame = [&](const char* file, const char* function, std::uint32_t line) {
    return trace::Frame{stacks.names().intern(file), stacks.names().intern(function), line};
  };
  const std::vector<trace::Frame> python = {
      frame("CUDACachingAllocator.cpp",
            "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::malloc(void**)", 0),
      frame("??", "at::_ops::bmm::call(at::Tensor const&, at::Tensor const&)", 0),
      frame("??", "at::_ops::einsum::call(c10::basic_string_view<char>)", 0),
      frame("/usr/lib/python3/site-packages/torch/functional.py", "einsum", 407),
      frame("/home/user/model.py", "forward", 22),
      frame("??", "_PyEval_EvalFrameDefault", 0),
      frame("/usr/lib/python3/site-packages/torch/nn/modules/module.py", "_call_impl", 1750),
      frame("/home/user/train.py", "<module>", 3)};
  const CallPath path = call_path(stacks, stacks.intern(python));
  EXPECT_EQ(path.op, "einsum");
  EXPECT_THAT(path.frames, ElementsAre("/home/user/model.py:22 forward", "/home/user/train.py:3 <module>"));
  EXPECT_EQ(to_string(path), "einsum, /home/user/model.py:22 forward");

  const std::vector<trace::Frame> cpp = {
      frame("??", "at::_ops::empty_memory_format::call(c10::ArrayRef<c10::SymInt>)", 0),
      frame("??", "torch::empty(c10::ArrayRef<long>)", 0), frame("net.cc", "Net::forward(at::Tensor)", 12),
      frame("??", "main", 0), frame("??", "__libc_start_main", 0)};
  EXPECT_EQ(to_string(call_path(stacks, stacks.intern(cpp))),
            "empty_memory_format, Net::forward(at::Tensor) net.cc:12");

  const std::vector<trace::Frame> backward = {
      frame("??", "at::_ops::sum::call(at::Tensor const&)", 0),
      frame("??", "torch::autograd::generated::ExpandBackward0::apply(std::vector<at::Tensor>&&)", 0),
      frame("??", "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", 0)};
  EXPECT_EQ(to_string(call_path(stacks, stacks.intern(backward))), "ExpandBackward0: sum");
  EXPECT_EQ(to_string(call_path(stacks, trace::StackId{0})), "(no stack recorded)");
}

TEST(ALoopWithoutOptimizer, ThatKeepsMoreAndMoreIsCalledALeakPerhaps) {
  const StackForTest append = {{"", "at::_ops::clone::call(at::Tensor const&)"}, {"user/serve.py", "answer", 12}};
  RecordingForTest made;
  made.before(20_MiB);
  for (int i = 0; i < 30; ++i) {
    const auto passing = made.alloc(16_MiB, kForward);
    made.alloc(4_MiB, append);
    made.free(passing);
  }
  const auto snapshot = made.snapshot();
  const Inspection seen = inspected(snapshot);
  EXPECT_THAT(seen.findings[0].text, AllOf(StartsWith("LEAK? 4 MiB more live after every repetition"),
                                           HasSubstr(": clone, user/serve.py:12 answer.")));
  // On a smaller card that is what to look at first, not the batch.
  const Inspection smaller = inspected(snapshot, {.capacity = 60_MiB});
  ASSERT_TRUE(smaller.oom);
  EXPECT_EQ(smaller.oom->to_fit,
            "To fit 60 MiB: what grows must go, if it is a leak (clone, user/serve.py:12 answer).");
  ASSERT_THAT(smaller.oom->remedies, SizeIs(1));
  EXPECT_LE(smaller.oom->remedies[0].leaves, 60_MiB);
  EXPECT_GE(smaller.oom->remedies[0].leaves, 40_MiB);  // Before the recording 20, a repetition's 16 and 4.
}

TEST(Leaked, TensorsHaveAKindOfTheirOwn) {
  const auto snapshot =
      snapshot::Snapshot::open(std::filesystem::path(CINCH_SOURCE_DIR) / "tests/data/snapshots/leak_list.json.gz");
  const Inspection seen = inspected(snapshot);
  expect_sound(seen);
  ASSERT_THAT(seen.leaks.found, SizeIs(1));
  const auto leaked = row_of(seen.end, Kind::kLeaked);
  EXPECT_GE(leaked.bytes, seen.leaks.found[0].held);  // And what the first, incomplete, period left.
  EXPECT_EQ(leaked.bytes.count(), static_cast<std::int64_t>(leaked.tensors) * (40 << 10));
  EXPECT_EQ(category_of(Kind::kLeaked), Category::kUnknown);
}

TEST(TraceOfCinchsOwn, HasItsCategoriesAndModules) {
  trace::NameTable names;
  const auto module = names.intern("layers.0");
  trace::Trace trace;
  trace.on_begin({.producer = "", .device_name = "cpu"}, names);
  const auto alloc = [&](std::uint32_t id, Bytes bytes, Phase phase) {
    trace.on_event({.action = trace::Action::kAlloc,
                    .phase = phase,
                    .step = 1,
                    .allocation = trace::AllocationId{id},
                    .module = module,
                    .bytes = bytes});
  };
  alloc(0, 100_B, Phase::kInit);
  trace.on_label(trace::AllocationId{0}, Category::kParameter, names.intern("layers.0.weight"));
  alloc(1, 50_B, Phase::kForward);
  alloc(2, 30_B, Phase::kBackward);
  trace.on_event({.action = trace::Action::kFreeCompleted,
                  .phase = Phase::kBackward,
                  .step = 1,
                  .allocation = trace::AllocationId{1},
                  .bytes = 50_B});
  trace::classify(trace);
  const Inspection seen = inspect(trace, {.capacity = 160_B});
  expect_sound(seen);
  EXPECT_FALSE(seen.has_segments);
  EXPECT_EQ(seen.peak.bytes, 180_B);
  EXPECT_EQ(seen.peak.phase, Phase::kBackward);
  EXPECT_EQ(seen.peak.categories[Category::kActivation], 50_B);
  EXPECT_EQ(to_string(seen.peak.paths[0].path), "layers.0.weight");
  ASSERT_TRUE(seen.oom);
  EXPECT_EQ(seen.oom->event, 2U);
  EXPECT_EQ(seen.oom->short_by, 20_B);
  EXPECT_THAT(seen.oom->make_room, SizeIs(1));
  EXPECT_EQ(seen.oom->make_room[0].bytes, 50_B);
}

TEST(AnEmptyRecording, IsInspectedToo) {
  const RecordingForTest made;
  const auto snapshot = snapshot::Snapshot::parse(made.json(), "empty.json");
  for (const snapshot::Device& device : snapshot.devices()) expect_sound(inspect(snapshot, device));
  RecordingForTest still;
  still.before(20_MiB);
  const auto quiet = still.snapshot();
  const Inspection seen = inspected(quiet, {.capacity = 1_GiB});
  expect_sound(seen);
  EXPECT_FALSE(seen.has_history);
  EXPECT_FALSE(seen.fits_capacity);  // Nobody knows.
  EXPECT_THAT(seen.findings[0].text, StartsWith("No history in this snapshot"));
  EXPECT_EQ(seen.peak.bytes, 20_MiB);
  EXPECT_EQ(seen.events, 0U);
}
}  // namespace
}  // namespace cinch::inspect
