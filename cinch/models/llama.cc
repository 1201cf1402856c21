#include "cinch/models/llama.h"

#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include "cinch/models/internal/embedding.h"
#include "cinch/models/internal/loss.h"
#include "cinch/techniques/call.h"

namespace cinch::models {
namespace {

namespace nn = torch::nn;

/// What a job file leaves unsaid.
job::LlamaConfig completed(job::LlamaConfig config) {
  if (config.key_value_heads == 0) config.key_value_heads = config.heads;
  if (config.head_size == 0) config.head_size = config.hidden_size / config.heads;
  return config;
}

nn::Linear linear(std::int64_t inputs, std::int64_t outputs) {
  return nn::Linear(nn::LinearOptions(inputs, outputs).bias(false));
}

/// Turns the pairs (x[i], x[i + half]) of [batch, heads, length, head_size]; in float32, rounded once.
at::Tensor turned(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto half = x.chunk(2, -1);
  return at::cat({half[0] * cos - half[1] * sin, half[1] * cos + half[0] * sin}, -1).to(x.scalar_type());
}

/// [batch, heads, length, size] with each head `times` times in a row: a copy, since the attention kernels that work in
/// float32 on a GPU take equal numbers of heads alone.
at::Tensor repeated(const at::Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  return x.unsqueeze(2).expand({-1, -1, times, -1, -1}).flatten(1, 2);
}

}  // namespace

RmsNormImpl::RmsNormImpl(std::int64_t size, double eps)
    : eps_(eps), weight_(register_parameter("weight", at::ones({size}))) {}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) {
  const auto wide = x.to(at::kFloat);
  const auto scale = (wide.pow(2).mean(-1, /*keepdim=*/true) + eps_).rsqrt();
  return weight_ * (wide * scale).to(x.scalar_type());
}

LlamaAttentionImpl::LlamaAttentionImpl(const job::LlamaConfig& config)
    : heads_(config.heads),
      key_value_heads_(config.key_value_heads),
      head_size_(config.head_size),
      q_proj_(register_module("q_proj", linear(config.hidden_size, heads_ * head_size_))),
      k_proj_(register_module("k_proj", linear(config.hidden_size, key_value_heads_ * head_size_))),
      v_proj_(register_module("v_proj", linear(config.hidden_size, key_value_heads_ * head_size_))),
      o_proj_(register_module("o_proj", linear(heads_ * head_size_, config.hidden_size))) {}

at::Tensor LlamaAttentionImpl::forward(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto batch = x.size(0), length = x.size(1);
  const auto by_head = [&](nn::Linear& linear) {
    return linear->forward(x).view({batch, length, -1, head_size_}).transpose(1, 2);
  };
  const auto query = turned(by_head(q_proj_), cos, sin);
  const auto key = repeated(turned(by_head(k_proj_), cos, sin), heads_ / key_value_heads_);
  const auto value = repeated(by_head(v_proj_), heads_ / key_value_heads_);
  const auto mixed = at::scaled_dot_product_attention(query, key, value, /*attn_mask=*/{}, /*dropout_p=*/0,
                                                      /*is_causal=*/true);
  return o_proj_->forward(mixed.transpose(1, 2).reshape({batch, length, heads_ * head_size_}));
}

LlamaFeedForwardImpl::LlamaFeedForwardImpl(const job::LlamaConfig& config)
    : gate_proj_(register_module("gate_proj", linear(config.hidden_size, config.intermediate_size))),
      up_proj_(register_module("up_proj", linear(config.hidden_size, config.intermediate_size))),
      down_proj_(register_module("down_proj", linear(config.intermediate_size, config.hidden_size))) {}

at::Tensor LlamaFeedForwardImpl::forward(const at::Tensor& x) {
  return down_proj_->forward(at::silu(gate_proj_->forward(x)) * up_proj_->forward(x));
}

LlamaLayerImpl::LlamaLayerImpl(const job::LlamaConfig& config)
    : input_layernorm_(register_module("input_layernorm", RmsNorm(config.hidden_size, config.norm_eps))),
      post_attention_layernorm_(
          register_module("post_attention_layernorm", RmsNorm(config.hidden_size, config.norm_eps))),
      self_attn_(register_module("self_attn", LlamaAttention(config))),
      mlp_(register_module("mlp", LlamaFeedForward(config))) {}

at::Tensor LlamaLayerImpl::forward(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto attended = x + call(self_attn_, input_layernorm_->forward(x), cos, sin);
  return attended + call(mlp_, post_attention_layernorm_->forward(attended));
}

Llama::Llama(const job::LlamaConfig& config)
    : config_(completed(config)),
      embed_tokens_(register_module(
          "embed_tokens", internal::token_embedding(config.vocab_size, config.hidden_size, config.padding_token))) {
  auto layers = register_module("layers", nn::ModuleList());
  for (std::int64_t i = 0; i < config_.layers; ++i) {
    layers_.emplace_back(config_);
    layers->push_back(layers_.back().ptr());
  }
  norm_ = register_module("norm", RmsNorm(config_.hidden_size, config_.norm_eps));
  if (!config_.tie_weights) lm_head_ = register_module("lm_head", linear(config_.hidden_size, config_.vocab_size));
  const at::NoGradGuard no_grad;
  for (auto& item : named_parameters()) {
    if (item.key().find("norm") == std::string::npos) item.value().normal_(0, 0.02);
  }
  internal::zero_padding(embed_tokens_);
}

/// Made anew for every batch, of its length: a few numbers against a step's, and nothing to save, move or round with
/// the weights. Products of the angles, not a matrix product: autocast would round that.
Rotary Llama::rotary(const at::Tensor& tokens) const {
  const auto options = tokens.options().dtype(at::kFloat);
  const auto exponents = at::arange(0, config_.head_size, 2, options) / config_.head_size;
  const auto frequencies = at::pow(config_.rope_theta, exponents).reciprocal();
  const auto angles = at::arange(tokens.size(1), options).unsqueeze(1) * frequencies;
  return {angles.cos(), angles.sin()};
}

at::Tensor Llama::hidden(const at::Tensor& tokens) {
  static const std::string kRotary = "rotary_emb", kNorm = "norm";
  Rotary turn;
  {
    const record::ForwardModule named(kRotary);
    turn = rotary(tokens);
  }
  auto x = call(embed_tokens_, tokens);
  for (auto& layer : layers_) x = call(layer, x, turn.cos, turn.sin);
  const record::ForwardModule named(kNorm);
  return norm_->forward(x);
}

at::Tensor Llama::logits(const at::Tensor& hidden) {
  return lm_head_.is_empty() ? at::linear(hidden, embed_tokens_->weight) : lm_head_->forward(hidden);
}

at::Tensor Llama::loss_sum(const data::Batch& batch) {
  const auto x = hidden(batch.inputs);
  static const std::string kHead = "lm_head";
  const record::ForwardModule named(kHead);
  if (loss_chunk_size() > 0) {
    const auto& weight = lm_head_.is_empty() ? embed_tokens_->weight : lm_head_->weight;
    return internal::chunked_loss_sum(x, weight, {}, batch.targets, loss_chunk_size());
  }
  return internal::loss_sum(logits(x).flatten(0, 1), batch.targets.flatten());
}

}  // namespace cinch::models
