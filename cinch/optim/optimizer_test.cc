#include "cinch/optim/optimizer.h"

#include <cmath>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "cinch/core/error.h"

namespace cinch::optim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
namespace nn = torch::nn;

nn::Sequential net() {
  at::manual_seed(5);
  return nn::Sequential(nn::Linear(6, 8), nn::Linear(8, 3));
}

void backward(nn::Sequential& model, int step) {
  const auto x = at::sin(at::arange(24, at::kFloat).view({4, 6}) * (step + 1));
  model->forward(x).tanh().square().sum().backward();
}

void train(nn::Sequential& model, Optimizer& optimizer, int first, int last) {
  for (int i = first; i < last; ++i) {
    backward(model, i);
    optimizer.step();
    optimizer.zero_grad();
  }
}

template <class Reference>
void expect_trains_as(Reference reference, nn::Sequential theirs, Optimizer& optimizer, nn::Sequential ours) {
  train(ours, optimizer, 0, 20);
  for (int i = 0; i < 20; ++i) {
    backward(theirs, i);
    reference.step();
    reference.zero_grad();
  }
  const auto left = ours->parameters(), right = theirs->parameters();
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::allclose(left[i], right[i], 1e-4, 1e-6)) << i;
}

TEST(AdamW, TrainsAsTorchDoes) {
  auto ours = net(), theirs = net();
  const auto optimizer = adamw({{.parameters = named(*ours), .learning_rate = 0.01, .weight_decay = 0.1}},
                               {.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-7});
  expect_trains_as(torch::optim::AdamW(theirs->parameters(),
                                       torch::optim::AdamWOptions(0.01).betas({0.8, 0.95}).eps(1e-7).weight_decay(0.1)),
                   theirs, *optimizer, ours);
}

TEST(Sgd, TrainsAsTorchDoes) {
  for (const double momentum : {0.0, 0.9}) {
    auto ours = net(), theirs = net();
    const auto optimizer = sgd({{.parameters = named(*ours), .learning_rate = 0.05, .weight_decay = 0.01}},
                               {.momentum = momentum});
    expect_trains_as(
        torch::optim::SGD(theirs->parameters(), torch::optim::SGDOptions(0.05).momentum(momentum).weight_decay(0.01)),
        theirs, *optimizer, ours);
    EXPECT_EQ(optimizer->state().size(), momentum == 0 ? 0u : 4u);
  }
}

TEST(Optimizer, GroupsHaveTheirOwnRates) {
  auto model = net();
  auto all = named(*model);
  const std::vector<NamedParameter> first{all[0], all[1]}, second{all[2], all[3]};
  const auto optimizer = sgd({{.parameters = first, .learning_rate = 0}, {.parameters = second, .learning_rate = 0.1}});
  const auto before = all[0].tensor.clone(), moved = all[2].tensor.clone();
  train(model, *optimizer, 0, 1);
  EXPECT_TRUE(at::equal(all[0].tensor, before));
  EXPECT_FALSE(at::equal(all[2].tensor, moved));
  optimizer->set_learning_rate(0.5);
  EXPECT_EQ(optimizer->groups()[0].learning_rate, 0.5);
  train(model, *optimizer, 1, 2);
  EXPECT_FALSE(at::equal(all[0].tensor, before));
}

TEST(Optimizer, MakesItsStateAtTheFirstStepUnderTheParametersNames) {
  auto model = nn::Sequential(nn::Linear(2, 1));
  const auto optimizer = adamw({{.parameters = named(*model), .learning_rate = 0.1}});
  EXPECT_TRUE(optimizer->state().empty());
  model->forward(at::ones({1, 2})).sum().backward();
  optimizer->step();
  const auto state = optimizer->state();
  EXPECT_THAT(state, ElementsAre(Key("0.bias.exp_avg"), Key("0.bias.exp_avg_sq"), Key("0.bias.step"),
                                 Key("0.weight.exp_avg"), Key("0.weight.exp_avg_sq"), Key("0.weight.step")));
  EXPECT_EQ(state.at("0.bias.step").item<float>(), 1);
  EXPECT_FLOAT_EQ(state.at("0.bias.exp_avg").item<float>(), 0.1F);
}

TEST(Optimizer, PassesOverParametersWithoutAGradient) {
  const auto used = at::ones({2}).requires_grad_(), idle = at::ones({2}).requires_grad_();
  const auto optimizer = adamw({{.parameters = {{"used", used}, {"idle", idle}}, .learning_rate = 0.1, .weight_decay = 1}});
  used.sum().backward();
  optimizer->step();
  EXPECT_FALSE(at::equal(used, at::ones({2})));
  EXPECT_TRUE(at::equal(idle, at::ones({2})));
  EXPECT_THAT(optimizer->state(), ElementsAre(Key("idle.no_state"), Key("used.exp_avg"), Key("used.exp_avg_sq"), Key("used.step")));
}

