#include "cinch/models/vit.h"

#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include "cinch/core/error.h"
#include "cinch/models/internal/loss.h"
#include "cinch/techniques/call.h"

namespace cinch::models {
namespace {

namespace nn = torch::nn;

nn::LayerNorm layer_norm(const job::VitConfig& config) {
  return nn::LayerNorm(nn::LayerNormOptions({config.hidden_size}).eps(config.norm_eps));
}

std::int64_t intermediate_size(const job::VitConfig& config) {
  return config.intermediate_size > 0 ? config.intermediate_size : 4 * config.hidden_size;
}

/// A module that is there for the name of what it holds.
std::shared_ptr<nn::Module> group() { return std::make_shared<nn::Module>("Group"); }

}  // namespace

VitEmbeddingsImpl::VitEmbeddingsImpl(const job::VitConfig& config)
    : projection_(nn::Conv2dOptions(config.channels, config.hidden_size, config.patch_size).stride(config.patch_size)),
      dropout_(register_module("dropout", nn::Dropout(config.dropout))) {
  const auto side = config.image_size / config.patch_size;
  cls_token_ = register_parameter("cls_token", at::zeros({1, 1, config.hidden_size}));
  position_embeddings_ = register_parameter("position_embeddings", at::zeros({1, side * side + 1, config.hidden_size}));
  register_module("patch_embeddings", group())->register_module("projection", projection_);
}

at::Tensor VitEmbeddingsImpl::forward(const at::Tensor& images) {
  const auto patches = projection_->forward(images).flatten(2).transpose(1, 2);
  const auto tokens = at::cat({cls_token_.expand({images.size(0), -1, -1}), patches}, 1);
  return dropout_->forward(tokens + position_embeddings_);
}

VitOutputImpl::VitOutputImpl(std::int64_t inputs, const job::VitConfig& config)
    : dense_(register_module("dense", nn::Linear(inputs, config.hidden_size))),
      dropout_(register_module("dropout", nn::Dropout(config.dropout))) {}

VitAttentionImpl::VitAttentionImpl(const job::VitConfig& config)
    : attention_(
          register_module("attention", SelfAttention(config.hidden_size, config.heads, config.attention_dropout))),
      output_(register_module("output", VitOutput(config.hidden_size, config))) {}

VitLayerImpl::VitLayerImpl(const job::VitConfig& config)
    : layernorm_before_(register_module("layernorm_before", layer_norm(config))),
      layernorm_after_(register_module("layernorm_after", layer_norm(config))),
      attention_(register_module("attention", VitAttention(config))),
      intermediate_(register_module("intermediate", Intermediate(config.hidden_size, intermediate_size(config)))),
      output_(register_module("output", VitOutput(intermediate_size(config), config))) {}

at::Tensor VitLayerImpl::forward(const at::Tensor& x) {
  const auto attended = x + call(attention_, layernorm_before_->forward(x));
  return attended + call(output_, call(intermediate_, layernorm_after_->forward(attended)));
}

Vit::Vit(const job::VitConfig& config) : embeddings_(register_module("embeddings", VitEmbeddings(config))) {
  auto layers = register_module("encoder", group())->register_module("layer", nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    layers_.emplace_back(config);
    layers->push_back(layers_.back().ptr());
  }
  layernorm_ = register_module("layernorm", layer_norm(config));
  if (config.classes > 0) {
    classifier_ = register_module("classifier", nn::Linear(config.hidden_size, config.classes));
  }
  initialize_encoder(*this);
}

at::Tensor Vit::hidden(const at::Tensor& images) {
  auto x = call(embeddings_, images);
  for (auto& layer : layers_) x = call(layer, x);
  static const std::string kNorm = "layernorm";
  const record::ForwardModule named(kNorm);
  return layernorm_->forward(x);
}

at::Tensor Vit::forward(const at::Tensor& images) {
  const auto first = hidden(images).select(1, 0);
  if (classifier_.is_empty()) return first;
  static const std::string kHead = "classifier";
  const record::ForwardModule named(kHead);
  return classifier_->forward(first);
}

at::Tensor Vit::loss_sum(const data::Batch& batch) {
  if (classifier_.is_empty()) throw UsageError("a ViT without classes has no loss", "Set model.classes.");
  const auto scores = forward(batch.inputs);
  static const std::string kHead = "classifier";
  const record::ForwardModule named(kHead);
  return internal::loss_sum(scores, batch.targets);
}

}  // namespace cinch::models
