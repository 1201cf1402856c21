#include "cinch/optim/master_weights.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include <ATen/ATen.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/trace.h"

namespace cinch::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;

at::Tensor leaf(const at::Tensor& values, at::ScalarType dtype = at::kBFloat16) {
  return values.to(dtype).detach().clone().requires_grad_();
}

at::Tensor some_values(at::IntArrayRef sizes) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return at::sin(at::arange(count, at::kFloat)).view(sizes);
}

at::Tensor some_gradient(const at::Tensor& like, int step) {
  return at::cos(at::arange(like.numel(), at::kFloat) * (step + 1)).view(like.sizes()).to(like.scalar_type());
}

void step(Optimizer& optimizer, const std::vector<at::Tensor>& parameters, int number) {
  for (const auto& parameter : parameters) parameter.mutable_grad() = some_gradient(parameter, number);
  optimizer.step();
}

// ---- masters --------------------------------------------------------------------------------------------------------

TEST(MasterWeights, TrainAsFloat32WouldByTheSameGradients) {
  for (const bool adam : {true, false}) {
    const auto first = leaf(some_values({7, 5})), second = leaf(some_values({4}));
    const auto wide_first = leaf(first.detach(), at::kFloat), wide_second = leaf(second.detach(), at::kFloat);
    const auto make = [adam](const at::Tensor& a, const at::Tensor& b) {
      std::vector<ParameterGroup> groups{{.parameters = {{"a", a}}, .learning_rate = 0.01, .weight_decay = 0.1},
                                         {.parameters = {{"b", b}}, .learning_rate = 0.02}};
      return adam ? adamw(groups) : sgd(groups, {.momentum = 0.9});
    };
    const auto ours = with_master_weights(make(first, second)), plain = make(wide_first, wide_second);
    for (int i = 0; i < 10; ++i) {
      step(*ours, {first, second}, i);
      for (const auto& [wide, narrow] : {std::pair(wide_first, first), std::pair(wide_second, second)})
        wide.mutable_grad() = narrow.grad().to(at::kFloat);
      plain->step();
    }
    const auto state = ours->state();
    EXPECT_TRUE(at::equal(state.at("a.master"), wide_first));
    EXPECT_TRUE(at::equal(state.at("b.master"), wide_second));
    EXPECT_TRUE(at::equal(first, wide_first.to(at::kBFloat16)));
    EXPECT_TRUE(at::equal(second, wide_second.to(at::kBFloat16)));
    EXPECT_EQ(state.at(adam ? "a.exp_avg" : "a.momentum_buffer").scalar_type(), at::kFloat);
  }
}

/// One step is a hundredth of bfloat16's spacing at 1, which is 2^-7 above it.
constexpr double kTinyRate = 0x1p-7 / 100;

double after_200_tiny_steps(std::unique_ptr<Optimizer> optimizer, const at::Tensor& parameter) {
  parameter.mutable_grad() = -at::ones_like(parameter);
  for (int i = 0; i < 200; ++i) optimizer->step();
  return parameter.to(at::kFloat).mean().item<double>();
}

TEST(MasterWeights, KeepStepsThatBfloat16AloneWouldRoundAway) {
  const auto plain = leaf(at::ones({8})), mastered = leaf(at::ones({8})), rounded = leaf(at::ones({1024}));
  const auto optimizer = [](const at::Tensor& parameter) {
    return sgd({{.parameters = {{"p", parameter}}, .learning_rate = kTinyRate}});
  };
  EXPECT_EQ(after_200_tiny_steps(optimizer(plain), plain), 1);
  const double wanted = 1 + 200 * kTinyRate;
  EXPECT_NEAR(after_200_tiny_steps(with_master_weights(optimizer(mastered)), mastered), wanted, 0x1p-8);
  EXPECT_NEAR(after_200_tiny_steps(with_stochastic_rounding(optimizer(rounded), 1), rounded), wanted, 0x1p-9);
}

TEST(MasterWeights, AreMadeFromTheWeightsAtTheFirstStep) {
  const auto p = leaf(at::zeros({3}));
  const auto optimizer = with_master_weights(sgd({{.parameters = {{"p", p}}, .learning_rate = 0.5}}));
  {
    const at::NoGradGuard no_grad;
    p.fill_(4);  // as loading weights would
  }
  EXPECT_TRUE(optimizer->state().empty());
  p.mutable_grad() = at::ones_like(p);
  optimizer->step();
  EXPECT_TRUE(at::equal(p, at::full({3}, 3.5, at::kBFloat16)));
  EXPECT_THAT(optimizer->state(), ElementsAre(Key("p.master")));
}

