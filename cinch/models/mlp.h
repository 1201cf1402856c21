#pragma once
// Fully connected classifier: blocks layers.N (linear, relu, dropout), then the linear head.

#include <vector>

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "cinch/models/model.h"

namespace cinch::models {

class MlpBlockImpl : public torch::nn::Module {
 public:
  MlpBlockImpl(std::int64_t inputs, std::int64_t outputs, double dropout);
  at::Tensor forward(const at::Tensor& x);  ///< [batch, inputs] to [batch, outputs].

 private:
  torch::nn::Linear linear_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(MlpBlock);

class Mlp final : public Model {
 public:
  explicit Mlp(const job::MlpConfig& config);
  at::Tensor loss_sum(const data::Batch& batch) override;
  /// [batch, ...], the rest flattened, to [batch, classes].
  at::Tensor forward(const at::Tensor& inputs);

 private:
  std::vector<MlpBlock> layers_;
  torch::nn::Linear head_;
};
}  // namespace cinch::models
