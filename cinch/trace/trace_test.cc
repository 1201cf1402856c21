#include "cinch/trace/trace.h"

#include <gtest/gtest.h>

#include <memory>

#include "cinch/core/error.h"
#include "cinch/trace/builder.h"

namespace cinch::trace {
namespace {
using namespace literals;

Event alloc_event(std::uint32_t id, Bytes bytes) {
  return {.action = Action::kAlloc, .allocation = AllocationId{id}, .bytes = bytes};
}
Event free_event(std::uint32_t id) { return {.action = Action::kFreeCompleted, .allocation = AllocationId{id}}; }

TEST(Trace, JoinsEventsIntoAllocations) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1).module("fc1");
  const OpId addmm = b.op("aten::addmm", 1e6);
  const AllocationId h = b.alloc({.dtype = DType::kFloat32, .sizes = {8, 16}});
  b.phase(Phase::kBackward, 1).free(h);
  const Trace trace = b.build();

  ASSERT_EQ(trace.allocations().size(), 1u);
  const Allocation& made = trace.allocation(h);
  EXPECT_EQ(made.bytes, Bytes(8 * 16 * 4));
  EXPECT_EQ(made.allocated_at, 1u);
  EXPECT_EQ(made.freed_at, 3u);
  EXPECT_EQ(made.phase, Phase::kForward);
  EXPECT_EQ(made.step, 1u);
  EXPECT_EQ(made.op, addmm);
  EXPECT_EQ(trace.name(made.module), "fc1");
  EXPECT_EQ(trace.op_name(made.op), "aten::addmm");
  ASSERT_TRUE(made.tensor);
  EXPECT_EQ(made.tensor->sizes, (std::vector<std::int64_t>{8, 16}));
  EXPECT_EQ(trace.events()[3].bytes, made.bytes);  // The producer need not repeat the size.
  EXPECT_EQ(trace.steps(), 1u);
  EXPECT_EQ(trace.left_out(), 0u);
}

TEST(Trace, OutlivesItsProducersNames) {
  Trace trace;
  {
    auto names = std::make_unique<NameTable>();
    trace.on_begin({.producer = "p", .device_name = "cpu", .threads = 2}, *names);
    names->intern("never met");
    Event event = alloc_event(0, 1_KiB);
    event.module = names->intern("layers.3");
    trace.on_event(event);
    trace.on_label(AllocationId{0}, Category::kParameter, names->intern("layers.3.weight"));
  }
  const Trace copy = trace;
  EXPECT_EQ(copy.name(copy.allocation(AllocationId{0}).module), "layers.3");
  EXPECT_EQ(copy.name(copy.allocation(AllocationId{0}).name), "layers.3.weight");
  EXPECT_EQ(copy.header().threads, 2);
  EXPECT_EQ(copy.name(NameId{99}), "");
  EXPECT_EQ(copy.op_name(kNoOp), "");
  EXPECT_EQ(copy.op_name(OpId{5}), "");
}

TEST(Trace, LeavesOutWhatContradictsItself) {
  Trace trace;
  const NameTable names;
  trace.on_begin({}, names);
  trace.on_event(alloc_event(0, 1_KiB));
  trace.on_event(alloc_event(2, 1_KiB));  // 1 is next
  trace.on_event(alloc_event(0, 1_KiB));  // again
  trace.on_event(alloc_event(0xffffffffu, 1_KiB));
  trace.on_event(alloc_event(1, Bytes(-5)));
  trace.on_event(free_event(7));  // never made
  trace.on_event(free_event(0));
  trace.on_event(free_event(0));  // twice
  trace.on_op(OpId{3}, {});
  trace.on_label(AllocationId{9}, Category::kInput, NameId{});
  trace.on_tensor(AllocationId{9}, {});
  EXPECT_EQ(trace.events().size(), 2u);
  EXPECT_EQ(trace.allocations().size(), 1u);
  EXPECT_EQ(trace.left_out(), 9u);
}

