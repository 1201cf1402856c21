#include "cinch/models/lstm.h"

#include <optional>
#include <string>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/container/modulelist.h>

#include "cinch/models/internal/loss.h"
#include "cinch/techniques/autocast.h"
#include "cinch/techniques/call.h"

namespace cinch::models {
namespace nn = torch::nn;

Lstm::Lstm(const job::LstmConfig& config)
    : config_(config),
      embedding_(register_module("embedding", nn::Embedding(config.vocab_size, config.hidden_size))),
      dropout_(register_module("dropout", nn::Dropout(config.dropout))) {
  auto layers = register_module("layers", nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    layers_.emplace_back(nn::LSTMOptions(config.hidden_size, config.hidden_size).batch_first(true));
    layers->push_back(layers_.back().ptr());
  }
  if (!config.tie_weights) head_ = register_module("head", nn::Linear(config.hidden_size, config.vocab_size));
  const at::NoGradGuard no_grad;
  embedding_->weight.uniform_(-0.1, 0.1);
}

at::Tensor Lstm::hidden(const at::Tensor& tokens) {
  static const std::string kEmbedding = "embedding";
  at::Tensor x;
  {
    const record::ForwardModule named(kEmbedding);
    x = dropout_->forward(embedding_->forward(tokens));
  }
  // oneDNN has no LSTM in half precision on the CPU: there it stays in float32.
  std::optional<techniques::Autocast> float32;
  if (x.is_cpu() && at::autocast::is_autocast_enabled(at::kCPU) &&
      at::autocast::get_autocast_dtype(at::kCPU) == at::kHalf)
    float32.emplace(at::kCPU, at::kFloat);
  for (auto& layer : layers_) x = dropout_->forward(std::get<0>(call(layer, x)));
  return x;
}

at::Tensor Lstm::logits(const at::Tensor& hidden) {
  return head_.is_empty() ? at::linear(hidden, embedding_->weight) : head_->forward(hidden);
}

at::Tensor Lstm::loss_sum(const data::Batch& batch) {
  const auto x = hidden(batch.inputs);
  static const std::string kHead = "head";
  const record::ForwardModule named(kHead);
  if (loss_chunk_size() > 0) {
    const auto& weight = head_.is_empty() ? embedding_->weight : head_->weight;
    const at::Tensor bias = head_.is_empty() ? at::Tensor() : head_->bias;
    return internal::chunked_loss_sum(x, weight, bias, batch.targets, loss_chunk_size());
  }
  return internal::loss_sum(logits(x).flatten(0, 1), batch.targets.flatten());
}
}  // namespace cinch::models