TEST(Optimizer, WhatNeverHadAGradientHasNoStateAndResumesSo) {
  const auto used = at::ones({2}).requires_grad_(), idle = at::ones({2}).requires_grad_();
  const std::vector<ParameterGroup> groups{{.parameters = {{"used", used}, {"idle", idle}}, .learning_rate = 0.1}};
  const auto before = adamw(groups), after = adamw(groups);
  used.sum().backward();
  before->step();
  after->load_state(before->state());
  EXPECT_EQ(after->state().size(), 4u);
  idle.sum().backward();
  after->step();
  EXPECT_EQ(after->state().at("idle.step").item<float>(), 1);
  EXPECT_EQ(after->state().at("used.step").item<float>(), 2);
}

TEST(Optimizer, TakesGradientsOfAnyLayout) {
  const auto tidy = at::ones({2, 3}).requires_grad_(), odd = at::ones({2, 3}).requires_grad_();
  const auto gradient = at::arange(6, at::kFloat).view({2, 3});
  tidy.mutable_grad() = gradient.clone();
  odd.mutable_grad() = gradient.t().contiguous().t();
  adamw({{.parameters = {{"tidy", tidy}}, .learning_rate = 0.1}})->step();
  adamw({{.parameters = {{"odd", odd}}, .learning_rate = 0.1}})->step();
  EXPECT_TRUE(at::equal(tidy, odd));
}

TEST(Optimizer, ResumesFromItsState) {
  for (const bool adam : {true, false}) {
    const auto make = [adam](nn::Sequential& model) {
      std::vector<ParameterGroup> groups{{.parameters = named(*model), .learning_rate = 0.01}};
      return adam ? adamw(groups) : sgd(groups, {.momentum = 0.9});
    };
    auto straight = net();
    const auto whole = make(straight);
    train(straight, *whole, 0, 6);

    auto resumed = net();
    const auto before = make(resumed), after = make(resumed);
    train(resumed, *before, 0, 3);
    after->load_state(before->state());
    train(resumed, *before, 3, 4);  // live tensors are not shared: this must not reach `after`
    for (auto& [key, tensor] : after->state()) EXPECT_FALSE(tensor.is_same(before->state().at(key)));

    resumed = net();
    const auto first = make(resumed);
    train(resumed, *first, 0, 3);
    const auto second = make(resumed);
    second->load_state(first->state());
    train(resumed, *second, 3, 6);
    for (std::size_t i = 0; i < straight->parameters().size(); ++i) {
      EXPECT_TRUE(at::equal(straight->parameters()[i], resumed->parameters()[i]));
    }
  }
}

