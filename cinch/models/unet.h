#pragma once
// Encoder and decoder with skip connections (1505.04597), padded so that sizes stay, with batch norm: a class for every
// pixel. Level i has base_channels × 2^i channels.
//
// Modules: down.0 to down.levels (conv1, bn1, conv2, bn2), up.0 to up.levels-1 from the smallest (up, conv), head.

#include <vector>

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>

#include "cinch/models/model.h"

namespace cinch::models {

/// Twice a 3 × 3 convolution, batch norm and ReLU: [batch, channels_in, h, w] to [batch, channels_out, h, w]; halved
/// first, by max pooling, if it `pools`.
class DoubleConvolutionImpl : public torch::nn::Module {
 public:
  DoubleConvolutionImpl(std::int64_t channels_in, std::int64_t channels_out, bool pools);
  at::Tensor forward(const at::Tensor& x);

 private:
  bool pools_;
  torch::nn::Conv2d conv1_;
  torch::nn::BatchNorm2d bn1_;
  torch::nn::Conv2d conv2_;
  torch::nn::BatchNorm2d bn2_;
};
TORCH_MODULE(DoubleConvolution);

/// [batch, 2 channels, h, w] and the level's own [batch, channels, 2h, 2w] to the latter's shape.
class UpwardImpl : public torch::nn::Module {
 public:
  explicit UpwardImpl(std::int64_t channels);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& skip);

 private:
  torch::nn::ConvTranspose2d up_;
  DoubleConvolution conv_;
};
TORCH_MODULE(Upward);

class Unet final : public Model {
 public:
  explicit Unet(const job::UnetConfig& config);
  at::Tensor loss_sum(const data::Batch& batch) override;  ///< Over all pixels: targets [batch, height, width].
  /// [batch, channels, height, width], multiples of 2^levels, to [batch, classes, height, width].
  at::Tensor forward(const at::Tensor& images);

 private:
  std::vector<DoubleConvolution> down_;
  std::vector<Upward> up_;
  torch::nn::Conv2d head_{nullptr};
};
}  // namespace cinch::models
