#include "cinch/train/estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"

namespace cinch {
namespace {
namespace nn = torch::nn;

nn::Sequential make_net() { return nn::Sequential(nn::Linear(200, 300), nn::ReLU(), nn::Linear(300, 50)); }

at::Tensor loss_of(nn::Sequential& net, const at::Tensor& x, const at::Tensor& y) {
  return nn::functional::cross_entropy(net->forward(x), y);
}

/// Live bytes of a captured net are not seen by a recorder: they are added.
TEST(Estimate, OfACapturedNetAndOptimizerEqualsTheRecording) {
  auto net = make_net();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  const auto x = at::rand({64, 200}), y = at::zeros({64}, at::kLong);
  auto step = [&] {
    optimizer.zero_grad();
    auto loss = loss_of(net, x, y);
    loss.backward();
    optimizer.step();
  };
  const auto estimate = cinch::estimate(step, device::find("cpu"), {.optimizers = {&optimizer}});
  trace::Trace recorded;
  Bytes first_step;
  {
    const record::Recorder recorder(recorded);
    step();
    first_step = recorder.peak();
    step();
  }
  Bytes existing = Bytes(static_cast<std::int64_t>(x.nbytes() + y.nbytes()));
  for (const auto& parameter : net->parameters()) existing += Bytes(static_cast<std::int64_t>(parameter.nbytes()));
  EXPECT_EQ(estimate.existing, existing);
  EXPECT_EQ(estimate.peak, existing + trace::Timeline(recorded).peak().bytes);
  ASSERT_EQ(estimate.step_peaks.size(), 2u);
  EXPECT_EQ(estimate.step_peaks[0], existing + first_step);
  EXPECT_EQ(estimate.step_peaks[1], estimate.peak);
}

TEST(Estimate, SaysWhatTheBytesAreFor) {
  auto net = make_net();
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(1e-3));
  const auto x = at::rand({64, 200}), y = at::zeros({64}, at::kLong);
  const auto estimate = cinch::estimate([&] {
    optimizer.zero_grad();
    loss_of(net, x, y).backward();
    optimizer.step();
  }, device::find("cpu"), {.optimizers = {&optimizer}});
  const trace::Timeline timeline(estimate.trace);
  std::int64_t numbers = 0;
  for (const auto& parameter : net->parameters()) numbers += parameter.numel();
  const auto at_end = timeline.live_by_category(timeline.peak(2).event);
  EXPECT_EQ(at_end[trace::Category::kParameter], Bytes(numbers * 4));
  EXPECT_GE(at_end[trace::Category::kOptimizerState], Bytes(numbers * 8));
  const auto at_peak = timeline.live_by_category(timeline.peak().event);
  EXPECT_EQ(at_peak[trace::Category::kParameter], Bytes(numbers * 4));
  EXPECT_EQ(at_peak[trace::Category::kInput], Bytes(static_cast<std::int64_t>(x.nbytes() + y.nbytes())));
  EXPECT_GT(at_peak[trace::Category::kGradient], Bytes());
  EXPECT_EQ(at_peak.sum(), estimate.peak);
}

TEST(Estimate, LeavesNetOptimizerAndGradientsAsTheyWere) {
  auto net = make_net();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto x = at::rand({8, 200}), y = at::zeros({8}, at::kLong);
  auto step = [&] {
    optimizer.zero_grad();
    loss_of(net, x, y).backward();
    optimizer.step();
  };
  step();
  std::vector<at::Tensor> before;
  for (const auto& parameter : net->parameters()) before.push_back(parameter.detach().clone());
  const auto states = optimizer.state().size();
  cinch::estimate(step, device::find("cpu"), {.optimizers = {&optimizer}});
  EXPECT_EQ(optimizer.state().size(), states);
  const auto parameters = net->parameters();
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(parameters[i], before[i]));
  EXPECT_NO_THROW(step());
}

TEST(Estimate, OfAStepThatMakesEverythingItself) {
  const auto estimate = cinch::estimate([] {
    auto net = make_net();
    torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
    auto loss = loss_of(net, at::rand({64, 200}), at::zeros({64}, at::kLong));
    loss.backward();
    optimizer.step();
    EXPECT_EQ(loss.item<float>(), 1) << "nobody knows the loss of a dry run";
  });
  EXPECT_EQ(estimate.existing, Bytes());
  EXPECT_EQ(estimate.step_peaks[0], estimate.step_peaks[1]);
  EXPECT_GT(estimate.peak, Bytes(2 * 4 * (200 * 300 + 300 + 300 * 50 + 50)));
}

TEST(Estimate, SaysWhereItIsABoundOrKnowsShapesAlone) {
  const auto plain = cinch::estimate([] { at::rand({64, 200}).relu().sum(); });
  EXPECT_THAT(plain.bounded, testing::IsEmpty());
  EXPECT_THAT(plain.by_shape_alone, testing::IsEmpty());
  const auto masked = cinch::estimate([] {
    const auto x = at::rand({64, 200});
    x.masked_select(x > 0.5).sum();
  });
  EXPECT_THAT(masked.bounded, testing::ElementsAre("aten::masked_select"));
  // All are taken to be selected: x, the mask, the result.
  EXPECT_GE(masked.peak, Bytes(64 * 200 * (4 + 1 + 4)));
  const auto large = cinch::estimate([] {  // Argument of 6 GiB: too much to run its kernel.
    const auto x = at::empty({1536, 1, 1024, 1024});
    at::conv2d(x, at::empty({1, 1, 3, 3}), {}, 1, 1);
  });
  EXPECT_THAT(large.by_shape_alone, testing::ElementsAre("aten::convolution"));
}

TEST(Estimate, RefusesAStepThatKeepsItsTensors) {
  std::vector<at::Tensor> losses;
  auto net = make_net();
  const auto x = at::rand({64, 200});
  EXPECT_THROW(cinch::estimate([&] { losses.push_back(net->forward(x)); }), UsageError);
  losses.clear();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  EXPECT_THROW(cinch::estimate([&] {
                 net->forward(x).sum().backward();
                 optimizer.step();  // captured, makes momentum, and was not named
               }),
               UsageError);
}
}  // namespace
}  // namespace cinch
