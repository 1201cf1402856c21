#include "cinch/models/gpt.h"

#include <cmath>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include "cinch/models/internal/loss.h"
#include "cinch/techniques/call.h"

namespace cinch::models {
namespace {

namespace nn = torch::nn;

nn::LayerNorm layer_norm(std::int64_t size) { return nn::LayerNorm(nn::LayerNormOptions({size})); }

}  // namespace

AttentionImpl::AttentionImpl(const job::GptConfig& config)
    : heads_(config.heads),
      attention_dropout_(config.attention_dropout),
      qkv_(register_module("qkv", nn::Linear(config.hidden_size, 3 * config.hidden_size))),
      proj_(register_module("proj", nn::Linear(config.hidden_size, config.hidden_size))),
      dropout_(register_module("dropout", nn::Dropout(config.dropout))) {}

at::Tensor AttentionImpl::forward(const at::Tensor& x) {
  const auto batch = x.size(0), length = x.size(1), hidden = x.size(2);
  auto parts = qkv_->forward(x).chunk(3, -1);
  for (auto& part : parts) part = part.view({batch, length, heads_, hidden / heads_}).transpose(1, 2);
  const auto mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{},
                                                      is_training() ? attention_dropout_ : 0, /*is_causal=*/true);
  return dropout_->forward(proj_->forward(mixed.transpose(1, 2).reshape({batch, length, hidden})));
}

FeedForwardImpl::FeedForwardImpl(const job::GptConfig& config)
    : tanh_(config.activation == job::Activation::kGeluTanh),
      fc_(register_module("fc", nn::Linear(config.hidden_size, 4 * config.hidden_size))),
      proj_(register_module("proj", nn::Linear(4 * config.hidden_size, config.hidden_size))),
      dropout_(register_module("dropout", nn::Dropout(config.dropout))) {}

at::Tensor FeedForwardImpl::forward(const at::Tensor& x) {
  return dropout_->forward(proj_->forward(at::gelu(fc_->forward(x), tanh_ ? "tanh" : "none")));
}

GptBlockImpl::GptBlockImpl(const job::GptConfig& config)
    : norm1_(register_module("norm1", layer_norm(config.hidden_size))),
      norm2_(nullptr),
      attention_(register_module("attention", Attention(config))),
      mlp_(nullptr) {
  norm2_ = register_module("norm2", layer_norm(config.hidden_size));
  mlp_ = register_module("mlp", FeedForward(config));
}

at::Tensor GptBlockImpl::forward(const at::Tensor& x) {
  const auto attended = x + call(attention_, norm1_->forward(x));
  return attended + call(mlp_, norm2_->forward(attended));
}

Gpt::Gpt(const job::GptConfig& config)
    : config_(config),
      wte_(register_module("wte", nn::Embedding(config.vocab_size, config.hidden_size))),
      wpe_(register_module("wpe", nn::Embedding(config.context_length, config.hidden_size))),
      dropout_(register_module("dropout", nn::Dropout(config.dropout))),
      norm_(nullptr) {
  auto layers = register_module("layers", nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    layers_.emplace_back(config);
    layers->push_back(layers_.back().ptr());
  }
  norm_ = register_module("norm", layer_norm(config.hidden_size));
  if (!config.tie_weights) {
    head_ = register_module("head", nn::Linear(nn::LinearOptions(config.hidden_size, config.vocab_size).bias(false)));
  }
  initialize();
}

/// GPT-2's: normal weights of 0.02, those that end a residual branch smaller by sqrt(2 layers), biases 0.
void Gpt::initialize() {
  const at::NoGradGuard no_grad;
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(config_.layers));
  for (auto& item : named_parameters()) {
    const auto& name = item.key();
    if (name.find("norm") != std::string::npos) continue;  // ones and zeros already
    if (name.ends_with(".bias")) {
      item.value().zero_();
    } else {
      item.value().normal_(0, name.ends_with("proj.weight") ? residual : 0.02);
    }
  }
}

at::Tensor Gpt::hidden(const at::Tensor& tokens) {
  static const std::string kEmbedding = "wte";
  at::Tensor x;
  {
    const record::ForwardModule named(kEmbedding);
    x = dropout_->forward(wte_->forward(tokens) + wpe_->weight.narrow(0, 0, tokens.size(1)));
  }
  for (auto& layer : layers_) x = call(layer, x);
  static const std::string kNorm = "norm";
  const record::ForwardModule named(kNorm);
  return norm_->forward(x);
}

at::Tensor Gpt::logits(const at::Tensor& hidden) {
  return head_.is_empty() ? at::linear(hidden, wte_->weight) : head_->forward(hidden);
}

at::Tensor Gpt::loss_sum(const data::Batch& batch) {
  const auto x = hidden(batch.inputs);
  static const std::string kHead = "head";
  const record::ForwardModule named(kHead);
  if (loss_chunk_size() > 0) {
    const auto& weight = head_.is_empty() ? wte_->weight : head_->weight;
    return internal::chunked_loss_sum(x, weight, {}, batch.targets, loss_chunk_size());
  }
  return internal::loss_sum(logits(x).flatten(0, 1), batch.targets.flatten());
}

}  // namespace cinch::models
