#pragma once
// What the layers of BERT and ViT share, with the module names of Hugging Face's transformers.

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

namespace cinch::models {

/// Attention of every position to every other: query, key, value. What follows the heads is the caller's.
class SelfAttentionImpl : public torch::nn::Module {
 public:
  SelfAttentionImpl(std::int64_t hidden_size, std::int64_t heads, double attention_dropout);
  /// [batch, length, hidden] to the same. `mask`: bool, broadcast to [batch, heads, length, length], true where a
  /// position may look.
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask = {});

 private:
  std::int64_t heads_;
  double attention_dropout_;
  torch::nn::Linear query_, key_, value_;
};
TORCH_MODULE(SelfAttention);

/// The wide half of a feed-forward: dense, then GELU by the error function.
class IntermediateImpl : public torch::nn::Module {
 public:
  IntermediateImpl(std::int64_t hidden_size, std::int64_t intermediate_size);
  at::Tensor forward(const at::Tensor& x);  ///< [..., hidden] to [..., intermediate].

 private:
  torch::nn::Linear dense_;
};
TORCH_MODULE(Intermediate);

/// BERT's and ViT's: normal weights of 0.02, biases 0, norms 1 and 0.
void initialize_encoder(torch::nn::Module& model);
}  // namespace cinch::models
