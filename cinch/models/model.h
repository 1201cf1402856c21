#pragma once
// What a Session trains: a torch::nn::Module that computes its own loss.

#include <cstdint>
#include <memory>
#include <string>

#include <torch/nn/module.h>

#include "cinch/data/batch.h"
#include "cinch/job/job.h"

namespace cinch::models {

class Model : public torch::nn::Module {
 public:
  /// Sum of the losses of the counted targets, a float32 scalar. Dividing is the caller's: by counted targets over all
  /// micro-batches.
  virtual at::Tensor loss_sum(const data::Batch& batch) = 0;

  /// Whether the loss may be computed a chunk of rows at a time: models that score many classes for each token.
  virtual bool divides_loss() const { return false; }
  /// From now on loss_sum() scores `rows` tokens at a time; 0: all at once. Less memory, the same loss up to the order
  /// of sums (cinch/techniques/linear_cross_entropy.h). Throws UsageError for rows < 0, and above 0 unless
  /// divides_loss().
  void set_loss_chunk_size(std::int64_t rows);
  std::int64_t loss_chunk_size() const { return loss_chunk_size_; }

 private:
  std::int64_t loss_chunk_size_ = 0;
};

/// A model that scores every next token.
class LanguageModel : public Model {
 public:
  /// The final norm's output for int64 tokens [batch, length], length at most context_length: [batch, length, hidden].
  virtual at::Tensor hidden(const at::Tensor& tokens) = 0;
  /// [..., hidden] to [..., vocab_size].
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;
  bool divides_loss() const override { return true; }
  virtual std::int64_t context_length() const = 0;
  virtual std::int64_t vocab_size() const = 0;
};

/// Throws nothing a checked job could cause. Draws its initial weights from the default generator.
std::shared_ptr<Model> build(const job::ModelConfig& config);

/// Text the model writes after `prompt` (bytes; empty: a newline), `count` bytes, drawn with `seed` at `temperature`
/// (0: always the likeliest byte); empty for a model that does not write. No gradients; leaves train/eval mode and the
/// default generator as they were.
std::string write_sample(Model& model, const std::string& prompt, std::int64_t count, std::uint64_t seed,
                         double temperature = 0.8);
}  // namespace cinch::models
