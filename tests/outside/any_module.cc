// A plain torch::nn module and torch::optim optimizer, neither of which knows cinch.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "cinch/train/estimate.h"
#include "outside.h"

namespace outside {
void estimate_any_module() {
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1)), torch::nn::ReLU(),
                            torch::nn::Flatten(), torch::nn::Linear(16 * 12 * 12, 10));
  torch::optim::AdamW optimizer(net->parameters());
  const at::Tensor images = at::rand({8, 3, 12, 12});
  const at::Tensor labels = at::randint(10, {8}, at::kLong);
  const at::Tensor before = net->parameters()[0].detach().clone();
  const auto step = [&] {
    const at::Tensor loss = at::cross_entropy_loss(net->forward(images), labels);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  };

  const cinch::StepEstimate predicted =
      cinch::estimate(step, cinch::device::find("cpu"), {.optimizers = {&optimizer}});
  expect(net->parameters()[0].equal(before), "that estimating changes no weight");
  expect(!net->parameters()[0].grad().defined(), "that estimating leaves no gradient");
  expect(predicted.step_peaks.size() == 2 && predicted.step_peaks[1] > predicted.step_peaks[0],
         "optimizer state to appear between the steps");

  const cinch::Bytes measured = predicted.existing + measured_peak(step);
  expect(predicted.peak == measured, "the predicted peak, " + to_string(predicted.peak) + ", to be the measured one, " +
                                         to_string(measured));
  expect(!net->parameters()[0].equal(before), "that training changes weights");
}
}  // namespace outside
