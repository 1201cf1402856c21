#include "cinch/inspect/categories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/inspect/internal/recording_for_test.h"

namespace cinch::inspect {
namespace {

using namespace cinch::literals;
using namespace internal;
using testing::Each;
using testing::ElementsAre;
using trace::Phase;

std::vector<Kind> kinds_of(const RecordingForTest& made) {
  const auto snapshot = made.snapshot();
  return categorize(snapshot, snapshot.devices()[0]).of;
}

std::vector<Phase> phases_of(const RecordingForTest& made) {
  const auto snapshot = made.snapshot();
  std::vector<Phase> phases;
  for (const PhaseRun& run : categorize(snapshot, snapshot.devices()[0]).phases) phases.push_back(run.phase);
  return phases;
}

/// A step of one parameter of 20 MiB, as stacks or, without them, annotations show it. Allocations in order: parameter,
/// activation, temporary of forward, loss, temporary of backward, gradient, state, temporary of the optimizer.
RecordingForTest step(bool stacks, bool annotations) {
  const auto with = [&](const StackForTest& stack) { return stacks ? stack : StackForTest{}; };
  RecordingForTest made;
  made.before(20_MiB);
  const auto activation = made.alloc(16_MiB, with(kForward));
  made.free(made.alloc(12_MiB, with(kForward)));
  const auto loss = made.alloc(14_MiB, with(kLoss));
  const auto flowing = made.alloc(16_MiB, with(kBackward));
  const auto gradient = made.alloc(20_MiB, with(kBackward));
  made.free(activation);
  made.free(loss);
  made.free(flowing);
  if (annotations) made.annotate("Optimizer.step#AdamW.step", true);
  made.alloc(20_MiB, with(kOptimizer));
  made.free(made.alloc(20_MiB, with(kOptimizerTemporary)));
  if (annotations) made.annotate("Optimizer.step#AdamW.step", false);
  made.free(gradient);
  made.free(made.alloc(12_MiB, with(kForward)));
  return made;
}

TEST(Categories, OfAStepByItsStacks) {
  EXPECT_THAT(kinds_of(step(true, false)),
              ElementsAre(Kind::kParameter, Kind::kActivation, Kind::kTemporary, Kind::kActivation, Kind::kTemporary,
                          Kind::kGradient, Kind::kOptimizerState, Kind::kTemporary, Kind::kTemporary));
  EXPECT_THAT(phases_of(step(true, false)),
              ElementsAre(Phase::kOther, Phase::kForward, Phase::kBackward, Phase::kOptimizer, Phase::kForward));
}

TEST(Categories, WithoutStacksByAnnotationsAndLifetimes) {
  const auto snapshot = step(false, true).snapshot();
  const Kinds kinds = categorize(snapshot, snapshot.devices()[0]);
  EXPECT_FALSE(kinds.by_stacks);
  EXPECT_EQ(kinds.optimizer, "AdamW");
  EXPECT_EQ(kinds.optimizer_steps, 1U);
  // Backward is known to have begun with the first gradient alone: what flowed through it before is an activation.
  EXPECT_THAT(kinds.of,
              ElementsAre(Kind::kParameter, Kind::kActivation, Kind::kTemporary, Kind::kActivation, Kind::kActivation,
                          Kind::kGradient, Kind::kOptimizerState, Kind::kTemporary, Kind::kUnknown));
}

TEST(Categories, WithoutStacksAndAnnotationsAreUnknown) {
  EXPECT_THAT(kinds_of(step(false, false)), Each(Kind::kUnknown));
}

TEST(Categories, AnnotationsFindAnOptimizerThatNoStackGivesAway) {
  RecordingForTest made;
  made.before(20_MiB);
  made.free(made.alloc(16_MiB, kForward));
  const auto gradient = made.alloc(20_MiB, kBackward);
  made.annotate("Optimizer.step#Mine.step", true);
  made.alloc(20_MiB, {{"user/mine.py", "advance", 3}});
  made.annotate("Optimizer.step#Mine.step", false);
  made.free(gradient);
  made.free(made.alloc(16_MiB, kForward));
  EXPECT_EQ(kinds_of(made)[3], Kind::kOptimizerState);
}

TEST(Categories, OfPythonsStacksAlone) {
  // The engine's threads run no Python: their allocations have no stack.
  const StackForTest forward = {{"user/model.py", "forward", 10}, {"torch/nn/modules/module.py", "_call_impl", 1750}};
  const StackForTest optimizer = {{"torch/optim/adamw.py", "step", 100}, {"user/train.py", "train", 8}};
  RecordingForTest made;
  made.before(20_MiB);
  const auto activation = made.alloc(16_MiB, forward);
  made.alloc(20_MiB);
  made.free(made.alloc(16_MiB));
  made.free(activation);
  made.alloc(20_MiB, optimizer);
  made.free(made.alloc(16_MiB, forward));
  EXPECT_THAT(kinds_of(made), ElementsAre(Kind::kParameter, Kind::kActivation, Kind::kGradient, Kind::kTemporary,
                                          Kind::kOptimizerState, Kind::kTemporary));
}

TEST(Categories, OfALaterStepTellStateFromParametersByHowManyHaveOneSize) {
  RecordingForTest made;
  for (int i = 0; i < 6; ++i) made.before(20_MiB);  // Two parameters, of each the two states of Adam.
  for (int i = 0; i < 3; ++i) made.before(30_MiB);  // One more.
  made.before(10_MiB);                              // A buffer.
  const auto activation = made.alloc(16_MiB, kForward);
  made.alloc(20_MiB, kBackward);
  made.alloc(20_MiB, kBackward);
  made.alloc(30_MiB, kBackward);
  made.free(activation);
  made.free(made.alloc(12_MiB, kOptimizerTemporary));
  made.free(made.alloc(12_MiB, kForward));
  const auto kinds = kinds_of(made);
  const auto count = [&](Kind kind) { return std::count(kinds.begin(), kinds.end(), kind); };
  EXPECT_EQ(count(Kind::kParameter), 3);
  EXPECT_EQ(count(Kind::kOptimizerState), 6);
  EXPECT_EQ(count(Kind::kGradient), 3);
  EXPECT_EQ(count(Kind::kBuffer), 1);
}

TEST(Categories, OfGradientsThatTheStepBeforeLeft) {
  RecordingForTest made;
  made.before(20_MiB);
  const auto old = made.before(20_MiB);
  made.free(old);  // zero_grad()
  const auto activation = made.alloc(16_MiB, kForward);
  made.alloc(20_MiB, kBackward);
  made.free(activation);
  made.alloc(20_MiB, kOptimizer);
  made.free(made.alloc(12_MiB, kForward));
  const auto kinds = kinds_of(made);
  EXPECT_THAT((std::vector<Kind>{kinds[0], kinds[1]}), ElementsAre(Kind::kParameter, Kind::kGradient));
}

TEST(Categories, OfALargeModelOfWhichFewParametersAreTrained) {
  RecordingForTest made;
  for (int i = 0; i < 5; ++i) made.before(40_MiB);
  made.before(10_MiB);
  const auto activation = made.alloc(16_MiB, kForward);
  made.alloc(10_MiB, kBackward);
  made.free(activation);
  made.alloc(10_MiB, kOptimizer);
  made.free(made.alloc(12_MiB, kForward));
  const auto kinds = kinds_of(made);
  EXPECT_EQ(kinds[0], Kind::kFrozen);
  EXPECT_EQ(category_of(kinds[0]), trace::Category::kParameter);
  EXPECT_EQ(kinds[5], Kind::kParameter);
}

TEST(Categories, OfAModelMovedToTheDeviceWhileRecording) {
  RecordingForTest made;
  made.alloc(20_MiB, {{"torch/nn/modules/module.py", "convert", 1},
                      {"torch/nn/modules/module.py", "_apply", 2},
                      {"torch/nn/modules/module.py", "to", 3},
                      {"user/train.py", "main", 4}});
  made.free(made.alloc(12_MiB, kForward));
  EXPECT_EQ(kinds_of(made)[0], Kind::kParameter);
}

TEST(Categories, OfWhatTheStackNames) {
  const auto inside = [](const std::string& function, const StackForTest& outer) {
    StackForTest stack = {{"", function}};
    stack.insert(stack.end(), outer.begin(), outer.end());
    return stack;
  };
  RecordingForTest made;
  made.before(20_MiB);
  made.alloc(32_MiB, inside("at::cuda::getCurrentCUDABlasHandle()", kForward));
  made.alloc(32_MiB, inside("at::cuda::getCurrentCUDABlasHandle()", kBackward));
  made.free(made.alloc(16_MiB, inside("at::native::Workspace::Workspace(unsigned long)", kForward)));
  const auto copy =
      made.alloc(10_MiB, inside("at::autocast::cached_cast(c10::ScalarType, at::Tensor const&)", kForward));
  const auto input =
      made.alloc(14_MiB, {{"", "at::_ops::to_dtype_layout::call(at::Tensor const&)"}, {"user/train.py", "train", 3}});
  const auto activation = made.alloc(16_MiB, kForward);
  made.alloc(24_MiB, inside("c10d::Reducer::initialize_buckets(std::vector<unsigned long>)", kBackward));
  StackForTest recomputed = {{"torch/nn/modules/module.py", "_call_impl", 1},
                             {"torch/utils/checkpoint.py", "recompute_fn", 2}};
  recomputed.insert(recomputed.end(), kBackward.begin(), kBackward.end());
  const auto again = made.alloc(16_MiB, recomputed);
  made.free(made.alloc(16_MiB, recomputed));
  made.alloc(20_MiB, inside("torch::autograd::AccumulateGrad::apply(std::vector<at::Tensor>&&)", kBackward));
  for (const auto id : {copy, input, activation, again}) made.free(id);
  made.alloc(20_MiB, kOptimizer);
  made.free(made.alloc(12_MiB, kForward));
  EXPECT_THAT(kinds_of(made), ElementsAre(Kind::kParameter, Kind::kCublasWorkspace, Kind::kCublasWorkspace,
                                          Kind::kCudnnWorkspace, Kind::kAutocastCopy, Kind::kInput, Kind::kActivation,
                                          Kind::kGradientBucket, Kind::kRecomputed, Kind::kTemporary, Kind::kGradient,
                                          Kind::kOptimizerState, Kind::kTemporary));
}

TEST(Categories, OfAStepCutShortTakeWhatTheSameStackDidBefore) {
  RecordingForTest made;
  made.before(20_MiB);
  made.before(20_MiB);
  const auto activation = made.alloc(16_MiB, kForward);
  made.alloc(20_MiB, kBackward);
  made.alloc(20_MiB, kBackward);
  made.free(activation);
  made.alloc(20_MiB, kOptimizer);
  made.free(made.alloc(20_MiB, kOptimizerTemporary));
  made.alloc(20_MiB, kOptimizer);
  made.alloc(20_MiB, kOptimizerTemporary);  // Lives as the recording ends.
  const auto kinds = kinds_of(made);
  EXPECT_EQ(kinds[5], Kind::kOptimizerState);
  EXPECT_EQ(kinds[7], Kind::kOptimizerState);
  EXPECT_EQ(kinds[8], Kind::kTemporary);
}

TEST(Categories, OfAStepWhoseEndWasAnnotatedAreKnownThoughNothingFollows) {
  RecordingForTest made;
  made.before(20_MiB);
  made.annotate("Optimizer.step#AdamW.step", true);
  made.free(made.alloc(20_MiB, kOptimizer));
  made.alloc(20_MiB, kOptimizer);
  made.annotate("Optimizer.step#AdamW.step", false);
  EXPECT_THAT(kinds_of(made), ElementsAre(Kind::kParameter, Kind::kTemporary, Kind::kOptimizerState));
}

TEST(Categories, GradientAccumulationHasOneOptimizerStepForManyBackwards) {
  RecordingForTest made;
  made.before(20_MiB);
  const auto gradient = [&] {
    const auto activation = made.alloc(16_MiB, kForward);
    const auto made_gradient = made.alloc(20_MiB, kBackward);
    made.free(activation);
    return made_gradient;
  };
  const auto first = gradient();
  made.free(made.alloc(16_MiB, kForward));
  made.free(made.alloc(20_MiB, kBackward));  // Added to the first, and gone.
  made.free(made.alloc(12_MiB, {{"torch/nn/utils/clip_grad.py", "clip_grad_norm_", 5}, {"user/train.py", "train", 7}}));
  made.alloc(20_MiB, kOptimizer);
  made.free(first);
  made.free(made.alloc(12_MiB, kForward));
  const auto snapshot = made.snapshot();
  const Kinds kinds = categorize(snapshot, snapshot.devices()[0]);
  EXPECT_EQ(kinds.optimizer_steps, 1U);
  EXPECT_EQ(kinds.of[2], Kind::kGradient);
  EXPECT_EQ(kinds.of[4], Kind::kTemporary);
  EXPECT_EQ(kinds.phase_at(0).step, 1U);
  EXPECT_EQ(kinds.phase_at(made.events() - 1).step, 2U);
}
}  // namespace
}  // namespace cinch::inspect
