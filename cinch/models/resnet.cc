#include "cinch/models/resnet.h"

#include <array>
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/init.h>

#include "cinch/core/error.h"
#include "cinch/models/internal/loss.h"
#include "cinch/techniques/call.h"

namespace cinch::models {
namespace {

namespace nn = torch::nn;

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

/// Blocks of the four stages (1512.03385, table 1).
std::array<int, 4> blocks_of(std::int64_t depth) {
  switch (depth) {
    case 18:
      return {2, 2, 2, 2};
    case 34:
    case 50:
      return {3, 4, 6, 3};
    case 101:
      return {3, 4, 23, 3};
    case 152:
      return {3, 8, 36, 3};
    default:
      throw UsageError("there is no ResNet of depth " + std::to_string(depth), "Depths are 18, 34, 50, 101 and 152.");
  }
}

}  // namespace

void ResidualBlockImpl::add_shortcut(std::int64_t channels_in, std::int64_t channels_out, std::int64_t stride) {
  if (stride == 1 && channels_in == channels_out) return;
  downsample_ = register_module(
      "downsample", nn::Sequential(conv(channels_in, channels_out, 1, stride), nn::BatchNorm2d(channels_out)));
}

BasicBlockImpl::BasicBlockImpl(std::int64_t channels_in, std::int64_t channels, std::int64_t stride)
    : conv1_(register_module("conv1", conv(channels_in, channels, 3, stride))),
      bn1_(register_module("bn1", nn::BatchNorm2d(channels))),
      conv2_(register_module("conv2", conv(channels, channels, 3, 1))),
      bn2_(register_module("bn2", nn::BatchNorm2d(channels))) {
  add_shortcut(channels_in, channels, stride);
}

at::Tensor BasicBlockImpl::forward(const at::Tensor& x) {
  auto y = bn1_->forward(conv1_->forward(x));
  y = bn2_->forward(conv2_->forward(y.relu_()));
  y += shortcut(x);
  return y.relu_();
}

BottleneckImpl::BottleneckImpl(std::int64_t channels_in, std::int64_t channels, std::int64_t stride)
    : conv1_(register_module("conv1", conv(channels_in, channels, 1, 1))),
      bn1_(register_module("bn1", nn::BatchNorm2d(channels))),
      conv2_(register_module("conv2", conv(channels, channels, 3, stride))),
      bn2_(register_module("bn2", nn::BatchNorm2d(channels))),
      conv3_(register_module("conv3", conv(channels, channels * kExpansion, 1, 1))),
      bn3_(register_module("bn3", nn::BatchNorm2d(channels * kExpansion))) {
  add_shortcut(channels_in, channels * kExpansion, stride);
}

at::Tensor BottleneckImpl::forward(const at::Tensor& x) {
  auto y = bn1_->forward(conv1_->forward(x));
  y = bn2_->forward(conv2_->forward(y.relu_()));
  y = bn3_->forward(conv3_->forward(y.relu_()));
  y += shortcut(x);
  return y.relu_();
}

ResNet::ResNet(const job::ResNetConfig& config)
    : conv1_(register_module("conv1", conv(config.channels, 64, 7, 2))),
      bn1_(register_module("bn1", nn::BatchNorm2d(64))) {
  const bool basic = config.depth < 50;
  const auto channels = basic ? add_blocks<BasicBlockImpl>(config.depth) : add_blocks<BottleneckImpl>(config.depth);
  fc_ = register_module("fc", nn::Linear(channels, config.classes));
  initialize();
}

template <class Block>
std::int64_t ResNet::add_blocks(std::int64_t depth) {
  const auto blocks = blocks_of(depth);
  std::int64_t channels_in = 64;
  for (int stage = 0; stage < 4; ++stage) {
    const std::int64_t channels = 64LL << stage;
    nn::Sequential layer;
    for (int i = 0; i < blocks.at(stage); ++i) {
      const auto block = std::make_shared<Block>(channels_in, channels, stage > 0 && i == 0 ? 2 : 1);
      blocks_.push_back(block);
      layer->push_back(block);
      channels_in = channels * Block::kExpansion;
    }
    register_module("layer" + std::to_string(stage + 1), layer);
  }
  return channels_in;
}

void ResNet::initialize() {
  for (const auto& module : modules(/*include_self=*/false)) {
    const auto* convolution = module->as<nn::Conv2d>();
    if (convolution != nullptr) nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  }
}

at::Tensor ResNet::forward(const at::Tensor& images) {
  static const std::string kStem = "conv1", kNorm = "bn1", kHead = "fc";
  at::Tensor x;
  {
    const record::ForwardModule named(kStem);
    x = conv1_->forward(images);
  }
  {
    const record::ForwardModule named(kNorm);
    x = at::max_pool2d(bn1_->forward(x).relu_(), /*kernel_size=*/3, /*stride=*/2, /*padding=*/1);
  }
  for (auto& block : blocks_) x = call(block, x);
  const record::ForwardModule named(kHead);
  return fc_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
}

at::Tensor ResNet::loss_sum(const data::Batch& batch) {
  return internal::loss_sum(forward(batch.inputs), batch.targets);
}

}  // namespace cinch::models
