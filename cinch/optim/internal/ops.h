#pragma once
// Optimizer steps that LibTorch does not have, as ops of the dispatcher ("cinch::lion_"): so a dry run, a recording and
// a profiler see them as they see any other. Kernels for the CPU and, but for Adafactor, for CUDA (ops_cuda.cc); no
// temporaries but what is said. Each works on lists, one parameter after the other; gradients have their parameters'
// dtype and strides.

#include <vector>

#include <ATen/core/Tensor.h>

#include "cinch/optim/internal/adamw_8bit_block.h"

namespace torch {
class Library;
}

namespace cinch::optim::internal {

struct AdamW8bitArguments {
  double learning_rate, beta1, beta2, weight_decay, eps;
  std::int64_t block_size;
};
/// Parameters float32, bfloat16 or half; codes uint8 like the parameter, scales one float32 a block; `steps`: counts of
/// steps, this one included, on the host.
void adamw_8bit(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                const std::vector<std::vector<at::Tensor>>& state, const std::vector<at::Tensor>& steps,
                const AdamW8bitArguments& arguments);

struct LionArguments {
  double learning_rate, beta1, beta2, weight_decay;
};
void lion(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
          const std::vector<at::Tensor>& momenta, const LionArguments& arguments);

struct AdafactorArguments {
  double learning_rate, weight_decay, eps_square, eps_scale, clip_threshold, decay_rate;
  bool scale_parameter, relative_step;
};
/// On the CPU. Factored parameters (two or more dimensions): `rows` and `columns`, and `scratch` for the largest of
/// them. Others: `rows` like the parameter, no `columns`.
void adafactor(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
               const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& columns,
               const std::vector<at::Tensor>& steps, const at::Tensor& scratch, const AdafactorArguments& arguments);
/// The same out of LibTorch's ops, for any device, with `steps` on the host. Sums are taken in another order, and
/// squares through their root: equal to a few units in the last place. `scratch`: as many numbers as
/// adafactor_scratch() says for the largest of them; the ops take no more memory but for what their kernels take
/// inside.
void adafactor_of_ops(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                      const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& columns,
                      const std::vector<at::Tensor>& steps, const at::Tensor& scratch,
                      const AdafactorArguments& arguments);
std::int64_t adafactor_scratch(const at::Tensor& parameter);

// What the CPU's and CUDA's kernels share.

/// autograd's check for changes in place must see what a kernel of ours writes.
void note_written(const at::Tensor& tensor);
void check_pair(const at::Tensor& parameter, const at::Tensor& gradient);
AdamWStep adamw_step(const at::Tensor& steps, double learning_rate, double beta1, double beta2, double weight_decay,
                     double eps);
void register_cuda_ops(torch::Library& library);  ///< Of the key CUDA. Needs no CUDA until they are called.
}  // namespace cinch::optim::internal
