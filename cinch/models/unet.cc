#include "cinch/models/unet.h"

#include <string>

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/modulelist.h>

#include "cinch/models/internal/loss.h"
#include "cinch/techniques/call.h"

namespace cinch::models {
namespace {

namespace nn = torch::nn;

/// Without bias: a batch norm follows.
nn::Conv2d conv3(std::int64_t in, std::int64_t out) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
}

}  // namespace

DoubleConvolutionImpl::DoubleConvolutionImpl(std::int64_t channels_in, std::int64_t channels_out, bool pools)
    : pools_(pools),
      conv1_(register_module("conv1", conv3(channels_in, channels_out))),
      bn1_(register_module("bn1", nn::BatchNorm2d(channels_out))),
      conv2_(register_module("conv2", conv3(channels_out, channels_out))),
      bn2_(register_module("bn2", nn::BatchNorm2d(channels_out))) {}

at::Tensor DoubleConvolutionImpl::forward(const at::Tensor& x) {
  auto y = conv1_->forward(pools_ ? at::max_pool2d(x, 2) : x);
  y = bn1_->forward(y).relu_();
  return bn2_->forward(conv2_->forward(y)).relu_();
}

UpwardImpl::UpwardImpl(std::int64_t channels)
    : up_(register_module("up", nn::ConvTranspose2d(nn::ConvTranspose2dOptions(2 * channels, channels, 2).stride(2)))),
      conv_(register_module("conv", DoubleConvolution(2 * channels, channels, /*pools=*/false))) {}

at::Tensor UpwardImpl::forward(const at::Tensor& x, const at::Tensor& skip) {
  return conv_->forward(at::cat({skip, up_->forward(x)}, 1));
}

Unet::Unet(const job::UnetConfig& config) {
  auto down = register_module("down", nn::ModuleList());
  auto up = register_module("up", nn::ModuleList());
  for (std::int64_t level = 0; level <= config.levels; ++level) {
    const auto channels = config.base_channels << level;
    down_.emplace_back(level == 0 ? config.channels : channels / 2, channels, /*pools=*/level > 0);
    down->push_back(down_.back().ptr());
  }
  for (std::int64_t level = config.levels - 1; level >= 0; --level) {
    up_.emplace_back(config.base_channels << level);
    up->push_back(up_.back().ptr());
  }
  head_ = register_module("head", nn::Conv2d(nn::Conv2dOptions(config.base_channels, config.classes, 1)));
  for (const auto& module : modules(/*include_self=*/false)) {
    const auto* convolution = module->as<nn::Conv2d>();
    if (convolution != nullptr) nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  }
}

at::Tensor Unet::forward(const at::Tensor& images) {
  std::vector<at::Tensor> skips;
  auto x = images;
  for (auto& block : down_) {
    x = call(block, x);
    skips.push_back(x);
  }
  skips.pop_back();  // The smallest has no level below to return from.
  for (auto& block : up_) {
    x = call(block, x, skips.back());
    skips.pop_back();
  }
  static const std::string kHead = "head";
  const record::ForwardModule named(kHead);
  return head_->forward(x);
}

at::Tensor Unet::loss_sum(const data::Batch& batch) {
  const auto scores = forward(batch.inputs);
  static const std::string kHead = "head";
  const record::ForwardModule named(kHead);
  return internal::loss_sum(scores, batch.targets);
}

}  // namespace cinch::models