TEST(MasterWeights, LeaveFloat32ParametersToTheOptimizer) {
  for (const bool stochastic : {false, true}) {
    const auto wide = leaf(some_values({6}), at::kFloat), alone = leaf(some_values({6}), at::kFloat);
    const auto narrow = leaf(some_values({6}));
    auto inner = adamw({{.parameters = {{"wide", wide}, {"narrow", narrow}}, .learning_rate = 0.1}});
    const auto ours =
        stochastic ? with_stochastic_rounding(std::move(inner), 3) : with_master_weights(std::move(inner));
    const auto plain = adamw({{.parameters = {{"alone", alone}}, .learning_rate = 0.1}});
    for (int i = 0; i < 3; ++i) {
      step(*ours, {wide, narrow}, i);
      step(*plain, {alone}, i);
    }
    EXPECT_TRUE(at::equal(wide, alone));
    const auto state = ours->state();
    EXPECT_FALSE(state.contains("wide.master") || state.contains("wide.rounding"));
    EXPECT_TRUE(state.contains(stochastic ? "narrow.rounding" : "narrow.master"));
  }
}

TEST(MasterWeights, KeepLayouts) {
  for (const bool stochastic : {false, true}) {
    const auto tidy = leaf(some_values({4, 6}));
    const auto turned = tidy.detach().t().contiguous().t().requires_grad_();
    const auto make = [&](const at::Tensor& p) {
      auto inner = adamw({{.parameters = {{"p", p}}, .learning_rate = 0.1}});
      return stochastic ? with_stochastic_rounding(std::move(inner), 3) : with_master_weights(std::move(inner));
    };
    step(*make(tidy), {tidy}, 0);
    step(*make(turned), {turned}, 0);
    EXPECT_TRUE(at::allclose(tidy.to(at::kFloat), turned.to(at::kFloat), 0, stochastic ? 0x1p-7 : 0));
  }
}

TEST(MasterWeights, ClipByTheGlobalNorm) {
  const auto p = leaf(at::zeros({4}));
  p.mutable_grad() = at::full({4}, 2, at::kBFloat16);
  const auto optimizer = with_master_weights(sgd({{.parameters = {{"p", p}}, .learning_rate = 1}}));
  EXPECT_FLOAT_EQ(optimizer->step({.max_grad_norm = 1}).grad_norm.item<float>(), 4);
  EXPECT_TRUE(at::equal(p, at::full({4}, -0.5, at::kBFloat16)));
}

// ---- stochastic rounding --------------------------------------------------------------------------------------------

/// What a parameter of `value` becomes when it is stepped to `target`.
at::Tensor rounded(double value, double target, std::uint64_t seed, std::int64_t count = 1 << 16) {
  const auto p = leaf(at::full({count}, value));
  const auto optimizer =
      with_stochastic_rounding(sgd({{.parameters = {{"p", p}}, .learning_rate = std::abs(value - target)}}), seed);
  p.mutable_grad() = at::full_like(p, value > target ? 1 : -1);
  optimizer->step();
  return p.detach().to(at::kFloat);
}

TEST(StochasticRounding, HasTheUnroundedNumberAsItsMean) {
  constexpr double spacing = 0x1p-7;  // between 1 and 2
  for (const double sign : {1.0, -1.0}) {
    for (const double part : {0.01, 0.25, 0.5, 0.75, 0.99}) {
      const auto result = rounded(sign, sign * (1 + part * spacing), 42) * sign;
      EXPECT_TRUE(((result == 1) | (result == 1 + spacing)).all().item<bool>()) << "one of the two neighbours";
      const double deviation = spacing * std::sqrt(part * (1 - part) / 65536);
      EXPECT_NEAR(result.mean().item<double>(), 1 + part * spacing, 4 * deviation) << part;
    }
  }
}

TEST(StochasticRounding, LeavesWhatNeedsNoRounding) {
  EXPECT_TRUE((rounded(1, 1.5, 7) == 1.5).all().item<bool>());
  EXPECT_TRUE((rounded(1, 0, 7) == 0).all().item<bool>());
}

TEST(StochasticRounding, FollowsFromTheSeed) {
  const auto one = rounded(1, 1.003, 7, 500);
  EXPECT_TRUE(at::equal(one, rounded(1, 1.003, 7, 500)));
  EXPECT_FALSE(at::equal(one, rounded(1, 1.003, 8, 500)));
}

TEST(StochasticRounding, DrawsAnewForEachParameterAndStep) {
  const auto a = leaf(at::ones({500})), b = leaf(at::ones({500}));
  const auto optimizer =
      with_stochastic_rounding(sgd({{.parameters = {{"a", a}, {"b", b}}, .learning_rate = 0.003}}), 1);
  const auto draw = [&] {
    const at::NoGradGuard no_grad;
    a.fill_(1), b.fill_(1);
    a.mutable_grad() = -at::ones_like(a), b.mutable_grad() = -at::ones_like(b);
    optimizer->step();
    return a.detach().clone();
  };
  const auto first = draw();
  EXPECT_FALSE(at::equal(a, b));
  EXPECT_FALSE(at::equal(first, draw()));
}

