#pragma once
// ResNet-18 with torchvision's module names and initialization (1512.03385).

#include <memory>
#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "cinch/models/model.h"

namespace cinch::models {

/// Convolutions and a shortcut: [batch, channels_in, h, w] to [batch, channels_out, h / stride, w / stride].
class ResidualBlockImpl : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;

 protected:
  /// The shortcut; where shapes change, a 1 x 1 convolution and a norm.
  void add_shortcut(std::int64_t channels_in, std::int64_t channels_out, std::int64_t stride);
  at::Tensor shortcut(const at::Tensor& x) { return downsample_.is_empty() ? x : downsample_->forward(x); }

 private:
  torch::nn::Sequential downsample_{nullptr};
};

/// Two 3 x 3 convolutions.
class BasicBlockImpl final : public ResidualBlockImpl {
 public:
  static constexpr std::int64_t kExpansion = 1;  ///< channels_out / channels.
  BasicBlockImpl(std::int64_t channels_in, std::int64_t channels, std::int64_t stride);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
};

/// 1 x 1 down to `channels`, 3 x 3 with the stride, 1 x 1 up to four times as many.
class BottleneckImpl final : public ResidualBlockImpl {
 public:
  static constexpr std::int64_t kExpansion = 4;
  BottleneckImpl(std::int64_t channels_in, std::int64_t channels, std::int64_t stride);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
  torch::nn::Conv2d conv3_;
  torch::nn::BatchNorm2d bn3_;
};

class ResNet final : public Model {
 public:
  explicit ResNet(const job::ResNetConfig& config);
  at::Tensor loss_sum(const data::Batch& batch) override;
  /// [batch, channels, height, width] to [batch, classes].
  at::Tensor forward(const at::Tensor& images);

 private:
  template <class Block>
  std::int64_t add_blocks(std::int64_t depth);  ///< Returns the channels of the last.
  void initialize();

  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  std::vector<std::shared_ptr<ResidualBlockImpl>> blocks_;
  torch::nn::Linear fc_{nullptr};
};
}  // namespace cinch::models
