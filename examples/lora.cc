// A model of one's own, tuned by adapters on two of its layers, which are saved alone.
#include <filesystem>
#include <iostream>

#include <torch/nn/modules/linear.h>

#include "cinch/interchange/safetensors.h"
#include "cinch/optim/optimizer.h"
#include "cinch/techniques/lora.h"

struct NetImpl : torch::nn::Module {
  NetImpl() {
    up = register_module("up", torch::nn::Linear(256, 1024));
    down = register_module("down", torch::nn::Linear(1024, 256));
  }
  at::Tensor forward(const at::Tensor& x) { return x + down->forward(up->forward(x).relu()); }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Net);

int main() {
  Net net;
  cinch::Lora lora(*net, {.targets = {"up", "down"}, .rank = 4, .alpha = 8, .base = cinch::BaseWeights::kInt8});
  const auto optimizer = cinch::optim::adamw({{.parameters = cinch::optim::named(*net), .learning_rate = 1e-2}});

  const auto x = at::randn({64, 256}), wanted = x.roll(1, 1);
  for (int step = 1; step <= 30; ++step) {
    const auto loss = (net->forward(x) - wanted).square().mean();
    loss.backward();
    optimizer->step();
    optimizer->zero_grad();
    if (step % 10 == 0) std::cout << "step " << step << ": loss " << loss.item<float>() << '\n';
  }

  const auto file = std::filesystem::temp_directory_path() / "cinch_example_adapter.safetensors";
  cinch::interchange::save_safetensors(file, {lora.tensors(), {{"format", "pt"}}});
  std::cout << "adapters: " << std::filesystem::file_size(file) << " bytes\n";
  lora.load(cinch::interchange::load_safetensors(file).tensors);
  std::filesystem::remove(file);
}
