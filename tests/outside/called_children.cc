// Children run through cinch::call(): they get names, and activation checkpointing by name.
#include <map>
#include <string>
#include <vector>

#include <ATen/ops/gelu.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/linear.h>

#include "cinch/techniques/call.h"
#include "cinch/train/estimate.h"
#include "outside.h"

namespace outside {
namespace {
struct BlockImpl : torch::nn::Module {
  BlockImpl() : up(64, 256), down(256, 64) {
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(at::Tensor x) { return x + down->forward(at::gelu(up->forward(x))); }
  torch::nn::Linear up, down;
};
TORCH_MODULE(Block);

struct TowerImpl : torch::nn::Module {
  TowerImpl() {
    for (int i = 0; i < 4; ++i) {
      blocks.emplace_back();
      register_module("block" + std::to_string(i), blocks.back());
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (Block& block : blocks) x = cinch::call(block, x);  // Was: block->forward(x).
    return x;
  }
  std::vector<Block> blocks;
};
TORCH_MODULE(Tower);
}  // namespace

void checkpoint_called_children() {
  Tower tower;
  const at::Tensor input = at::rand({128, 64});
  std::map<std::string, cinch::plan::ActivationPolicy> activations;
  cinch::Bytes peaks[2];
  std::vector<at::Tensor> gradients[2];
  for (int checkpointed = 0; checkpointed < 2; ++checkpointed) {
    cinch::techniques::CallPolicies policies(*tower, activations);
    const auto step = [&] {
      cinch::techniques::UseCallPolicies use(policies);
      tower->zero_grad();
      tower->forward(input).sum().backward();
    };
    const cinch::StepEstimate predicted = cinch::estimate(step);
    peaks[checkpointed] = predicted.peak;
    expect(predicted.peak == predicted.existing + measured_peak(step), "the predicted peak to be the measured one");
    for (const at::Tensor& parameter : tower->parameters()) gradients[checkpointed].push_back(parameter.grad().clone());
    tower->zero_grad();

    const std::vector<std::string> called = policies.called();
    expect(called == std::vector<std::string>{"block0", "block1", "block2", "block3"}, "children called by their names");
    for (const std::string& path : called) activations[path] = cinch::plan::ActivationPolicy::kCheckpoint;
  }
  expect(peaks[1] < peaks[0], "checkpointing to lower the peak");
  for (std::size_t i = 0; i < gradients[0].size(); ++i)
    expect(gradients[0][i].equal(gradients[1][i]), "the same gradients, bit for bit");
}
}  // namespace outside