std::string refusal(Optimizer& optimizer, const std::map<std::string, at::Tensor>& state) {
  try {
    optimizer.load_state(state);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(Optimizer, RefusesStateThatIsNotItsOwnAndKeepsWhatItHas) {
  auto model = net();
  const auto optimizer = adamw({{.parameters = named(*model), .learning_rate = 0.01}});
  train(model, *optimizer, 0, 2);
  std::map<std::string, at::Tensor> good, kept;
  for (const auto& [key, tensor] : optimizer->state()) {
    kept[key] = tensor.clone();
    good[key] = tensor + 1;
  }
  auto state = good;
  state.erase("1.weight.exp_avg");
  EXPECT_THAT(refusal(*optimizer, state), HasSubstr("\"1.weight.exp_avg\" is missing"));
  state = good;
  state["2.weight.exp_avg"] = at::ones({1});
  EXPECT_THAT(refusal(*optimizer, state), HasSubstr("\"2.weight.exp_avg\" belongs to no parameter"));
  state = good;
  state["1.bias.exp_avg"] = at::ones({4});
  EXPECT_THAT(refusal(*optimizer, state), HasSubstr("\"1.bias.exp_avg\" is Float [4], not Float [3]"));
  state = good;
  state["1.bias.exp_avg"] = at::ones({3}, at::kDouble);
  EXPECT_THAT(refusal(*optimizer, state), HasSubstr("is Double [3], not Float [3]"));
  for (const auto& [key, tensor] : optimizer->state()) EXPECT_TRUE(at::equal(tensor, kept.at(key))) << key;
  EXPECT_EQ(refusal(*optimizer, good), "none");
  optimizer->load_state({});
  EXPECT_TRUE(optimizer->state().empty());
}

TEST(Clipping, IsTorchsClipGradNorm) {
  for (const double limit : {0.1, 1e6}) {
    auto ours = net(), theirs = net();
    backward(ours, 0);
    backward(theirs, 0);
    const auto optimizer = sgd({{.parameters = named(*ours), .learning_rate = 0}});
    const auto norm = optimizer->step({.max_grad_norm = limit}).grad_norm;
    EXPECT_EQ(norm.scalar_type(), at::kFloat);
    EXPECT_FLOAT_EQ(norm.item<float>(), nn::utils::clip_grad_norm_(theirs->parameters(), limit));
    const auto left = ours->parameters(), right = theirs->parameters();
    for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::allclose(left[i].grad(), right[i].grad()));
  }
}

TEST(Clipping, DoesNotOverflowInHalfPrecision) {
  const auto p = at::zeros({4}, at::kHalf).requires_grad_();
  p.mutable_grad() = at::full({4}, 1000, at::kHalf);  // the sum of squares is 4e6, beyond fp16
  const auto optimizer = sgd({{.parameters = {{"p", p}}, .learning_rate = 0}});
  EXPECT_FLOAT_EQ(optimizer->step({.max_grad_norm = 1}).grad_norm.item<float>(), 2000);
  EXPECT_NEAR(p.grad()[0].item<float>(), 0.5, 1e-3);
}

TEST(Clipping, WithoutGradientsGivesZero) {
  const auto p = at::zeros({4}).requires_grad_();
  EXPECT_EQ(sgd({{.parameters = {{"p", p}}, .learning_rate = 1}})->step({.max_grad_norm = 1}).grad_norm.item<float>(), 0);
  EXPECT_FALSE(sgd({{.parameters = {{"p", p}}, .learning_rate = 1}})->step().grad_norm.defined());
}

TEST(Parameters, TiedCountOnce) {
  struct Tied : nn::Module {
    Tied() {
      first = register_parameter("first", at::ones({4}));
      register_parameter("second", first);
      register_parameter("frozen", at::ones({4}), /*requires_grad=*/false);
    }
    at::Tensor first;
  };
  const Tied module;
  const auto parameters = named(module);
  ASSERT_EQ(parameters.size(), 1u);
  EXPECT_EQ(parameters[0].name, "first");

  module.first.sum().backward();
  const auto optimizer =
      sgd({{.parameters = {{"first", module.first}, {"second", module.first}}, .learning_rate = 1}}, {.momentum = 0.5});
  EXPECT_FLOAT_EQ(optimizer->step({.max_grad_norm = 100}).grad_norm.item<float>(), 2);
  EXPECT_TRUE(at::equal(module.first, at::zeros({4}))) << "stepped once";
  EXPECT_THAT(optimizer->state(), ElementsAre(Key("first.momentum_buffer")));
}

TEST(Parameters, VectorsDoNotDecay) {
  const auto model = nn::Sequential(nn::Linear(6, 8), nn::Linear(8, 3));
  const auto groups = without_decay_of_vectors(*model, 0.1, 0.5);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].weight_decay, 0.5);
  EXPECT_EQ(groups[1].weight_decay, 0);
  EXPECT_EQ(groups[0].learning_rate, 0.1);
  EXPECT_EQ(groups[1].learning_rate, 0.1);
  ASSERT_EQ(groups[0].parameters.size(), 2u);
  ASSERT_EQ(groups[1].parameters.size(), 2u);
  EXPECT_EQ(groups[0].parameters[1].name, "1.weight");
  EXPECT_EQ(groups[1].parameters[0].name, "0.bias");
  EXPECT_EQ(without_decay_of_vectors(*nn::Linear(nn::LinearOptions(2, 2).bias(false)), 0.1, 0.5).size(), 1u);
}

TEST(Optimizer, RefusesNonsense) {
  const auto p = at::zeros({4}).requires_grad_(), q = at::zeros({4}).requires_grad_();
  EXPECT_THROW(sgd({}), UsageError);
  EXPECT_THROW(sgd({{.parameters = {}, .learning_rate = 1}}), UsageError);
  EXPECT_THROW(sgd({{.parameters = {{"p", p}}, .learning_rate = -1}}), UsageError);
  EXPECT_THROW(sgd({{.parameters = {{"p", p}}, .learning_rate = std::nan("")}}), UsageError);
  EXPECT_THROW(sgd({{.parameters = {{"p", p}, {"p", q}}, .learning_rate = 1}}), UsageError);
  EXPECT_THROW(adamw({{.parameters = {{"p", p}}, .learning_rate = 1}}, {.beta1 = 1}), UsageError);
  EXPECT_THROW(sgd({{.parameters = {{"p", p}}, .learning_rate = 1}})->set_learning_rate(INFINITY), UsageError);
}

}  // namespace
}  // namespace cinch::optim
