// What a network keeps for its backward pass, four ways: on the device, computed again, in host memory, in fewer bits.
#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include <torch/nn/modules/linear.h>

#include "cinch/record/recorder.h"
#include "cinch/techniques/activation_checkpoint.h"
#include "cinch/techniques/compress.h"
#include "cinch/techniques/offload.h"
#include "cinch/trace/trace.h"

using cinch::techniques::Codec;
using cinch::techniques::OpSet;

/// Twelve layers under `policy`, each run as `layer` says: the loss, a gradient's norm, and the peak.
void train(const std::string& name, cinch::techniques::SavedTensorPolicy* policy,
           const cinch::CheckpointPolicy* region) {
  at::manual_seed(1);
  torch::nn::Linear up(256, 512), down(512, 256);
  at::Tensor x = at::randn({512, 256});
  cinch::trace::Trace trace;
  const cinch::record::Recorder recorder(trace);
  {
    std::optional<cinch::techniques::SavedTensorScope> scope;
    if (policy != nullptr) scope.emplace(*policy);
    const auto layer = [&](const at::Tensor& t) {
      return t + at::dropout(down->forward(at::gelu(up->forward(t))), 0.1, true);
    };
    for (int i = 0; i < 12; ++i) x = region == nullptr ? layer(x) : cinch::checkpoint(*region, layer, x);
    x = x.square().mean();
  }
  x.backward();
  std::cout << name << ": loss " << x.item<float>() << ", gradient " << up->weight.grad().norm().item<float>()
            << ", peak " << to_string(recorder.peak()) << '\n';
}

int main() {
  train("kept         ", nullptr, nullptr);

  const cinch::CheckpointPolicy all;
  train("checkpoint   ", nullptr, &all);
  cinch::CheckpointPolicy cheap;  // what is cheap is computed again
  cheap.keep = OpSet::matmuls_and_attention();
  train("selective    ", nullptr, &cheap);

  cinch::techniques::Offload offload;
  train("offload      ", &offload, nullptr);
  std::cout << "  at most " << to_string(offload.stats().away_peak) << " were in host memory\n";
  train("both         ", &offload, &all);

  cinch::techniques::Compress int8(Codec::kInt8);
  train("int8         ", &int8, nullptr);
  cinch::techniques::Compress to_host(Codec::kInt8, {.into = &offload});
  train("int8, offload", &to_host, nullptr);
}
