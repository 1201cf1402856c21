#include "cinch/optim/in_backward.h"

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "cinch/core/error.h"
#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/grad_scaler.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/sink.h"

namespace cinch::optim {
namespace {
using testing::HasSubstr;
namespace nn = torch::nn;

nn::Sequential net() {
  at::manual_seed(5);
  return nn::Sequential(nn::Linear(64, 80), nn::Linear(80, 64));
}

at::Tensor loss_of(nn::Sequential& model, int step) {
  const auto x = at::sin(at::arange(256, at::kFloat).view({4, 64}) * (step + 1));
  return model->forward(x).tanh().square().sum();
}

std::vector<ParameterGroup> groups(nn::Sequential& model) {
  auto all = named(*model);
  return {{{all[0], all[1]}, 0.01, 0.1}, {{all[2], all[3]}, 0.02, 0}};
}

void expect_equal(nn::Sequential& a, nn::Sequential& b) {
  const auto left = a->parameters(), right = b->parameters();
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << i;
}

void train_plainly(nn::Sequential& model, Optimizer& optimizer, int steps, std::optional<double> max_grad_norm = {},
                   int micro_batches = 1) {
  for (int i = 0; i < steps; ++i) {
    for (int k = 0; k < micro_batches; ++k) loss_of(model, i * micro_batches + k).backward();
    optimizer.step({max_grad_norm});
    optimizer.zero_grad();
  }
}

void expect_no_gradients(nn::Sequential& model) {
  for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(InBackward, TrainsAsThePlainLoopToTheBit) {
  for (int which = 0; which < 4; ++which) {
    const auto make = [which](nn::Sequential& model) {
      return which == 0   ? adamw(groups(model))
             : which == 1 ? sgd(groups(model), {.momentum = 0.9})
             : which == 2 ? adafactor(groups(model))
                          : adamw_8bit(groups(model));
    };
    auto plain = net(), ours = net();
    train_plainly(plain, *make(plain), 5);
    const auto optimizer = in_backward(make(ours));
    for (int i = 0; i < 5; ++i) {
      EXPECT_FALSE(optimizer->backward(loss_of(ours, i)).grad_norm.defined());
      expect_no_gradients(ours);
    }
    expect_equal(plain, ours);
  }
}

TEST(InBackward, ClipsInTwoPassesAsThePlainLoopDoes) {
  auto plain = net(), ours = net();
  const auto reference = adamw(groups(plain));
  const auto optimizer = in_backward(adamw(groups(ours)), {.max_grad_norm = 0.5, .two_passes = true});
  for (int i = 0; i < 5; ++i) {
    loss_of(plain, i).backward();
    const auto wanted = reference->step({.max_grad_norm = 0.5}).grad_norm;
    reference->zero_grad();
    const auto norm = optimizer->backward(loss_of(ours, i)).grad_norm;
    EXPECT_GT(norm.item<float>(), 0.5F) << "it does clip";
    EXPECT_TRUE(at::equal(norm, wanted));
    expect_no_gradients(ours);
  }
  expect_equal(plain, ours);
}

TEST(InBackward, AccumulatesMicroBatches) {
  auto plain = net(), ours = net();
  train_plainly(plain, *adamw(groups(plain)), 4, {}, 3);
  const auto optimizer = in_backward(adamw(groups(ours)));
  for (int i = 0; i < 12; ++i) {
    optimizer->backward(loss_of(ours, i), /*last=*/i % 3 == 2);
    EXPECT_EQ(ours->parameters()[0].grad().defined(), i % 3 != 2);
  }
  expect_equal(plain, ours);
}

TEST(InBackward, ATiedWeightIsSteppedOnceByItsWholeGradient) {
  const auto run = [](bool inside) {
    const auto w = at::ones({5}).requires_grad_();
    auto optimizer = sgd({{.parameters = {{"w", w}}, .learning_rate = 0.1}});
    const auto loss = (w * 2).sum() + (w * w).sum();
    if (inside) {
      in_backward(std::move(optimizer))->backward(loss);
    } else {
      loss.backward();
      optimizer->step();
    }
    return w;
  };
  EXPECT_TRUE(at::equal(run(true), run(false)));
}

/// All gradients together are twice the model's larger weight; in backward only one of them lives.
TEST(InBackward, GradientsDoNotLiveTogether) {
  const auto peak = [](bool inside) {
    at::manual_seed(1);
    std::vector<at::Tensor> weights;
    std::vector<NamedParameter> parameters;
    for (int i = 0; i < 8; ++i) {
      weights.push_back(at::randn({64, 64}).requires_grad_());
      parameters.push_back({std::to_string(i), weights.back()});
    }
    auto optimizer = sgd({{.parameters = parameters, .learning_rate = 0.01}});
    auto x = at::ones({2, 64});
    for (const auto& weight : weights) x = x.matmul(weight).tanh();
    const auto loss = x.sum();
    trace::PeakMeter meter;
    const record::Recorder recorder(meter);
    if (inside) {
      in_backward(std::move(optimizer))->backward(loss);
    } else {
      loss.backward();
      optimizer->step();
    }
    return recorder.peak().count();
  };
  constexpr std::int64_t kGradient = 64 * 64 * 4;
  EXPECT_GE(peak(false), 8 * kGradient);
  EXPECT_LE(peak(true), 3 * kGradient);
}

TEST(InBackward, GoesOnWithItsStateAndHasGroups) {
  auto plain = net(), ours = net();
  const auto reference = adamw(groups(plain));
  train_plainly(plain, *reference, 4);
  auto begun = adamw(groups(ours));
  train_plainly(ours, *begun, 2);
  const auto optimizer = in_backward(std::move(begun));
  for (int i = 0; i < 2; ++i) optimizer->backward(loss_of(ours, i));
  const auto state = optimizer->state();
  EXPECT_EQ(state.at("0.weight.step").item<float>(), 4);
  const auto frozen = ours->parameters()[0].detach().clone();
  optimizer->set_learning_rate(0);
  optimizer->backward(loss_of(ours, 3));
  EXPECT_TRUE(at::equal(ours->parameters()[0], frozen));
}

TEST(InBackward, PlainBackwardOnlyAccumulates) {
  auto model = net(), plain = net();
  const auto optimizer = in_backward(sgd(groups(model)));
  const auto before = model->parameters()[0].detach().clone();
  loss_of(model, 0).backward();
  EXPECT_TRUE(model->parameters()[0].grad().defined());
  EXPECT_TRUE(at::equal(model->parameters()[0], before));
  optimizer->step();
  train_plainly(plain, *sgd(groups(plain)), 1);
  expect_equal(model, plain);
}

TEST(InBackward, LetsGoOfItsHooks) {
  auto model = net();
  in_backward(sgd(groups(model)));
  for (const auto& parameter : model->parameters()) {
    EXPECT_EQ(torch::autograd::impl::post_acc_grad_hooks(parameter), nullptr);
  }
  const auto first = in_backward(sgd(groups(model)));
  EXPECT_THROW(in_backward(sgd(groups(model))), UsageError);
  first->backward(loss_of(model, 0));
  expect_no_gradients(model);
}

std::string refusal(const InBackwardOptions& options) {
  auto model = net();
  try {
    in_backward(sgd(groups(model)), options);
  } catch (const UsageError& error) {
    return error.what() + (" " + error.hint());
  }
  return "none";
}

TEST(InBackward, RefusesWhatCannotBeRight) {
  EXPECT_THAT(refusal({.max_grad_norm = 1}), HasSubstr("needs all gradients"));
  EXPECT_THAT(refusal({.two_passes = true}), HasSubstr("for nothing"));
  auto model = net();
  EXPECT_THROW(in_backward(in_backward(sgd(groups(model)))), UsageError);
  EXPECT_THROW(in_backward(nullptr), UsageError);
  const auto clipping = in_backward(sgd(groups(model)), {.max_grad_norm = 1, .two_passes = true});
  loss_of(model, 0).backward();
  EXPECT_THROW(clipping->backward(loss_of(model, 1)), UsageError) << "a gradient was there";
  EXPECT_THROW(clipping->backward(loss_of(model, 1), /*last=*/false), UsageError);
  EXPECT_THROW(clipping->step({.max_grad_norm = 1}), UsageError);
  GradScaler scaler;
  EXPECT_THROW(scaler.step(*clipping), UsageError);
}
}  // namespace
}  // namespace cinch::optim
