#include "cinch/techniques/leak_check.h"

#include <memory>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"

namespace cinch::techniques {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = Holder::Kind;

/// A model of one weight, made before any check.
struct Model {
  at::Tensor weight = at::linspace(-1, 1, 64).view({8, 8}).clone().requires_grad_();
  at::Tensor input = at::ones({8, 8});
  at::Tensor loss() const { return input.mm(weight).tanh().mul(weight).sum(); }
};

std::vector<Kind> kinds(const std::vector<Holder>& holders) {
  std::vector<Kind> result;
  for (const auto& holder : holders) result.push_back(holder.kind);
  return result;
}

std::string texts(const std::vector<Leak>& leaks) {
  std::string all;
  for (const auto& leak : leaks) all += leak.text() + "\n";
  return all;
}

TEST(LeakCheck, AStepThatLetsGoOfEverythingHasNone) {
  const Model model;
  const LeakCheck check;
  for (int step = 0; step < 3; ++step) {
    const auto loss = model.loss();
    loss.backward();
    model.weight.mutable_grad().reset();
  }
  EXPECT_EQ(texts(check.leaks()), "");
  check.check();
}

TEST(LeakCheck, KeepsNothingAliveItself) {
  const Model model;
  trace::Trace trace;
  const record::Recorder recorder(trace);
  const LeakCheck check;
  {
    const auto loss = model.loss();
    EXPECT_FALSE(check.leaks().empty());
  }
  EXPECT_EQ(recorder.live(), Bytes());
}

// ---- the leaks people have ------------------------------------------------------------------------------------------

/// `train_loss += loss` (ML2021#2, packnet-sfm#47).
TEST(LeakCheck, NamesTheSumOfLossesThatHoldsEveryStepsGraph) {
  const Model model;
  auto total = at::zeros({});
  LeakCheck check;
  check.name(total, "total_loss");
  for (int step = 0; step < 3; ++step) {
    const auto loss = model.loss();
    total += loss;
  }
  const auto leaks = check.leaks();
  ASSERT_EQ(leaks.size(), 3u) << texts(leaks);
  EXPECT_EQ(
      leaks[0].text(),
      "256 B Float [8, 8], made by aten::tanh: saved by MulBackward0 for the backward pass of total_loss; saved by "
      "TanhBackward0 for the backward pass of total_loss");
  for (const auto& leak : leaks) {
    ASSERT_FALSE(leak.holders.empty());
    EXPECT_EQ(leak.holders[0].kind, Kind::kGraph);
    EXPECT_THAT(leak.holders[0].text, HasSubstr("for the backward pass of total_loss"));
  }
}

TEST(LeakCheck, FindsNoneWhereTheSumIsOfDetachedLosses) {
  const Model model;
  auto total = at::zeros({});
  const LeakCheck check;
  for (int step = 0; step < 3; ++step) total += model.loss().detach();
  EXPECT_EQ(texts(check.leaks()), "");
}

TEST(LeakCheck, FindsLossesInAContainerAndTheirGraphs) {
  const Model model;
  std::vector<at::Tensor> losses;
  const LeakCheck check;
  losses.push_back(model.loss());
  const auto leaks = check.leaks();
  const auto& loss = leaks.back();
  EXPECT_EQ(loss.op, "aten::sum");
  EXPECT_EQ(kinds(loss.holders), std::vector{Kind::kProgram});
  EXPECT_THAT(loss.holders[0].text, HasSubstr("held by 1 handle of the program"));
  EXPECT_THAT(texts(leaks), HasSubstr("for the backward pass of the Float [] of aten::sum"));
  losses.clear();
  EXPECT_EQ(texts(check.leaks()), "");
}

TEST(LeakCheck, FindsARetainedGraph) {
  const Model model;
  const LeakCheck check;
  const auto loss = model.loss();
  loss.backward({}, /*retain_graph=*/true);
  model.weight.mutable_grad().reset();
  EXPECT_THAT(texts(check.leaks()), HasSubstr("saved by TanhBackward0"));
  loss.backward();
  model.weight.mutable_grad().reset();
  EXPECT_THAT(texts(check.leaks()), Not(HasSubstr("saved by")));
}

/// pytorch#16744: backward(create_graph) in C++.
TEST(LeakCheck, FindsTheCycleOfAParameterAndItsGradientsGraph) {
  LeakCheck check;
  {
    const auto weight = at::ones({8, 8}).requires_grad_();
    check.name(weight, "weight");
    weight.mul(weight).sum().backward({}, /*retain_graph=*/std::nullopt, /*create_graph=*/true);
  }
  const auto leaks = check.leaks();
  EXPECT_THAT(texts(leaks), HasSubstr("made by aten::ones: saved by"));
  EXPECT_THAT(texts(leaks),
              HasSubstr("for the backward pass of the gradient of weight, which it holds itself: a cycle"));
  EXPECT_THAT(kinds(leaks.front().holders), Contains(Kind::kCycle));
}

TEST(LeakCheck, FindsNoCycleWhereGradientsAreTakenByGrad) {
  const LeakCheck check;
  {
    const auto weight = at::ones({8, 8}).requires_grad_();
    torch::autograd::grad({weight.mul(weight).sum()}, {weight}, {}, std::nullopt, /*create_graph=*/true);
  }
  EXPECT_EQ(texts(check.leaks()), "");
}

TEST(LeakCheck, FindsAHookThatCapturesItsOwnTensor) {
  const Model model;
  at::Tensor kept;
  const LeakCheck check;
  {
    auto hidden = model.input.mm(model.weight);
    hidden.register_hook([hidden](const at::Tensor& gradient) { return gradient + hidden; });
    kept = model.input.mm(model.weight);
  }
  const auto leaks = check.leaks();
  ASSERT_EQ(leaks.size(), 2u) << texts(leaks);
  EXPECT_THAT(leaks[0].text(), AllOf(HasSubstr("1 handle of the program"), HasSubstr("it has a hook")));
  EXPECT_THAT(leaks[1].text(), AllOf(HasSubstr("1 handle of the program"), Not(HasSubstr("hook"))));
}

TEST(LeakCheck, FindsGradientsThatWereNotReset) {
  const Model model;
  LeakCheck check;
  check.name(model.weight, "layer.weight");
  model.loss().backward();
  const auto leaks = check.leaks();
  ASSERT_EQ(leaks.size(), 1u) << texts(leaks);
  EXPECT_EQ(kinds(leaks[0].holders), std::vector{Kind::kGradient});
  EXPECT_EQ(leaks[0].holders[0].text, "the gradient of layer.weight");
  EXPECT_THAT(leaks[0].node, HasSubstr("Backward"));
}

TEST(LeakCheck, FindsACopyOfWeightsThatWasKept) {
  const Model model;
  std::map<std::string, at::Tensor> checkpoint;
  const LeakCheck check;
  checkpoint["weight"] = model.weight.detach().clone();
  const auto view = checkpoint["weight"][0];
  const auto leaks = check.leaks();
  ASSERT_EQ(leaks.size(), 1u) << texts(leaks);
  EXPECT_EQ(leaks[0].bytes, Bytes(256));
  EXPECT_EQ(leaks[0].op, "aten::clone");
  EXPECT_EQ(kinds(leaks[0].holders), (std::vector{Kind::kProgram, Kind::kProgram})) << "the copy, and its view";
}

/// oneDNN keeps kernels for each shape of a convolution (pytorch#27971): memory that levels off, and no tensor.
TEST(LeakCheck, FindsNoneInConvolutionsOfManyShapes) {
  const auto weight = at::ones({4, 3, 3, 3}).requires_grad_();
  const LeakCheck check;
  for (int size = 8; size < 40; ++size) at::conv2d(at::ones({1, 3, size, size}), weight).sum().backward();
  weight.mutable_grad().reset();
  EXPECT_EQ(texts(check.leaks()), "");
}

// ---- what is said ---------------------------------------------------------------------------------------------------

TEST(LeakCheck, SaysWhereATensorWasMade) {
  const Model model;
  const std::string path = "blocks.0.mlp";
  at::Tensor kept;
  const LeakCheck check;
  {
    const trace::PhaseScope phase(trace::Phase::kForward, 3);
    const trace::ModuleScope module(path);
    kept = at::rand({16, 16});
  }
  const auto leaks = check.leaks();
  ASSERT_EQ(leaks.size(), 1u);
  EXPECT_EQ(
      leaks[0].text(),
      "1.00 KiB Float [16, 16], made by aten::rand in blocks.0.mlp (step 3, forward): the Float [16, 16] of aten::rand "
      "is held by 1 handle of the program");
}

TEST(LeakCheck, ThrowsWithTheLargestFirst) {
  std::vector<at::Tensor> kept;
  const LeakCheck check;
  for (int i = 1; i <= 8; ++i) kept.push_back(at::ones({i, 64}));
  try {
    check.check();
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("8 tensors (9.00 KiB) should be gone:\n  2.00 KiB Float [8, 64], made by aten::ones"));
    EXPECT_THAT(error.what(), HasSubstr("and 3 more"));
    EXPECT_THAT(error.hint(), HasSubstr("detach()"));
  }
}

