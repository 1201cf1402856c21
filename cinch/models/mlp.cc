#include "cinch/models/mlp.h"

#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include "cinch/models/internal/loss.h"
#include "cinch/techniques/call.h"

namespace cinch::models {

namespace nn = torch::nn;

MlpBlockImpl::MlpBlockImpl(std::int64_t inputs, std::int64_t outputs, double dropout)
    : linear_(register_module("linear", nn::Linear(inputs, outputs))),
      dropout_(register_module("dropout", nn::Dropout(dropout))) {}

at::Tensor MlpBlockImpl::forward(const at::Tensor& x) { return dropout_->forward(linear_->forward(x).relu_()); }

Mlp::Mlp(const job::MlpConfig& config) : head_(nullptr) {
  auto layers = register_module("layers", nn::ModuleList());
  for (std::size_t i = 0; i + 2 < config.sizes.size(); ++i) {
    layers_.emplace_back(config.sizes[i], config.sizes[i + 1], config.dropout);
    layers->push_back(layers_.back().ptr());
  }
  head_ = register_module("head", nn::Linear(config.sizes[config.sizes.size() - 2], config.sizes.back()));
}

at::Tensor Mlp::forward(const at::Tensor& inputs) {
  auto x = inputs.flatten(1);
  for (auto& layer : layers_) x = call(layer, x);
  static const std::string kHead = "head";
  const record::ForwardModule named(kHead);
  return head_->forward(x);
}

at::Tensor Mlp::loss_sum(const data::Batch& batch) { return internal::loss_sum(forward(batch.inputs), batch.targets); }

}  // namespace cinch::models
