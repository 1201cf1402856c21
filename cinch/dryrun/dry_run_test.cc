#include "cinch/dryrun/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <ATen/Parallel.h>

#include "cinch/dryrun/internal/check_rules.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"

namespace cinch::dryrun {
namespace {
namespace nn = torch::nn;

/// The same program, dry and real.
template <class Program>
void expect_same_memory(const Program& program) {
  trace::Trace predicted, recorded;
  {
    DryRun dry(predicted, device::find("cpu"));
    program();
  }
  {
    record::Recorder recorder(recorded);
    program();
  }
  const auto fault = trace::compare_phase_ends(predicted, recorded);
  EXPECT_EQ(fault.value_or("none"), "none") << trace::first_divergence(predicted, recorded)->sentence;
  EXPECT_EQ(trace::Timeline(predicted).peak().bytes, trace::Timeline(recorded).peak().bytes);
  EXPECT_GT(trace::Timeline(predicted).peak().bytes, Bytes());
  if (auto divergence = trace::first_divergence(predicted, recorded)) std::cout << divergence->sentence << '\n';
  trace::Trace checked;
  internal::CheckRules check;
  {
    DryRun dry(checked, device::find("cpu"));
    program();
  }
  EXPECT_THAT(internal::CheckRules::faults(), ::testing::IsEmpty());
}

/// Two training steps of a network built inside.
template <class Net, class Optimizer>
auto training(Net make_net, Optimizer make_optimizer, at::IntArrayRef input_sizes, std::int64_t classes) {
  return [=, sizes = input_sizes.vec()] {
    auto net = [&] { trace::PhaseScope phase(trace::Phase::kInit, 0); return make_net(); }();
    auto optimizer = make_optimizer(net->parameters());
    for (std::uint32_t step = 1; step <= 2; ++step) {
      at::Tensor x, y, loss;
      {
        trace::PhaseScope phase(trace::Phase::kData, step);
        x = at::rand(sizes);
        y = at::zeros({sizes[0]}, at::kLong);
      }
      optimizer->zero_grad();
      {
        trace::PhaseScope phase(trace::Phase::kForward, step);
        loss = nn::functional::cross_entropy(net->forward(x).reshape({sizes[0], classes}), y);
      }
      {
        trace::PhaseScope phase(trace::Phase::kBackward, step);
        loss.backward();
      }
      trace::PhaseScope phase(trace::Phase::kOptimizer, step);
      optimizer->step();
    }
  };
}

auto sgd = [](const std::vector<at::Tensor>& p) { return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(0.1).momentum(0.9)); };
auto adamw = [](const std::vector<at::Tensor>& p) { return std::make_unique<torch::optim::AdamW>(p); };

TEST(DryRun, Mlp) {
  auto net = [] { return nn::Sequential(nn::Linear(784, 512), nn::ReLU(), nn::Dropout(0.1), nn::Linear(512, 300), nn::GELU(), nn::Linear(300, 10)); };
  for (int threads : {1, 2}) {
    at::set_num_threads(threads);
    expect_same_memory(training(net, sgd, {64, 784}, 10));
    expect_same_memory(training(net, adamw, {33, 784}, 10));
  }
}

TEST(DryRun, ConvNet) {
  auto net = [] {
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)), nn::BatchNorm2d(16), nn::ReLU(true), nn::MaxPool2d(2),
                          nn::Conv2d(nn::Conv2dOptions(16, 32, 3).stride(2)), nn::BatchNorm2d(32), nn::ReLU(), nn::AdaptiveAvgPool2d(1),
                          nn::Flatten(), nn::Linear(32, 10));
  };
  for (int threads : {1, 2}) {
    at::set_num_threads(threads);
    expect_same_memory(training(net, sgd, {8, 3, 32, 32}, 10));
  }
}

TEST(DryRun, Transformer) {
  auto net = [] {
    return nn::Sequential(nn::Linear(64, 64), nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(64, 4).dim_feedforward(256)),
                          nn::LayerNorm(nn::LayerNormOptions({64})), nn::Linear(64, 100));
  };
  for (int threads : {1, 2}) {
    at::set_num_threads(threads);
    expect_same_memory(training(net, adamw, {96, 1, 64}, 100));
  }
}
}  // namespace
}  // namespace cinch::dryrun
