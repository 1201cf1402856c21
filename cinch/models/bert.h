#pragma once
// Encoder-only transformer (1810.04805): post-norm layers, with the module names of transformers' BERT. All tokens are
// of type 0.
//
// Modules: embeddings, encoder.layer.N (attention.{self,output}, intermediate, output); to classify: pooler,
// classifier; else cls.predictions, whose decoder is the word embedding.

#include <optional>
#include <vector>

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "cinch/models/encoder.h"
#include "cinch/models/model.h"

namespace cinch::models {

class BertEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit BertEmbeddingsImpl(const job::BertConfig& config);
  at::Tensor forward(const at::Tensor& tokens);  ///< [batch, length] to [batch, length, hidden].
  void zero_padding();  ///< What stands for padding, after weights were drawn.
  const at::Tensor& words() const { return word_embeddings_->weight; }

 private:
  torch::nn::Embedding word_embeddings_, position_embeddings_, token_type_embeddings_;
  torch::nn::LayerNorm norm_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(BertEmbeddings);

/// The end of a residual branch: norm(residual + dropout(dense(x))).
class BertOutputImpl : public torch::nn::Module {
 public:
  BertOutputImpl(std::int64_t inputs, const job::BertConfig& config);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual);

 private:
  torch::nn::Linear dense_;
  torch::nn::LayerNorm norm_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(BertOutput);

class BertAttentionImpl : public torch::nn::Module {
 public:
  explicit BertAttentionImpl(const job::BertConfig& config);
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask);  ///< As SelfAttention.

 private:
  SelfAttention self_;
  BertOutput output_;
};
TORCH_MODULE(BertAttention);

class BertLayerImpl : public torch::nn::Module {
 public:
  explicit BertLayerImpl(const job::BertConfig& config);
  at::Tensor forward(const at::Tensor& x, const std::optional<at::Tensor>& mask);  ///< As SelfAttention.

 private:
  BertAttention attention_;
  Intermediate intermediate_;
  BertOutput output_;
};
TORCH_MODULE(BertLayer);

/// Scores of the words: [..., hidden] to [..., vocab_size].
class BertPredictionsImpl : public torch::nn::Module {
 public:
  explicit BertPredictionsImpl(const job::BertConfig& config);
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& words);
  /// The sum of their losses by int64 `targets` [...], of `chunk_size` > 0 scores at a time.
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& words, const at::Tensor& targets,
                     std::int64_t chunk_size);

 private:
  at::Tensor transform(const at::Tensor& hidden);

  torch::nn::Linear dense_;
  torch::nn::LayerNorm norm_;
  at::Tensor bias_;
};
TORCH_MODULE(BertPredictions);

class Bert final : public Model {
 public:
  explicit Bert(const job::BertConfig& config);
  /// Of one class a row (targets [batch]), or, without classes, of the words at the counted positions
  /// (targets [batch, length]).
  at::Tensor loss_sum(const data::Batch& batch) override;
  bool divides_loss() const override { return classifier_.is_empty(); }
  /// The last layer's output for int64 tokens [batch, length], length at most context_length: [batch, length, hidden].
  /// `attention_mask` [batch, length]: 0 where a token is padding, that no other looks at; undefined: there is none.
  at::Tensor hidden(const at::Tensor& tokens, const at::Tensor& attention_mask = {});
  /// hidden() to [batch, classes], or, without classes, to [batch, length, vocab_size].
  at::Tensor logits(const at::Tensor& hidden);

 private:
  BertEmbeddings embeddings_;
  std::vector<BertLayer> layers_;
  torch::nn::Linear pooler_{nullptr}, classifier_{nullptr};
  torch::nn::Dropout dropout_{nullptr};
  BertPredictions predictions_{nullptr};
};
}  // namespace cinch::models
