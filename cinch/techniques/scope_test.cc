#include "cinch/techniques/scope.h"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>

#include <ATen/ATen.h>

#include "cinch/record/recorder.h"
#include "cinch/trace/trace.h"

namespace cinch::techniques {
namespace {

TEST(OwningScope, LetsGoOfTheLastFirst) {
  std::string order;
  {
    OwningScope scope;
    scope.at_end([&] { order += "a"; });
    scope.own(std::shared_ptr<int>(new int(1), [&](const int* p) { order += "b", delete p; }));
    scope.at_end([&] { order += "c"; });
  }
  EXPECT_EQ(order, "cba");
}

TEST(OwningScope, FreesTensorsInOrder) {
  trace::Trace trace;
  std::vector<trace::AllocationId> made, freed;
  {
    const record::Recorder recorder(trace);
    OwningScope scope;
    for (int i = 0; i < 3; ++i) made.push_back(*record::allocation_of(scope.own(at::ones({4}))));
    scope.end();
    EXPECT_EQ(recorder.live(), Bytes());
  }
  for (const auto& event : trace.events())
    if (event.action == trace::Action::kFreeCompleted) freed.push_back(event.allocation);
  EXPECT_EQ(freed, std::vector<trace::AllocationId>(made.rbegin(), made.rend()));
}

TEST(OwningScope, AnActionThatThrowsDoesNotKeepTheOthersFromTheirTurn) {
  bool ran = false;
  {
    OwningScope scope;
    scope.at_end([&] { ran = true; });
    scope.at_end([] { throw std::runtime_error("at the end"); });
  }
  EXPECT_TRUE(ran);
}

/// A step of a small chain, whose allocation `fail_at` is refused.
bool fails(std::int64_t fail_at, const at::Tensor& weight, trace::Trace& trace) {
  const record::Recorder recorder(trace, {.fail_at = fail_at});
  try {
    OwningScope step;
    const auto& x = step.own(at::ones({32, 32}));
    step.at_end([&] { weight.mutable_grad().reset(); });
    auto y = x.mm(weight);
    for (int i = 0; i < 4; ++i) y = y.mm(weight).exp();
    y.sum().backward();
  } catch (const record::OutOfMemoryError&) {
    EXPECT_EQ(recorder.live(), Bytes()) << "of the step, when it is caught";
    return true;
  }
  EXPECT_EQ(recorder.live(), Bytes());
  return false;
}

TEST(OwningScope, LeavesNothingBehindWhereverItFails) {
  const auto weight = at::ones({32, 32}).mul_(0.01).requires_grad_();
  std::int64_t failures = 0;
  for (;; ++failures) {
    trace::Trace trace;
    if (!fails(failures, weight, trace)) break;
  }
  EXPECT_GT(failures, 20);
}
}  // namespace
}  // namespace cinch::techniques
