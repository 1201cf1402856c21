#pragma once
// ResNet-18 with torchvision's module names and initialization (1512.03385).

#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "cinch/models/model.h"

namespace cinch::models {

/// Two 3 x 3 convolutions and a shortcut.
class BasicBlockImpl : public torch::nn::Module {
 public:
  BasicBlockImpl(std::int64_t channels_in, std::int64_t channels, std::int64_t stride);
  at::Tensor forward(
      const at::Tensor& x);  ///< [batch, channels_in, h, w] to [batch, channels, h / stride, w / stride].

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Sequential downsample_{nullptr};
};
TORCH_MODULE(BasicBlock);

class ResNet final : public Model {
 public:
  explicit ResNet(const job::ResNetConfig& config);
  at::Tensor loss_sum(const data::Batch& batch) override;
  /// [batch, channels, height, width] to [batch, classes].
  at::Tensor forward(const at::Tensor& images);

 private:
  void initialize();

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<BasicBlock> blocks_;
  torch::nn::Linear fc_{nullptr};
};
}  // namespace cinch::models
