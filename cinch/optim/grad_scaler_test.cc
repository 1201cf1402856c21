#include "cinch/optim/grad_scaler.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include <ATen/ATen.h>

#include "cinch/core/error.h"

namespace cinch::optim {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Two weights under one optimizer, whose loss has gradients that differ from step to step.
struct Training {
  at::Tensor first = at::linspace(-1, 1, 12).view({3, 4}).clone().requires_grad_();
  at::Tensor second = at::linspace(2, 3, 5).clone().requires_grad_();
  std::unique_ptr<Optimizer> optimizer =
      adamw({{.parameters = {{"first", first}, {"second", second}}, .learning_rate = 0.1}});

  at::Tensor loss(int step) const { return (first * (step + 1)).sin().sum() + (second * second / (step + 2)).sum(); }
  void set_gradients(float value) const {
    first.mutable_grad() = at::full_like(first, value);
    second.mutable_grad() = at::full_like(second, value);
  }
  bool equals(const Training& other) const { return at::equal(first, other.first) && at::equal(second, other.second); }
};

template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

/// Clipped before they were unscaled, gradients would hardly move anything (Lightning#9599).
TEST(GradScaler, TrainsAsWithoutAScaleWhateverTheScale) {
  for (const std::optional<double> limit : {std::optional<double>(), std::optional<double>(0.5)}) {
    Training plain;
    for (int step = 0; step < 20; ++step) {
      plain.loss(step).backward();
      plain.optimizer->step({.max_grad_norm = limit});
      plain.optimizer->zero_grad();
    }
    for (const double scale : {1.0, 64.0, 65536.0, 0x1p100}) {
      Training scaled;
      GradScaler scaler({.initial_scale = scale, .growth_interval = 3});
      for (int step = 0; step < 20; ++step) {
        scaler.scale(scaled.loss(step)).backward();
        const auto result = scaler.step(*scaled.optimizer, {.max_grad_norm = limit});
        ASSERT_TRUE(result);
        EXPECT_EQ(result->grad_norm.defined(), limit.has_value());
        scaler.update();
        scaled.optimizer->zero_grad();
      }
      EXPECT_TRUE(scaled.equals(plain)) << "clipped before it was unscaled? scale " << scale;
    }
  }
}

TEST(GradScaler, AnOverflowAtAnyStepLeavesThatStepOut) {
  for (int bad = 0; bad < 6; ++bad) {
    Training hit, spared;
    GradScaler scaler;
    for (int step = 0; step < 6; ++step) {
      const double scale = scaler.scale();
      const auto loss = scaler.scale(hit.loss(step));
      (step == bad ? loss * kInf : loss).backward();
      const auto result = scaler.step(*hit.optimizer, {.max_grad_norm = 1});
      EXPECT_EQ(result.has_value(), step != bad);
      EXPECT_EQ(hit.first.grad().defined(), step != bad);
      scaler.update();
      EXPECT_EQ(scaler.scale(), step == bad ? scale / 2 : scale);
      hit.optimizer->zero_grad();
      if (step == bad) continue;
      spared.loss(step).backward();
      spared.optimizer->step({.max_grad_norm = 1});
      spared.optimizer->zero_grad();
    }
    EXPECT_TRUE(hit.equals(spared)) << bad;
    EXPECT_EQ(scaler.scale(), 32768);
  }
}

TEST(GradScaler, FindsASingleBadNumberWhereverItIs) {
  for (const float bad : {kInf, -kInf, kNan}) {
    for (const bool in_first : {true, false}) {
      for (int place = 0; place < 5; ++place) {
        Training training;
        training.set_gradients(1);
        (in_first ? training.first : training.second).grad().view({-1})[place] = bad;
        const auto before = training.first.clone();
        GradScaler scaler;
        EXPECT_FALSE(scaler.step(*training.optimizer));
        EXPECT_TRUE(at::equal(training.first, before));
        EXPECT_TRUE(training.optimizer->state().empty());
      }
    }
  }
}

TEST(GradScaler, WhatTheScaleMakesOverflowComesBackWithASmallerOne) {
  Training training;
  GradScaler scaler({.initial_scale = 0x1p126});
  int skipped = 0;
  for (int step = 0; step < 10; ++step) {
    scaler.scale(training.loss(0) * 64).backward();  // beyond 2^128 at first
    skipped += scaler.step(*training.optimizer) ? 0 : 1;
    scaler.update();
    training.optimizer->zero_grad();
  }
  EXPECT_GT(skipped, 0);
  EXPECT_LT(skipped, 8);
  EXPECT_EQ(scaler.scale(), std::ldexp(1, 126 - skipped));
}

TEST(GradScaler, AnOverflowConcernsItsOwnOptimizerAndTheCommonScale) {
  Training good, bad;
  good.set_gradients(65536);
  bad.set_gradients(kInf);
  const auto kept = bad.first.clone(), moved = good.first.clone();
  GradScaler scaler;
  EXPECT_TRUE(scaler.step(*good.optimizer));
  EXPECT_FALSE(scaler.step(*bad.optimizer));
  EXPECT_EQ(scaler.scale(), 65536) << "the same for all until update()";
  scaler.update();
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_TRUE(at::equal(bad.first, kept));
  EXPECT_FALSE(at::equal(good.first, moved));
  EXPECT_TRUE(good.first.grad().defined()) << "gradients of a step that was taken are the caller's";
  EXPECT_FALSE(bad.first.grad().defined());
}

TEST(GradScaler, AnOverflowThatWasOnlyUnscaledCounts) {
  Training training;
  training.set_gradients(kNan);
  GradScaler scaler;
  scaler.unscale(*training.optimizer);
  scaler.update();
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST(GradScaler, RefusesEveryOtherOrderAndChangesNothing) {
  Training training;
  GradScaler scaler;
  EXPECT_THAT(refusal([&] { scaler.update(); }), HasSubstr("before any step()"));
  training.set_gradients(65536);
  scaler.unscale(*training.optimizer);
  EXPECT_THAT(refusal([&] { scaler.unscale(*training.optimizer); }), HasSubstr("second time"));
  EXPECT_TRUE(at::equal(training.first.grad(), at::ones_like(training.first))) << "unscaled once";
  EXPECT_TRUE(scaler.step(*training.optimizer));
  const auto stepped = training.first.clone();
  EXPECT_THAT(refusal([&] { scaler.step(*training.optimizer); }), HasSubstr("second time"));
  EXPECT_THAT(refusal([&] { scaler.unscale(*training.optimizer); }), HasSubstr("after step()"));
  EXPECT_TRUE(at::equal(training.first, stepped));
  EXPECT_TRUE(at::equal(training.first.grad(), at::ones_like(training.first)));
  scaler.update();
  EXPECT_THAT(refusal([&] { scaler.update(); }), HasSubstr("before any step()"));
  EXPECT_EQ(scaler.state().clean_updates, 1);
  EXPECT_TRUE(scaler.step(*training.optimizer)) << "ready again";
}

TEST(GradScaler, AnotherOptimizersProgressIsItsOwn) {
  Training one, other;
  one.set_gradients(1);
  other.set_gradients(1);
  GradScaler scaler;
  scaler.unscale(*one.optimizer);
  EXPECT_TRUE(scaler.step(*other.optimizer));
  EXPECT_TRUE(scaler.step(*one.optimizer));
  scaler.update();
  EXPECT_EQ(scaler.state().clean_updates, 1) << "one update, however many optimizers";
}

/// Updates with gradients of `value`.
void update(GradScaler& scaler, float value, int times = 1) {
  Training training;
  for (int i = 0; i < times; ++i) {
    training.set_gradients(value);
    scaler.step(*training.optimizer);
    scaler.update();
  }
}

TEST(GradScaler, GrowsAfterAsManyCleanUpdatesInARow) {
  GradScaler scaler({.initial_scale = 8, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3});
  update(scaler, 1, 2);
  EXPECT_EQ(scaler.state(), (GradScalerState{8, 2}));
  update(scaler, 1);
  EXPECT_EQ(scaler.state(), (GradScalerState{32, 0}));
  update(scaler, 1, 2);
  update(scaler, kInf);
  EXPECT_EQ(scaler.state(), (GradScalerState{8, 0})) << "counted anew";
  update(scaler, 1, 2);
  EXPECT_EQ(scaler.state(), (GradScalerState{8, 2}));
}

TEST(GradScaler, GrowsEvery2000StepsUnlessToldOtherwise) {
  GradScaler scaler;
  EXPECT_EQ(scaler.state(), (GradScalerState{65536, 0}));
  scaler.load_state({65536, 1998});
  update(scaler, 1);
  EXPECT_EQ(scaler.scale(), 65536);
  update(scaler, 1);
  EXPECT_EQ(scaler.scale(), 131072);
}

TEST(GradScaler, NeverGrowsBeyondWhatFloatCanDivideBy) {
  GradScaler scaler({.initial_scale = 0x1p125, .growth_interval = 1});
  update(scaler, 1, 5);
  EXPECT_EQ(scaler.scale(), 0x1p126);
  EXPECT_TRUE(std::isnormal(static_cast<float>(1 / scaler.scale())));
}

/// Not halved until it is 1e-320 and divides by 0 (Paddle#67895).
TEST(GradScaler, AnOverflowAtTheFloorIsAnErrorThatSaysSo) {
  GradScaler scaler({.initial_scale = 4, .min_scale = 1.5});
  update(scaler, kNan, 2);
  EXPECT_EQ(scaler.scale(), 1.5);
  for (int i = 0; i < 2; ++i) {
    try {
      update(scaler, kNan);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("fallen to its floor, 1.5"));
      EXPECT_THAT(error.hint(), HasSubstr("NaN"));
    }
    EXPECT_EQ(scaler.scale(), 1.5);
  }
  update(scaler, 1);
  EXPECT_EQ(scaler.state(), (GradScalerState{1.5, 1}));
}

TEST(GradScaler, RefusesHalfPrecisionAndSparseGradients) {
  Training training;
  training.set_gradients(65536);
  const auto half = at::ones({2}, at::kHalf).requires_grad_(), rows = at::ones({2, 2}).requires_grad_();
  half.mutable_grad() = at::ones({2}, at::kHalf);
  rows.mutable_grad() = at::ones({2, 2}).to_sparse();
  const auto with_half = sgd({{.parameters = {{"first", training.first}, {"half", half}}, .learning_rate = 1}});
  const auto with_sparse = sgd({{.parameters = {{"first", training.first}, {"rows", rows}}, .learning_rate = 1}});
  GradScaler scaler;
  EXPECT_THAT(refusal([&] { scaler.step(*with_half); }), HasSubstr("\"half\" is fp16"));
  EXPECT_THAT(refusal([&] { scaler.unscale(*with_sparse); }), HasSubstr("\"rows\" is sparse"));
  EXPECT_EQ(training.first.grad()[0][0].item<float>(), 65536) << "none was unscaled";
  EXPECT_TRUE(scaler.step(*training.optimizer)) << "nor counts as such";
}

TEST(GradScaler, TakesGradientsOfSeveralTypesAndPassesOverMissingOnes) {
  const auto wide = at::ones({2}).requires_grad_(), narrow = at::ones({2}, at::kBFloat16).requires_grad_(),
             idle = at::ones({2}).requires_grad_();
  const auto optimizer =
      sgd({{.parameters = {{"wide", wide}, {"narrow", narrow}, {"idle", idle}}, .learning_rate = 0.5}});
  GradScaler scaler({.initial_scale = 2});
  wide.mutable_grad() = at::full({2}, 2.0);
  narrow.mutable_grad() = at::full({2}, 2.0, at::kBFloat16);
  EXPECT_TRUE(scaler.step(*optimizer));
  scaler.update();
  EXPECT_TRUE(at::equal(wide, at::full({2}, 0.5)));
  EXPECT_TRUE(at::equal(narrow, at::full({2}, 0.5, at::kBFloat16)));
  EXPECT_TRUE(at::equal(idle, at::ones({2})));
  narrow.mutable_grad() = at::full({2}, kInf, at::kBFloat16);
  EXPECT_FALSE(scaler.step(*optimizer));
}

TEST(GradScaler, MicroBatchesAddUp) {
  Training whole, parts;
  GradScaler scaler;
  (whole.loss(0) + whole.loss(1)).backward();
  whole.optimizer->step({.max_grad_norm = 0.1});
  for (int part = 0; part < 2; ++part) scaler.scale(parts.loss(part)).backward();
  scaler.unscale(*parts.optimizer);
  EXPECT_TRUE(scaler.step(*parts.optimizer, {.max_grad_norm = 0.1}));
  EXPECT_TRUE(at::allclose(parts.first, whole.first));
  EXPECT_TRUE(at::allclose(parts.second, whole.second));
}

TEST(GradScaler, KeepsTheLosssTypeAndGraph) {
  const auto loss = at::full({}, 0.5, at::kDouble).requires_grad_();
  const auto scaled = GradScaler().scale(loss);
  EXPECT_EQ(scaled.scalar_type(), at::kDouble);
  EXPECT_EQ(scaled.item<double>(), 32768);
  EXPECT_TRUE(scaled.requires_grad());
}

TEST(GradScaler, GoesOnFromItsState) {
  GradScaler straight({.growth_interval = 3}), before({.growth_interval = 3}), after({.growth_interval = 3});
  update(straight, 1, 2);
  update(before, 1, 2);
  after.load_state(before.state());
  update(straight, 1);
  update(after, 1);
  EXPECT_EQ(after.state(), straight.state());
  EXPECT_EQ(after.scale(), 131072);
}

TEST(GradScaler, RefusesAStateThatCannotBe) {
  GradScaler scaler;
  for (const auto& state : {GradScalerState{0, 0}, GradScalerState{-1, 0}, GradScalerState{kInf, 0},
                            GradScalerState{kNan, 0}, GradScalerState{0.5, 0}, GradScalerState{2, -1}})
    EXPECT_THROW(scaler.load_state(state), DataError);
  EXPECT_EQ(scaler.state(), (GradScalerState{65536, 0}));
}

TEST(GradScaler, AStepThatIsGivenUpCanBeTakenAgain) {
  Training training;
  training.set_gradients(1);
  GradScaler scaler;
  scaler.unscale(*training.optimizer);
  scaler.abandon();
  training.set_gradients(65536);
  EXPECT_TRUE(scaler.step(*training.optimizer));
  EXPECT_TRUE(at::equal(training.first.grad(), at::ones_like(training.first)));
}

TEST(GradScaler, RefusesNonsense) {
  for (const GradScalerOptions& options :
       {GradScalerOptions{.initial_scale = 0}, GradScalerOptions{.initial_scale = kInf},
        GradScalerOptions{.initial_scale = kNan}, GradScalerOptions{.growth_factor = 1},
        GradScalerOptions{.backoff_factor = 1}, GradScalerOptions{.backoff_factor = 0},
        GradScalerOptions{.growth_interval = 0}, GradScalerOptions{.initial_scale = 1, .min_scale = 2},
        GradScalerOptions{.min_scale = 0}})
    EXPECT_THROW(GradScaler{options}, UsageError);
}
}  // namespace
}  // namespace cinch::optim