TEST(Trace, ANameTheProducerDoesNotHaveIsEmpty) {
  Trace trace;
  const NameTable names;
  trace.on_begin({}, names);
  Event event = alloc_event(0, 1_KiB);
  event.module = NameId{1000};
  trace.on_event(event);
  EXPECT_EQ(trace.events()[0].module, NameId{0});
}

TEST(Trace, TheFirstOfTheCategoriesWinsAmongLabels) {
  TraceBuilder b;
  const AllocationId first = b.alloc(1_KiB), second = b.alloc(1_KiB), third = b.alloc(1_KiB);
  b.label(first, Category::kInput, "inputs").label(first, Category::kParameter, "w");
  b.label(second, Category::kParameter, "v").label(second, Category::kGradient, "v.grad");
  b.label(third, Category::kGradient, "g").label(third, Category::kOptimizerState, "m");
  const Trace trace = b.build();
  EXPECT_EQ(trace.allocation(first).category, Category::kParameter);
  EXPECT_EQ(trace.name(trace.allocation(first).name), "w");
  EXPECT_EQ(trace.allocation(second).category, Category::kParameter);
  EXPECT_EQ(trace.name(trace.allocation(second).name), "v");
  EXPECT_EQ(trace.allocation(third).category, Category::kOptimizerState);
}

// Writes down the order of the calls.
class Journal final : public Sink {
 public:
  void on_begin(const TraceHeader& header, const NameTable&) override { text += "begin " + header.device_name + "; "; }
  void on_op(OpId id, const OpCall&) override { text += "op " + std::to_string(static_cast<unsigned>(id)) + "; "; }
  void on_event(const Event& event) override {
    if (event.action == Action::kAlloc) text += "alloc; ";
    if (event.action == Action::kFreeCompleted) text += "free; ";
    if (event.action == Action::kMark) text += "mark; ";
    if (event.action == Action::kOom) text += "oom; ";
  }
  void on_tensor(AllocationId, const TensorInfo&) override { text += "tensor; "; }
  void on_label(AllocationId, Category category, NameId) override {
    text += "label " + std::string(name_of(category)) + "; ";
  }
  std::string text;
};

TEST(Trace, ReplaysInOrder) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1).op("aten::mm");
  const AllocationId h = b.alloc({.dtype = DType::kFloat32, .sizes = {2}});
  b.op("aten::relu");
  b.alloc(4_B);
  b.free(h).oom(1_GiB);
  b.op("aten::add_");
  b.label(h, Category::kInput);
  Trace trace = b.build();
  classify(trace);  // Its guesses are not labels.
  Journal journal;
  trace.replay(journal);
  EXPECT_EQ(journal.text, "begin cpu; mark; op 0; alloc; tensor; label input; op 1; alloc; free; oom; op 2; ");
}

TEST(Trace, AReplayedTraceIsTheSame) {
  TraceBuilder b;
  b.phase(Phase::kForward, 1).module("fc1").op("aten::mm", 12, 3_B, 4_B);
  const AllocationId h = b.alloc(1_KiB);
  b.label(h, Category::kBuffer, "mask");
  b.phase(Phase::kSave, 1).free(h);
  const Trace trace = b.build();
  Trace copy;
  trace.replay(copy);
  EXPECT_EQ(first_divergence(trace, copy), std::nullopt);
  EXPECT_EQ(copy.events().size(), trace.events().size());
  EXPECT_EQ(copy.op_name(OpId{0}), "aten::mm");
  EXPECT_EQ(copy.name(copy.allocation(h).name), "mask");
  EXPECT_EQ(copy.name(copy.allocation(h).module), "fc1");
  EXPECT_EQ(copy.left_out(), 0u);
}

TEST(TraceBuilder, RefusesToFreeWhatDoesNotLive) {
  TraceBuilder b;
  const AllocationId h = b.alloc(1_KiB);
  b.free(h);
  EXPECT_THROW(b.free(h), UsageError);
}
}  // namespace
}  // namespace cinch::trace
