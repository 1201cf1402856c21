#pragma once
// Decoder-only transformer: pre-norm blocks, learned positions, causal attention, GPT-2's initialization.
//
// Modules: wte, wpe, layers.N (norm1, attention.{qkv,proj}, norm2, mlp.{fc,proj}), norm, and head unless it is tied.

#include <vector>

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "cinch/models/model.h"

namespace cinch::models {

class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const job::GptConfig& config);
  at::Tensor forward(const at::Tensor& x);  ///< [batch, length, hidden] to the same.

 private:
  std::int64_t heads_;
  double attention_dropout_;
  torch::nn::Linear qkv_, proj_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(Attention);

class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const job::GptConfig& config);
  at::Tensor forward(const at::Tensor& x);  ///< [batch, length, hidden] to the same.

 private:
  bool tanh_;
  torch::nn::Linear fc_, proj_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(FeedForward);

class GptBlockImpl : public torch::nn::Module {
 public:
  explicit GptBlockImpl(const job::GptConfig& config);
  at::Tensor forward(const at::Tensor& x);  ///< [batch, length, hidden] to the same.

 private:
  torch::nn::LayerNorm norm1_, norm2_;
  Attention attention_;
  FeedForward mlp_;
};
TORCH_MODULE(GptBlock);

class Gpt final : public LanguageModel {
 public:
  explicit Gpt(const job::GptConfig& config);
  at::Tensor loss_sum(const data::Batch& batch) override;
  at::Tensor hidden(const at::Tensor& tokens) override;
  at::Tensor logits(const at::Tensor& hidden) override;
  std::int64_t context_length() const override { return config_.context_length; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }

 private:
  void initialize();

  job::GptConfig config_;
  torch::nn::Embedding wte_, wpe_;
  torch::nn::Dropout dropout_;
  std::vector<GptBlock> layers_;
  torch::nn::LayerNorm norm_;
  torch::nn::Linear head_{nullptr};
};
}  // namespace cinch::models
