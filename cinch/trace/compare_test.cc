#include <gtest/gtest.h>

#include <functional>

#include "cinch/trace/builder.h"
#include "cinch/trace/trace.h"

namespace cinch::trace {
namespace {
using namespace literals;

Trace built(const std::function<void(TraceBuilder&)>& make,
            TraceHeader::Source source = TraceHeader::Source::kRecording) {
  TraceBuilder b(source);
  make(b);
  return b.build();
}

TEST(FirstDivergence, NothingWhereOnlyOpsMarksAndClockDiffer) {
  const Trace predicted = built([](TraceBuilder& b) {
    b.phase(Phase::kForward, 1).module("fc").op("aten::mm");
    b.free(b.alloc(4_KiB));
  });
  const Trace recorded = built([](TraceBuilder& b) {
    b.time_ns(5);
    b.free(b.alloc(4_KiB));
    b.oom(1_GiB);
  });
  EXPECT_EQ(first_divergence(predicted, recorded), std::nullopt);
  EXPECT_EQ(first_divergence(Trace(), Trace()), std::nullopt);
}

TEST(FirstDivergence, NamesAnAllocationThatIsMissing) {
  const Trace predicted = built([](TraceBuilder& b) {
    b.phase(Phase::kForward, 1).module("layers.3.attention").op("aten::clone");
    b.alloc(4_KiB);
  });
  const Trace recorded = built([](TraceBuilder& b) { b.phase(Phase::kForward, 1); });
  const auto divergence = first_divergence(predicted, recorded);
  ASSERT_TRUE(divergence);
  EXPECT_EQ(divergence->sentence,
            "predicted 4,096 B in layers.3.attention aten::clone (step 1, forward); recorded nothing.");
  EXPECT_EQ(divergence->left_event, 1u);
  EXPECT_EQ(divergence->right_event, recorded.events().size());
}

TEST(FirstDivergence, NamesTheFirstOfSeveralDifferences) {
  const Trace predicted = built([](TraceBuilder& b) {
    b.phase(Phase::kForward, 1);
    b.alloc(1_KiB);
    b.alloc(2_KiB);
    b.alloc(3_KiB);
  });
  const Trace recorded = built([](TraceBuilder& b) {
    b.alloc(1_KiB);
    b.phase(Phase::kBackward, 1).recompute(true).module("head").alloc(5_KiB);
  });
  EXPECT_EQ(first_divergence(predicted, recorded)->sentence,
            "predicted 2,048 B (step 1, forward); recorded 5,120 B in head (step 1, backward, recomputed).");
}

TEST(FirstDivergence, SeesThatAnotherAllocationIsFreed) {
  const auto free_of = [](bool first) {
    return built([first](TraceBuilder& b) {
      b.phase(Phase::kForward, 1).module("a");
      const AllocationId one = b.alloc(1_KiB);
      b.module("b");
      const AllocationId other = b.alloc(1_KiB);
      b.phase(Phase::kBackward, 1).free(first ? one : other);
    });
  };
  EXPECT_EQ(first_divergence(free_of(true), free_of(true)), std::nullopt);
  const auto divergence = first_divergence(free_of(true), free_of(false));
  ASSERT_TRUE(divergence);
  EXPECT_EQ(divergence->left_event, 4u);
  EXPECT_EQ(divergence->sentence,
            "predicted in step 1, backward, the free of 1,024 B in a (step 1, forward); "
            "recorded in step 1, backward, the free of 1,024 B in b (step 1, forward).");
}

// One step of two micro-batches.
void step(TraceBuilder& b, bool scratch_first, Bytes scratch, Bytes kept) {
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    b.phase(Phase::kForward, 1);
    AllocationId temporary{}, activation{};
    if (scratch_first) temporary = b.alloc(scratch);
    activation = b.alloc(kept);
    if (!scratch_first) temporary = b.alloc(scratch);
    b.free(temporary);
    b.phase(Phase::kBackward, 1).free(activation);
  }
}

TEST(ComparePhaseEnds, DoesNotMindTheOrderInsideAnOp) {
  const Trace predicted = built([](TraceBuilder& b) { step(b, true, 8_B, 100_B); });
  const Trace recorded = built([](TraceBuilder& b) { step(b, false, 8_B, 100_B); });
  EXPECT_TRUE(first_divergence(predicted, recorded));
  EXPECT_EQ(compare_phase_ends(predicted, recorded), std::nullopt);
}

TEST(ComparePhaseEnds, NamesTheFirstPhaseWithBothFigures) {
  const Trace predicted = built([](TraceBuilder& b) { step(b, true, 8_B, 1000_B); });
  const Trace recorded = built([](TraceBuilder& b) { step(b, true, 8_B, 1004_B); });
  EXPECT_EQ(compare_phase_ends(predicted, recorded),
            "live after forward of step 1: predicted 1,000 B, recorded 1,004 B (phase 1 of the trace).");
}

TEST(ComparePhaseEnds, NamesAPeakThatDiffersBetweenEqualEnds) {
  const Trace predicted = built([](TraceBuilder& b) { step(b, true, 8_B, 100_B); });
  const Trace recorded = built([](TraceBuilder& b) { step(b, true, 9_B, 100_B); });
  EXPECT_EQ(compare_phase_ends(predicted, recorded),
            "peak of step 1: predicted 108 B in forward, recorded 109 B in forward.");
}

TEST(ComparePhaseEnds, NamesAPhaseThatIsMissing) {
  const Trace shorter = built([](TraceBuilder& b) { b.phase(Phase::kForward, 1); });
  const Trace longer = built([](TraceBuilder& b) { b.phase(Phase::kForward, 1).phase(Phase::kSave, 1); });
  const Trace other = built([](TraceBuilder& b) { b.phase(Phase::kForward, 2); });
  EXPECT_EQ(compare_phase_ends(shorter, longer),
            "predicted ends; recorded goes on with save of step 1 (phase 2 of the trace).");
  EXPECT_EQ(compare_phase_ends(longer, shorter),
            "recorded ends; predicted goes on with save of step 1 (phase 2 of the trace).");
  EXPECT_EQ(compare_phase_ends(shorter, other),
            "predicted goes on with forward of step 1, recorded with forward of step 2 (phase 1 of the trace).");
}

TEST(AdoptShapes, TakesTensorsAndOpNamesUpToTheFirstDifference) {
  const Trace prediction = built(
      [](TraceBuilder& b) {
        b.phase(Phase::kForward, 1).module("fc").op("aten::addmm", 100);
        b.alloc(TensorInfo{.dtype = DType::kFloat32, .sizes = {4, 4}});
        b.alloc(16_B);
        b.op("aten::relu");
        b.alloc(TensorInfo{.dtype = DType::kBFloat16, .sizes = {2}});
        b.alloc(TensorInfo{.dtype = DType::kFloat32, .sizes = {8}});
      },
      TraceHeader::Source::kDryRun);
  Trace recording = built([](TraceBuilder& b) {
    b.phase(Phase::kForward, 1).module("fc");
    b.alloc(64_B);
    b.alloc(16_B);
    b.alloc(4_B);
    b.alloc(36_B);  // 32 were predicted
    b.alloc(64_B);
  });
  adopt_shapes(recording, prediction);
  const auto made = recording.allocations();
  EXPECT_EQ(made[0].tensor->sizes, (std::vector<std::int64_t>{4, 4}));
  EXPECT_EQ(recording.op_name(made[0].op), "aten::addmm");
  EXPECT_EQ(made[1].op, made[0].op);
  EXPECT_FALSE(made[1].tensor);
  EXPECT_EQ(made[2].tensor->dtype, DType::kBFloat16);
  EXPECT_EQ(recording.op_name(made[2].op), "aten::relu");
  for (std::size_t i : {3u, 4u}) {
    EXPECT_FALSE(made[i].tensor) << i;
    EXPECT_EQ(made[i].op, kNoOp) << i;
  }
  ASSERT_EQ(recording.ops().size(), 2u);
  EXPECT_EQ(recording.ops()[0].flops, 0);
  EXPECT_EQ(recording.name(recording.ops()[0].module), "fc");
  EXPECT_EQ(recording.op_name(Timeline(recording).peak().op), "");  // The last, beyond the difference.
  EXPECT_EQ(recording.op_name(recording.events()[1].op), "aten::addmm");
}

TEST(AdoptShapes, TwiceIsAsOnceAndReplays) {
  const auto make = [](TraceBuilder& b) {
    b.op("aten::mm");
    b.alloc(TensorInfo{.dtype = DType::kFloat32, .sizes = {4}});
    b.op("aten::mm");
    b.alloc(TensorInfo{.dtype = DType::kFloat32, .sizes = {4}});
  };
  const Trace prediction = built(make, TraceHeader::Source::kDryRun);
  Trace recording = built([](TraceBuilder& b) {
    b.alloc(16_B);
    b.alloc(16_B);
  });
  adopt_shapes(recording, prediction);
  adopt_shapes(recording, prediction);
  EXPECT_EQ(recording.ops().size(), 2u);
  Trace copy;
  recording.replay(copy);
  EXPECT_EQ(copy.left_out(), 0u);
  EXPECT_EQ(copy.op_name(copy.allocations()[1].op), "aten::mm");
}
}  // namespace
}  // namespace cinch::trace