TEST(StochasticRounding, MakesNanOfWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto p = leaf(at::ones({3}));
    p.mutable_grad() = at::ones_like(p);
    p.grad()[1] = bad;
    with_stochastic_rounding(sgd({{.parameters = {{"p", p}}, .learning_rate = 1}}), 1)->step();
    EXPECT_TRUE(p[1].isnan().item<bool>());
    EXPECT_EQ(p.isnan().sum().item<std::int64_t>(), 1);
  }
}

// ---- both -----------------------------------------------------------------------------------------------------------

std::unique_ptr<Optimizer> wrapped(bool stochastic, const at::Tensor& a, const at::Tensor& b) {
  auto inner = adamw({{.parameters = {{"a", a}, {"b", b}}, .learning_rate = 0.03, .weight_decay = 0.1}});
  return stochastic ? with_stochastic_rounding(std::move(inner), 5) : with_master_weights(std::move(inner));
}

TEST(Bfloat16Weights, ResumeFromTheirState) {
  for (const bool stochastic : {false, true}) {
    const auto run = [&](int resume_at) {
      const auto a = leaf(some_values({30, 3})), b = leaf(some_values({11}));
      auto optimizer = wrapped(stochastic, a, b);
      for (int i = 0; i < 8; ++i) {
        if (i == resume_at) {
          std::map<std::string, at::Tensor> saved;
          for (const auto& [key, tensor] : optimizer->state()) saved[key] = tensor.clone();
          optimizer = wrapped(stochastic, a, b);
          optimizer->load_state(saved);
        }
        step(*optimizer, {a, b}, i);
      }
      return at::cat({a.detach().flatten(), b.detach()});
    };
    EXPECT_TRUE(at::equal(run(-1), run(4))) << stochastic;
  }
}

TEST(Bfloat16Weights, ChangeAllOrNothing) {
  for (const bool stochastic : {false, true}) {
    const auto a = leaf(some_values({30, 3})), b = leaf(some_values({11}));
    const auto before = at::cat({a.detach().flatten(), b.detach()}).clone();
    int failures = 0;
    for (std::int64_t fail_at = 0;; ++fail_at) {
      const auto optimizer = wrapped(stochastic, a, b);
      a.mutable_grad() = some_gradient(a, 0), b.mutable_grad() = some_gradient(b, 0);
      trace::Trace trace;
      const record::Recorder recorder(trace, {.fail_at = fail_at});
      try {
        optimizer->step();
        break;
      } catch (const record::OutOfMemoryError&) {
        ++failures;
      }
      const record::Muted muted;
      ASSERT_TRUE(at::equal(before, at::cat({a.detach().flatten(), b.detach()}))) << fail_at;
    }
    EXPECT_GT(failures, 8) << "the state and the scratch";
    EXPECT_FALSE(at::equal(before, at::cat({a.detach().flatten(), b.detach()})));
  }
}

TEST(Bfloat16Weights, TakeWhatTheHeaderSays) {
  for (const bool stochastic : {false, true}) {
    const auto a = leaf(some_values({300, 30})), b = leaf(some_values({1000}));
    const auto optimizer = wrapped(stochastic, a, b);
    a.mutable_grad() = some_gradient(a, 0), b.mutable_grad() = some_gradient(b, 0);
    trace::Trace trace;
    const record::Recorder recorder(trace);
    optimizer->step();
    const std::int64_t parameters = 10000, largest = 9000, small = 1024;
    EXPECT_NEAR(recorder.live().count(), parameters * (stochastic ? 8 : 12), small);
    const auto state = recorder.live();
    optimizer->step();
    EXPECT_EQ(recorder.live(), state);
    EXPECT_NEAR((recorder.peak() - state).count(), largest * (stochastic ? 8 : 4), small);
  }
}

TEST(Bfloat16Weights, RefuseWhatTheyCannotDo) {
  const auto half = leaf(at::ones({2}), at::kHalf), narrow = leaf(at::ones({2}));
  const auto over = [](const at::Tensor& p) { return sgd({{.parameters = {{"p", p}}, .learning_rate = 1}}); };
  EXPECT_THROW(with_master_weights(over(half)), UnsupportedError);
  EXPECT_THROW(with_stochastic_rounding(over(half), 1), UnsupportedError);
  EXPECT_THROW(with_master_weights(nullptr), UsageError);
  EXPECT_THROW(with_master_weights(with_stochastic_rounding(over(narrow), 1)), UsageError);
}
}  // namespace
}  // namespace cinch::optim
