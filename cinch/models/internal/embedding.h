#pragma once
// An embedding of tokens, one of which may be padding.

#include <cstdint>

#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/embedding.h>

namespace cinch::models::internal {

/// `padding_token` < 0: none is.
inline torch::nn::Embedding token_embedding(std::int64_t vocab_size, std::int64_t size, std::int64_t padding_token) {
  torch::nn::EmbeddingOptions options(vocab_size, size);
  if (padding_token >= 0) options.padding_idx(padding_token);
  return torch::nn::Embedding(options);
}

/// After weights were drawn: padding means nothing.
inline void zero_padding(const torch::nn::Embedding& embedding) {
  const at::NoGradGuard no_grad;
  if (const auto padding = embedding->options.padding_idx()) embedding->weight[*padding].zero_();
}
}  // namespace cinch::models::internal