TEST(LeakCheck, LeavesOutWhatIsMeantToStay) {
  at::Tensor kept;
  LeakCheck check;
  kept = at::ones({4});
  check.expect(kept);
  EXPECT_THAT(check.leaks(), IsEmpty());
}

TEST(LeakCheck, KnowsMemoryThatWasThereBefore) {
  const auto old = at::ones({4});
  std::vector<at::Tensor> kept;
  const LeakCheck check;
  old.add_(1);
  kept.push_back(old.view({2, 2}));
  EXPECT_THAT(check.leaks(), IsEmpty());
}

TEST(LeakCheck, SaysWhoHoldsATensorOnRequest) {
  const Model model;
  LeakCheck check;
  const auto hidden = model.input.mm(model.weight);
  EXPECT_EQ(kinds(check.holders(hidden)), std::vector{Kind::kProgram});
  auto y = hidden.square();
  check.name(y, "y");
  EXPECT_EQ(kinds(check.holders(hidden)), (std::vector{Kind::kGraph, Kind::kProgram}));
  EXPECT_EQ(check.holders(hidden)[0].text, "saved by PowBackward0 for the backward pass of y");
  const auto again = hidden;
  EXPECT_THAT(check.holders(hidden)[1].text, HasSubstr("2 handles of the program"));
  y.reset();
  EXPECT_EQ(kinds(check.holders(hidden)), std::vector{Kind::kProgram});
}

TEST(LeakCheck, OwnsUpToWhatItCannotRead) {
  const Model model;
  at::Tensor y;
  const LeakCheck check;
  {
    const auto hidden = model.input.mm(model.weight), factor = at::ones({8, 8});
    y = hidden.mul(factor).tanh().mul(hidden);
    hidden.detach().add_(1);  // from here on its savers refuse to give it
  }
  EXPECT_FALSE(check.leaks().empty());
  for (const auto& leak : check.leaks()) EXPECT_FALSE(leak.holders.empty()) << leak.text();
}

TEST(LeakCheck, SeveralMayLiveAtOnce) {
  at::Tensor early, late;
  const LeakCheck outer;
  early = at::ones({1});
  {
    const LeakCheck inner;
    late = at::ones({2});
    EXPECT_EQ(inner.leaks().size(), 1u);
  }
  EXPECT_EQ(outer.leaks().size(), 2u);
}

TEST(LeakCheck, SweepsWhatIsGone) {
  const LeakCheck check;
  for (int i = 0; i < 20000; ++i) at::ones({1});
  EXPECT_THAT(check.leaks(), IsEmpty());
}
}  // namespace
}  // namespace cinch::techniques
