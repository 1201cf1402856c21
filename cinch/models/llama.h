#pragma once
// Decoder-only transformer (2302.13971): RMSNorm, rotary positions, grouped-query attention (2305.13245), a gated
// feed-forward, no biases; with the module names of transformers' Llama.
//
// Modules: embed_tokens, layers.N (input_layernorm, self_attn.{q,k,v,o}_proj, post_attention_layernorm,
// mlp.{gate,up,down}_proj), norm, and lm_head unless it is tied.

#include <vector>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "cinch/models/model.h"

namespace cinch::models {

/// weight × x / √(mean(x²) + eps), all but the weight in float32.
class RmsNormImpl : public torch::nn::Module {
 public:
  RmsNormImpl(std::int64_t size, double eps);
  at::Tensor forward(const at::Tensor& x);  ///< [..., size] to the same.

 private:
  double eps_;
  at::Tensor weight_;
};
TORCH_MODULE(RmsNorm);

/// Cosines and sines of the angles by which positions turn pairs of numbers: float32 [length, head_size / 2].
struct Rotary {
  at::Tensor cos, sin;
};

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  explicit LlamaAttentionImpl(const job::LlamaConfig& config);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

 private:
  std::int64_t heads_, key_value_heads_, head_size_;
  torch::nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
};
TORCH_MODULE(LlamaAttention);

/// down(silu(gate(x)) × up(x)).
class LlamaFeedForwardImpl : public torch::nn::Module {
 public:
  explicit LlamaFeedForwardImpl(const job::LlamaConfig& config);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Linear gate_proj_, up_proj_, down_proj_;
};
TORCH_MODULE(LlamaFeedForward);

class LlamaLayerImpl : public torch::nn::Module {
 public:
  explicit LlamaLayerImpl(const job::LlamaConfig& config);
  /// [batch, length, hidden] to the same; `cos` and `sin` as in Rotary.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

 private:
  RmsNorm input_layernorm_, post_attention_layernorm_;
  LlamaAttention self_attn_;
  LlamaFeedForward mlp_;
};
TORCH_MODULE(LlamaLayer);

class Llama final : public LanguageModel {
 public:
  explicit Llama(const job::LlamaConfig& config);
  at::Tensor loss_sum(const data::Batch& batch) override;
  at::Tensor hidden(const at::Tensor& tokens) override;
  at::Tensor logits(const at::Tensor& hidden) override;
  std::int64_t context_length() const override { return config_.context_length; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }

 private:
  Rotary rotary(const at::Tensor& tokens) const;

  job::LlamaConfig config_;
  torch::nn::Embedding embed_tokens_;
  std::vector<LlamaLayer> layers_;
  RmsNorm norm_{nullptr};
  torch::nn::Linear lm_head_{nullptr};
};
}  // namespace cinch::models
