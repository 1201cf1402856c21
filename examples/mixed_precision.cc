// fp16 with loss scaling, and weights in bfloat16 with float32 masters: what each asks of the training loop.
#include <iostream>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "cinch/optim/grad_scaler.h"
#include "cinch/optim/master_weights.h"
#include "cinch/optim/optimizer.h"
#include "cinch/techniques/autocast.h"

namespace nn = torch::nn;
using cinch::optim::GradScaler;
using cinch::techniques::Autocast;

nn::Sequential small_net() { return nn::Sequential(nn::Linear(16, 64), nn::GELU(), nn::Linear(64, 1)); }

at::Tensor inputs() { return at::randn({256, 16}); }
at::Tensor targets_of(const at::Tensor& x) { return x.sum(1, true).tanh(); }

void train_in_fp16() {
  auto net = small_net();
  const auto optimizer = cinch::optim::adamw({{.parameters = cinch::optim::named(*net), .learning_rate = 1e-2}});
  GradScaler scaler;
  at::Tensor loss;
  int left_out = 0;
  for (int step = 0; step < 50; ++step) {
    const auto x = inputs(), y = targets_of(x);
    {
      const Autocast autocast(at::kCPU, at::kHalf);
      loss = nn::functional::mse_loss(net->forward(x), y);
    }
    scaler.scale(loss).backward();
    if (!scaler.step(*optimizer, {.max_grad_norm = 1.0})) ++left_out;
    scaler.update();
    optimizer->zero_grad();
  }
  std::cout << "fp16: loss " << loss.item<double>() << ", " << left_out << " steps left out, scale " << scaler.scale()
            << '\n';
}

void train_in_bfloat16() {
  auto net = small_net();
  net->to(at::kBFloat16);  // weights, activations and gradients: 2 bytes each
  const auto optimizer = cinch::optim::with_master_weights(
      cinch::optim::adamw({{.parameters = cinch::optim::named(*net), .learning_rate = 1e-2}}));
  at::Tensor loss;
  for (int step = 0; step < 50; ++step) {
    const auto x = inputs(), y = targets_of(x);
    loss = nn::functional::mse_loss(net->forward(x.to(at::kBFloat16)).to(at::kFloat), y);
    loss.backward();
    optimizer->step({.max_grad_norm = 1.0});
    optimizer->zero_grad();
  }
  std::cout << "bfloat16 with masters: loss " << loss.item<double>() << '\n';
}

int main() {
  at::manual_seed(1);
  train_in_fp16();
  train_in_bfloat16();
}
