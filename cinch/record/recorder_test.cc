#include "cinch/record/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"

namespace cinch::record {
namespace {
using namespace cinch::literals;

TEST(Recorder, EveryTensorIsAnEventFromAllocationToFree) {
  trace::Trace trace;
  {
    Recorder recorder(trace);
    auto a = at::empty({256});
    { auto b = at::empty({512}); EXPECT_EQ(recorder.live(), 3072_B); }
    EXPECT_EQ(recorder.live(), 1024_B);
    EXPECT_EQ(recorder.peak(), 3072_B);
    EXPECT_EQ(memory_stats().live, 1024_B);
    EXPECT_GT(memory_stats().resident, 0_B);
    EXPECT_EQ(allocation_of(a), trace::AllocationId{0});
  }
  ASSERT_EQ(trace.allocations().size(), 2u);
  EXPECT_EQ(trace.allocations()[0].bytes, 1024_B);
  EXPECT_NE(trace.allocations()[1].freed_at, trace::kAfterTrace);
  EXPECT_EQ(trace::Timeline(trace).peak().bytes, 3072_B);
}

TEST(Recorder, TensorsMadeBeforeAndAfterAreLeftAlone) {
  trace::Trace trace;
  auto before = at::empty({100});
  at::Tensor kept;
  {
    Recorder recorder(trace);
    before = at::Tensor();
    EXPECT_EQ(recorder.live(), 0_B);
    kept = at::empty({10});
    EXPECT_EQ(recorder.live(), 40_B);
  }
  trace::Trace second;
  Recorder recorder(second);
  kept = at::Tensor();  // of an earlier recorder
  EXPECT_EQ(recorder.live(), 0_B);
  EXPECT_EQ(second.events().size(), 0u);
}

TEST(Recorder, ThereIsOneAtATime) {
  trace::Trace trace, other;
  Recorder recorder(trace);
  EXPECT_THROW(Recorder second(other), UsageError);
}

TEST(Recorder, TheCapRefusesOneByteTooMuchAndNothingElse) {
  trace::Trace trace;
  Recorder recorder(trace, {.cap = 4096_B});
  auto a = at::empty({512});
  auto b = at::empty({512});
  try {
    at::empty({1}, at::kByte);
    FAIL() << "a byte over the cap was given";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.requested(), 1_B);
    EXPECT_EQ(error.live(), 4096_B);
    EXPECT_EQ(error.cap(), 4096_B);
    EXPECT_EQ(error.live_by_category().sum(), 4096_B);
    EXPECT_THAT(std::string(error.what()), ::testing::HasSubstr("1 B would have to go"));
  }
  b = at::Tensor();
  EXPECT_NO_THROW(at::empty({512}));
  EXPECT_EQ(trace.events()[3].action, trace::Action::kOom);
}

TEST(Recorder, OneAllocationCanBeMadeToFail) {
  trace::Trace trace;
  Recorder recorder(trace, {.fail_at = 1});
  auto a = at::empty({1});
  EXPECT_THROW(at::empty({1}), OutOfMemoryError);
  EXPECT_NO_THROW(at::empty({1}));
}

TEST(Recorder, EventsSayPhaseStepAndModule) {
  trace::Trace trace;
  const std::string path = "layers.3";
  {
    Recorder recorder(trace, {.clock = true});
    trace::PhaseScope phase(trace::Phase::kForward, 7);
    ForwardModule module(path);
    auto a = at::empty({1});
  }
  ASSERT_EQ(trace.events().size(), 3u);
  EXPECT_EQ(trace.events()[0].action, trace::Action::kMark);
  EXPECT_EQ(trace.events()[1].phase, trace::Phase::kForward);
  EXPECT_EQ(trace.events()[1].step, 7u);
  EXPECT_EQ(trace.name(trace.events()[1].module), "layers.3");
  EXPECT_GE(trace.events()[1].time_ns, 0);
}

TEST(Recorder, BackwardBelongsToTheModuleOfTheForwardOp) {
  trace::Trace trace;
  const std::string first = "first", second = "second";
  {
    Recorder recorder(trace);
    auto x = at::ones({100}).set_requires_grad(true);
    at::Tensor y;
    {
      trace::PhaseScope phase(trace::Phase::kForward, 1);
      { ForwardModule module(first); y = x.exp(); }
      { ForwardModule module(second); y = y.sin(); }
      y = y.sum();
    }
    trace::PhaseScope phase(trace::Phase::kBackward, 1);
    y.backward();
  }
  std::vector<std::string> modules;
  for (const auto& event : trace.events())
    if (event.action == trace::Action::kAlloc && event.phase == trace::Phase::kBackward && event.bytes == 400_B)
      modules.emplace_back(trace.name(event.module));
  EXPECT_THAT(modules, ::testing::ElementsAre("second", "second", "first"));  // cos, its product, the product with exp
}

TEST(Recorder, WorkersTakeTheContextOfTheThreadTheyWorkFor) {
  trace::Trace trace;
  {
    Recorder recorder(trace);
    trace::PhaseScope phase(trace::Phase::kForward, 1);
    auto a = at::empty({1});
    std::thread([] { auto b = at::empty({2}); }).join();
  }
  for (const auto& event : trace.events()) EXPECT_EQ(event.phase, trace::Phase::kForward);
}

TEST(Recorder, LabelsMoveLiveBytesBetweenCategories) {
  trace::Trace trace;
  Recorder recorder(trace);
  auto a = at::empty({25});
  label(a, trace::Category::kParameter, "w");
  EXPECT_EQ(memory_stats().by_category[trace::Category::kParameter], 100_B);
  EXPECT_EQ(memory_stats().by_category.sum(), 100_B);
  label(at::Tensor(), trace::Category::kParameter, "nothing");
  EXPECT_EQ(trace.allocations()[0].category, trace::Category::kParameter);
  EXPECT_EQ(trace.name(trace.allocations()[0].name), "w");
}

TEST(Recorder, MutedThreadsAreNotSeen) {
  trace::Trace trace;
  Recorder recorder(trace);
  { Muted muted; auto a = at::empty({25}); EXPECT_EQ(allocation_of(a), std::nullopt); }
  EXPECT_EQ(trace.events().size(), 0u);
}
}  // namespace
}  // namespace cinch::record
