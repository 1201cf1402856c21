// Steps of ours on CUDA: what gpu.h launches. Linked everywhere, called where tensors are on CUDA.
#include <algorithm>
#include <array>
#include <string>

#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "cinch/optim/internal/gpu.h"
#include "cinch/optim/internal/ops.h"

namespace cinch::optim::internal {
namespace {
static_assert(sizeof(AdamWStep) == 8 * sizeof(float), "kernels.cuh's Step");

const char* suffix_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float";
    case at::kDouble:
      return "double";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "half";
    default:
      TORCH_CHECK(false, "cinch's optimizers have no CUDA kernel for ", dtype);
  }
}

/// Enough to fill the card, each taking several blocks of numbers.
unsigned blocks_for(std::int64_t needed, c10::Device device) {
  constexpr int kOfEach = 32;  // What a multiprocessor holds at most.
  const std::int64_t most = std::int64_t{multiprocessors(device)} * kOfEach;
  return static_cast<unsigned>(std::clamp<std::int64_t>(needed, 1, most));
}

void adamw_8bit_cuda(at::TensorList parameters, at::TensorList gradients, at::TensorList codes1, at::TensorList scales1,
                     at::TensorList codes2, at::TensorList scales2, at::TensorList steps, double learning_rate,
                     double beta1, double beta2, double weight_decay, double eps, std::int64_t block_size) {
  constexpr int kItems = 4, kWarp = 32;  // As kernels.cuh.
  const auto threads = static_cast<unsigned>(std::max<std::int64_t>(block_size / kItems, kWarp));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_pair(parameters[i], gradients[i]);
    TORCH_CHECK(steps[i].is_cpu(), "AdamW in 8 bits counts its steps on the host");
    const auto device = parameters[i].device();
    const c10::DeviceGuard guard(device);
    AdamWStep step = adamw_step(steps[i], learning_rate, beta1, beta2, weight_decay, eps);
    void* parameter = parameters[i].mutable_data_ptr();
    const void* gradient = gradients[i].const_data_ptr();
    void *first = codes1[i].mutable_data_ptr(), *scale1 = scales1[i].mutable_data_ptr();
    void *second = codes2[i].mutable_data_ptr(), *scale2 = scales2[i].mutable_data_ptr();
    long long count = parameters[i].numel();
    int size = static_cast<int>(block_size);
    const std::array<void*, 9> arguments{&parameter, &gradient, &first, &scale1, &second,
                                         &scale2,    &count,    &size,  &step};
    const auto kernel = std::string("adamw_8bit_") + suffix_of(parameters[i].scalar_type());
    launch({kernel.c_str(), blocks_for((count + block_size - 1) / block_size, device), threads, arguments}, device);
    note_written(parameters[i]);
  }
}

/// As Rates in kernels.cuh.
template <class Wide>
struct LionConstants {
  Wide rate, keep, old1, new1, old2, new2;
  LionConstants(double learning_rate, double beta1, double beta2, double weight_decay)
      : rate(static_cast<Wide>(learning_rate)),
        keep(static_cast<Wide>(1 - learning_rate * weight_decay)),
        old1(static_cast<Wide>(beta1)),
        new1(static_cast<Wide>(1 - beta1)),
        old2(static_cast<Wide>(beta2)),
        new2(static_cast<Wide>(1 - beta2)) {}
};

void lion_cuda(at::TensorList parameters, at::TensorList gradients, at::TensorList momenta, double learning_rate,
               double beta1, double beta2, double weight_decay) {
  constexpr unsigned kThreads = 256;
  LionConstants<float> narrow(learning_rate, beta1, beta2, weight_decay);
  LionConstants<double> wide(learning_rate, beta1, beta2, weight_decay);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    check_pair(parameters[i], gradients[i]);
    const auto device = parameters[i].device();
    const c10::DeviceGuard guard(device);
    void *parameter = parameters[i].mutable_data_ptr(), *momentum = momenta[i].mutable_data_ptr();
    const void* gradient = gradients[i].const_data_ptr();
    long long count = parameters[i].numel();
    const bool is_double = parameters[i].scalar_type() == at::kDouble;
    void* constants = is_double ? static_cast<void*>(&wide) : &narrow;
    const std::array<void*, 5> arguments{&parameter, &gradient, &momentum, &count, constants};
    const auto kernel = std::string("lion_") + suffix_of(parameters[i].scalar_type());
    launch({kernel.c_str(), blocks_for((count + kThreads - 1) / kThreads, device), kThreads, arguments}, device);
    note_written(parameters[i]);
  }
}
}  // namespace

void register_cuda_ops(torch::Library& library) {
  library.impl("adamw_8bit_", &adamw_8bit_cuda);
  library.impl("lion_", &lion_cuda);
}
}  // namespace cinch::optim::internal
