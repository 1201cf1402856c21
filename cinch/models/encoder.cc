#include "cinch/models/encoder.h"

#include <string>

#include <ATen/ATen.h>

namespace cinch::models {

namespace nn = torch::nn;

SelfAttentionImpl::SelfAttentionImpl(std::int64_t hidden_size, std::int64_t heads, double attention_dropout)
    : heads_(heads),
      attention_dropout_(attention_dropout),
      query_(register_module("query", nn::Linear(hidden_size, hidden_size))),
      key_(register_module("key", nn::Linear(hidden_size, hidden_size))),
      value_(register_module("value", nn::Linear(hidden_size, hidden_size))) {}

at::Tensor SelfAttentionImpl::forward(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
  const auto batch = x.size(0), length = x.size(1), hidden = x.size(2);
  const auto by_head = [&](nn::Linear& linear) {
    return linear->forward(x).view({batch, length, heads_, hidden / heads_}).transpose(1, 2);
  };
  const auto query = by_head(query_), key = by_head(key_), value = by_head(value_);
  const auto mixed = at::scaled_dot_product_attention(query, key, value, mask, is_training() ? attention_dropout_ : 0);
  return mixed.transpose(1, 2).reshape({batch, length, hidden});
}

IntermediateImpl::IntermediateImpl(std::int64_t hidden_size, std::int64_t intermediate_size)
    : dense_(register_module("dense", nn::Linear(hidden_size, intermediate_size))) {}

at::Tensor IntermediateImpl::forward(const at::Tensor& x) { return at::gelu(dense_->forward(x)); }

void initialize_encoder(nn::Module& model) {
  const at::NoGradGuard no_grad;
  for (auto& item : model.named_parameters()) {
    const auto& name = item.key();
    if (name.find("LayerNorm") != std::string::npos || name.find("layernorm") != std::string::npos) continue;
    if (name.ends_with("bias")) {
      item.value().zero_();
    } else {
      item.value().normal_(0, 0.02);
    }
  }
}

}  // namespace cinch::models
