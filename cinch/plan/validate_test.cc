#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/plan/solver.h"
#include "cinch/trace/builder.h"

namespace cinch::plan {
namespace {
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Problem problem() { return {.budget = Bytes(100), .batch_size = 8, .modules = {"layers.0", "layers.1"}}; }

// Whole batch: 90 bytes, 1 s. Micro-batch 4: 50 bytes, 2 s.
trace::Trace simulate(const Plan& plan) {
  const bool whole = plan.micro_batch_size == 0;
  trace::TraceBuilder b;
  b.phase(trace::Phase::kBackward, 1).op("op", whole ? 1 : 2);
  b.free(b.alloc(Bytes(whole ? 90 : 50)));
  return b.build();
}

CostModel costs() {
  device::DeviceSpec spec;
  spec.peak_rates = {{DType::kFloat32, 1}};
  return CostModel(spec);
}

Candidate whole() { return {{}, Bytes(90), Seconds(1)}; }
Candidate halves() { return {{.micro_batch_size = 4, .activations = {}}, Bytes(50), Seconds(2)}; }

std::vector<std::string> faults(const Solution& solution) { return validate(problem(), costs(), simulate, solution); }

TEST(ValidateSolution, AcceptsWhatIsRight) {
  EXPECT_THAT(faults({.best = whole(), .frontier = {halves(), whole()}, .unconstrained = whole(), .simulated = 2}),
              IsEmpty());
}

TEST(ValidateSolution, FindsEveryFault) {
  const Solution right{.best = whole(), .frontier = {halves(), whole()}, .unconstrained = whole(), .simulated = 2};
  Solution wrong = right;
  wrong.best.peak = Bytes(80);
  EXPECT_THAT(faults(wrong), Contains(HasSubstr("best: its peak is 90 B, not 80")));
  wrong = right;
  wrong.frontier[0].step_time = Seconds(1.5);
  EXPECT_THAT(faults(wrong), Contains(HasSubstr("frontier[0]: its step takes 2 s, not 1.5")));
  wrong = right;
  wrong.best = halves();
  EXPECT_THAT(faults(wrong), ElementsAre(HasSubstr("frontier[1]: beats the best plan")));
  wrong = right;
  wrong.frontier = {whole(), halves()};
  EXPECT_THAT(faults(wrong), Contains(HasSubstr("peaks do not rise")));
  wrong = right;
  wrong.frontier.push_back(whole());
  EXPECT_THAT(faults(wrong), Contains(HasSubstr("as small and as fast")));
  wrong = right;
  wrong.frontier.pop_back();
  EXPECT_THAT(faults(wrong), Contains(HasSubstr("lacks the best plan")));
  wrong = right;
  wrong.unconstrained = halves();
  EXPECT_THAT(faults(wrong), ElementsAre(HasSubstr("not the default plan")));
  wrong = right;
  wrong.gap = -1;
  EXPECT_THAT(faults(wrong), ElementsAre(HasSubstr("gap")));
  Problem tight = problem();
  tight.budget = Bytes(60);
  EXPECT_THAT(validate(tight, costs(), simulate, right), Contains(HasSubstr("over the budget")));
}

TEST(ValidateSolution, OnACardMeasuresWhatTheCardHolds) {
  Problem card = problem();
  card.overhead = Bytes(5);
  card.on_device = [](const trace::Trace& trace, const Plan& /*plan*/, Bytes /*budget*/) {
    return trace::Timeline(trace).peak().bytes + Bytes(7);
  };
  const Candidate whole{{}, Bytes(97), Seconds(1)};
  const Solution right{.best = whole, .frontier = {whole}, .unconstrained = whole, .simulated = 1};
  EXPECT_THAT(validate(card, costs(), simulate, right), IsEmpty());
  EXPECT_THAT(validate(problem(), costs(), simulate, right), Contains(HasSubstr("its peak is 90 B, not 97")));
  card.overhead = Bytes(8);
  EXPECT_THAT(validate(card, costs(), simulate, right), Contains(HasSubstr("less than its tensors need")));
}

TEST(ValidatePlan, AcceptsWhatIsLegal) {
  EXPECT_THAT(validate(problem(), {}), IsEmpty());
  EXPECT_THAT(
      validate(problem(), {.micro_batch_size = 8, .activations = {{"layers.1", ActivationPolicy::kCheckpoint}}}),
      IsEmpty());
}

TEST(ValidatePlan, NamesWhatIsNot) {
  EXPECT_THAT(validate(problem(), {.micro_batch_size = 0, .activations = {{"layer.1", ActivationPolicy::kKeep}}}),
              ElementsAre(HasSubstr("the nearest is \"layers.1\"")));
  EXPECT_THAT(validate(problem(), {.micro_batch_size = 9, .activations = {}}), ElementsAre(HasSubstr("is 9")));
  EXPECT_THAT(validate(problem(), {.micro_batch_size = -1, .activations = {}}), ElementsAre(HasSubstr("is -1")));
  Problem strict = problem();
  strict.may_divide_batch = false;
  EXPECT_THAT(validate(strict, {.micro_batch_size = 4, .activations = {}}),
              ElementsAre(HasSubstr("may not be divided")));
}
}  // namespace
}  // namespace cinch::plan
