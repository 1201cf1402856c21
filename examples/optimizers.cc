// One model under several optimizers: what their state takes, what a step takes at its peak, and how far they come.
#include <iomanip>
#include <iostream>
#include <memory>

#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/in_backward.h"
#include "cinch/optim/offload.h"
#include "cinch/optim/optimizer.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/sink.h"

namespace nn = torch::nn;
namespace optim = cinch::optim;

nn::Sequential deep_net() {
  at::manual_seed(1);
  nn::Sequential net(nn::Linear(32, 256), nn::GELU());
  for (int i = 0; i < 4; ++i) {
    net->push_back(nn::Linear(256, 256));
    net->push_back(nn::GELU());
  }
  net->push_back(nn::Linear(256, 1));
  return net;
}

at::Tensor loss_of(nn::Sequential& net) {
  const auto x = at::randn({32, 32});
  return nn::functional::mse_loss(net->forward(x), x.sum(1, true).tanh());
}

/// How an optimizer that steps inside backward is used, and any other.
double train(nn::Sequential& net, optim::Optimizer& optimizer) {
  auto* in_backward = dynamic_cast<optim::BackwardOptimizer*>(&optimizer);
  at::Tensor loss;
  for (int step = 0; step < 60; ++step) {
    loss = loss_of(net);
    if (in_backward != nullptr) {
      in_backward->backward(loss);
    } else {
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    }
  }
  return loss.item<double>();
}

template <class Make>
void show(const char* name, double learning_rate, const Make& make) {
  cinch::trace::PeakMeter meter;
  const cinch::record::Recorder recorder(meter);
  auto net = deep_net();
  double parameters = 0;
  for (const auto& parameter : net->parameters()) parameters += static_cast<double>(parameter.numel());
  const auto weights = recorder.live();
  const std::unique_ptr<optim::Optimizer> optimizer = make(optim::without_decay_of_vectors(*net, learning_rate, 0.01));
  const double loss = train(net, *optimizer);
  const auto state = recorder.live() - weights;
  std::cout << std::left << std::setw(28) << name << std::right << std::fixed << std::setprecision(2) << std::setw(6)
            << static_cast<double>(state.count()) / parameters << " B a parameter   peak " << std::setw(5)
            << static_cast<double>(recorder.peak().count()) / (1 << 20) << " MiB   loss " << std::setprecision(3)
            << loss << '\n';
}

int main() {
  at::set_num_threads(1);  // These layers are too small for more.
  using Groups = std::vector<optim::ParameterGroup>;
  show("AdamW", 1e-3, [](Groups groups) { return optim::adamw(std::move(groups)); });
  show("AdamW, 8 bits", 1e-3, [](Groups groups) { return optim::adamw_8bit(std::move(groups)); });
  show("Adafactor", 1e-3, [](Groups groups) { return optim::adafactor(std::move(groups)); });
  show("Lion", 3e-4, [](Groups groups) { return optim::lion(std::move(groups)); });
  show("SGD with momentum", 1e-1, [](Groups groups) { return optim::sgd(std::move(groups), {.momentum = 0.9}); });
  show("AdamW in backward", 1e-3, [](Groups groups) { return optim::in_backward(optim::adamw(std::move(groups))); });
  show("AdamW, clipped in backward", 1e-3, [](Groups groups) {
    return optim::in_backward(optim::adamw(std::move(groups)), {.max_grad_norm = 1.0, .two_passes = true});
  });
  show("AdamW, state on the host", 1e-3,
       [](Groups groups) { return optim::offloaded(optim::adamw(std::move(groups))); });
  show("8 bits, host, in backward", 1e-3,
       [](Groups groups) { return optim::in_backward(optim::offloaded(optim::adamw_8bit(std::move(groups)))); });
}
