#pragma once
// Optimizer steps that LibTorch does not have, as ops of the dispatcher ("cinch::lion_"): so a dry run, a recording and
// a profiler see them as they see any other. CPU kernels; no temporaries but what is said. Each works on lists, one
// parameter after the other; gradients have their parameters' dtype and strides.

#include <vector>

#include <ATen/core/Tensor.h>

namespace cinch::optim::internal {

struct AdamW8bitArguments {
  double learning_rate, beta1, beta2, weight_decay, eps;
  std::int64_t block_size;
};
/// Parameters float32, bfloat16 or half; codes uint8 like the parameter, scales one float32 a block; `steps`: counts of
/// steps, this one included.
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
/// Factored parameters (two or more dimensions): `rows` and `columns`, and `scratch` for the largest of them. Others:
/// `rows` like the parameter, no `columns`.
void adafactor(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
               const std::vector<at::Tensor>& rows, const std::vector<at::Tensor>& columns,
               const std::vector<at::Tensor>& steps, const at::Tensor& scratch, const AdafactorArguments& arguments);
}  // namespace cinch::optim::internal
