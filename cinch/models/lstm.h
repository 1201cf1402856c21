#pragma once
// A language model of LSTM layers: embedding, a torch::nn::LSTM a layer with dropout between (1409.2329), a head that
// may be tied to the embedding.
//
// Modules: embedding, dropout, layers.N, and head unless it is tied.

#include <vector>

#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "cinch/models/model.h"

namespace cinch::models {

class Lstm final : public LanguageModel {
 public:
  explicit Lstm(const job::LstmConfig& config);
  at::Tensor loss_sum(const data::Batch& batch) override;
  /// The last layer's outputs, after dropout.
  at::Tensor hidden(const at::Tensor& tokens) override;
  at::Tensor logits(const at::Tensor& hidden) override;
  std::int64_t context_length() const override { return config_.context_length; }
  std::int64_t vocab_size() const override { return config_.vocab_size; }

 private:
  job::LstmConfig config_;
  torch::nn::Embedding embedding_;
  torch::nn::Dropout dropout_;
  std::vector<torch::nn::LSTM> layers_;
  torch::nn::Linear head_{nullptr};
};
}  // namespace cinch::models
