#include "cinch/models/bert.h"

#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>

#include "cinch/models/internal/embedding.h"
#include "cinch/models/internal/loss.h"
#include "cinch/techniques/call.h"

namespace cinch::models {
namespace {

namespace nn = torch::nn;

nn::LayerNorm layer_norm(const job::BertConfig& config) {
  return nn::LayerNorm(nn::LayerNormOptions({config.hidden_size}).eps(config.norm_eps));
}

std::int64_t intermediate_size(const job::BertConfig& config) {
  return config.intermediate_size > 0 ? config.intermediate_size : 4 * config.hidden_size;
}

/// A module that is there for the name of what it holds.
std::shared_ptr<nn::Module> group() { return std::make_shared<nn::Module>("Group"); }

}  // namespace

BertEmbeddingsImpl::BertEmbeddingsImpl(const job::BertConfig& config)
    : word_embeddings_(register_module(
          "word_embeddings", internal::token_embedding(config.vocab_size, config.hidden_size, config.padding_token))),
      position_embeddings_(
          register_module("position_embeddings", nn::Embedding(config.context_length, config.hidden_size))),
      token_type_embeddings_(
          register_module("token_type_embeddings", nn::Embedding(config.token_types, config.hidden_size))),
      norm_(register_module("LayerNorm", layer_norm(config))),
      dropout_(register_module("dropout", nn::Dropout(config.dropout))) {}

void BertEmbeddingsImpl::zero_padding() { internal::zero_padding(word_embeddings_); }

at::Tensor BertEmbeddingsImpl::forward(const at::Tensor& tokens) {
  const auto type = token_type_embeddings_->weight.select(0, 0);
  const auto positions = position_embeddings_->weight.narrow(0, 0, tokens.size(1));
  return dropout_->forward(norm_->forward(word_embeddings_->forward(tokens) + type + positions));
}

BertOutputImpl::BertOutputImpl(std::int64_t inputs, const job::BertConfig& config)
    : dense_(register_module("dense", nn::Linear(inputs, config.hidden_size))),
      norm_(register_module("LayerNorm", layer_norm(config))),
      dropout_(register_module("dropout", nn::Dropout(config.dropout))) {}

at::Tensor BertOutputImpl::forward(const at::Tensor& x, const at::Tensor& residual) {
  return norm_->forward(dropout_->forward(dense_->forward(x)) + residual);
}

BertAttentionImpl::BertAttentionImpl(const job::BertConfig& config)
    : self_(register_module("self", SelfAttention(config.hidden_size, config.heads, config.attention_dropout))),
      output_(register_module("output", BertOutput(config.hidden_size, config))) {}

at::Tensor BertAttentionImpl::forward(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
  return output_->forward(self_->forward(x, mask), x);
}

BertLayerImpl::BertLayerImpl(const job::BertConfig& config)
    : attention_(register_module("attention", BertAttention(config))),
      intermediate_(register_module("intermediate", Intermediate(config.hidden_size, intermediate_size(config)))),
      output_(register_module("output", BertOutput(intermediate_size(config), config))) {}

at::Tensor BertLayerImpl::forward(const at::Tensor& x, const std::optional<at::Tensor>& mask) {
  const auto attended = call(attention_, x, mask);
  return call(output_, call(intermediate_, attended), attended);
}

BertPredictionsImpl::BertPredictionsImpl(const job::BertConfig& config)
    : dense_(nn::Linear(config.hidden_size, config.hidden_size)), norm_(layer_norm(config)) {
  auto transform = register_module("transform", group());
  transform->register_module("dense", dense_);
  transform->register_module("LayerNorm", norm_);
  bias_ = register_parameter("bias", at::zeros({config.vocab_size}));
}

at::Tensor BertPredictionsImpl::transform(const at::Tensor& hidden) {
  return norm_->forward(at::gelu(dense_->forward(hidden)));
}

at::Tensor BertPredictionsImpl::forward(const at::Tensor& hidden, const at::Tensor& words) {
  return at::linear(transform(hidden), words, bias_);
}

at::Tensor BertPredictionsImpl::forward(const at::Tensor& hidden, const at::Tensor& words, const at::Tensor& targets,
                                        std::int64_t chunk_size) {
  return internal::chunked_loss_sum(transform(hidden), words, bias_, targets, chunk_size);
}

Bert::Bert(const job::BertConfig& config) : embeddings_(register_module("embeddings", BertEmbeddings(config))) {
  auto layers = register_module("encoder", group())->register_module("layer", nn::ModuleList());
  for (std::int64_t i = 0; i < config.layers; ++i) {
    layers_.emplace_back(config);
    layers->push_back(layers_.back().ptr());
  }
  if (config.classes > 0) {
    pooler_ = register_module("pooler", group())
                  ->register_module("dense", nn::Linear(config.hidden_size, config.hidden_size));
    dropout_ = register_module("dropout", nn::Dropout(config.dropout));
    classifier_ = register_module("classifier", nn::Linear(config.hidden_size, config.classes));
  } else {
    predictions_ = register_module("cls", group())->register_module("predictions", BertPredictions(config));
  }
  initialize_encoder(*this);
  embeddings_->zero_padding();
}

at::Tensor Bert::hidden(const at::Tensor& tokens, const at::Tensor& attention_mask) {
  std::optional<at::Tensor> mask;
  if (attention_mask.defined()) mask = attention_mask.to(at::kBool).unsqueeze(1).unsqueeze(1);
  auto x = call(embeddings_, tokens);
  for (auto& layer : layers_) x = call(layer, x, mask);
  return x;
}

at::Tensor Bert::logits(const at::Tensor& hidden) {
  if (classifier_.is_empty()) return call(predictions_, hidden, embeddings_->words());
  static const std::string kPooler = "pooler", kClassifier = "classifier";
  at::Tensor pooled;
  {
    const record::ForwardModule named(kPooler);
    pooled = pooler_->forward(hidden.select(1, 0)).tanh();
  }
  const record::ForwardModule named(kClassifier);
  return classifier_->forward(dropout_->forward(pooled));
}

at::Tensor Bert::loss_sum(const data::Batch& batch) {
  if (loss_chunk_size() > 0) {
    return call(predictions_, hidden(batch.inputs), embeddings_->words(), batch.targets, loss_chunk_size());
  }
  static const std::string kHead = "cls", kClassifier = "classifier";
  const auto scores = logits(hidden(batch.inputs));
  const record::ForwardModule named(classifier_.is_empty() ? kHead : kClassifier);
  return internal::loss_sum(scores.flatten(0, -2), batch.targets.flatten());
}

}  // namespace cinch::models
