// Offloading from a GPU: gradients are plain training's, and the peak falls. 0: right; 1: wrong; 77: there is no GPU.
#include <cstdio>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/autograd/autograd.h>

#include "cinch/techniques/offload.h"

namespace {

struct Run {
  at::Tensor gradient;
  std::int64_t peak;
};

Run run(cinch::techniques::SavedTensorPolicy* policy) {
  at::manual_seed(1);
  const auto cuda = at::TensorOptions(at::kCUDA);
  const auto w = (at::randn({1024, 1024}, cuda) / 32).requires_grad_();
  auto x = at::randn({8192, 1024}, cuda);
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  {
    std::optional<cinch::techniques::SavedTensorScope> scope;
    if (policy != nullptr) scope.emplace(*policy);
    for (int i = 0; i < 24; ++i) x = at::dropout(x.mm(w).tanh(), 0.1, true);
    x = x.square().mean();
  }
  auto gradient = torch::autograd::grad({x}, {w})[0];
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  return {gradient, stats.allocated_bytes[0].peak};
}

}  // namespace

int main() {
  if (!at::cuda::is_available()) return 77;
  cinch::techniques::Offload offload;
  const auto plain = run(nullptr);
  for (int round = 0; round < 5; ++round) {
    const auto moved = run(&offload);
    std::printf("peak %lld bytes, offloaded %lld\n", static_cast<long long>(plain.peak), static_cast<long long>(moved.peak));
    if (!at::equal(plain.gradient, moved.gradient) || moved.peak * 2 > plain.peak) return 1;
  }
  return 0;
}
