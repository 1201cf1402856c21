#pragma once
// Vision transformer (2010.11929): pre-norm layers over patches and a class token, with the module names of
// transformers' ViT.
//
// Modules: embeddings, encoder.layer.N (layernorm_before, attention.{attention,output}, layernorm_after, intermediate,
// output), layernorm, and classifier if there are classes.

#include <vector>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "cinch/models/encoder.h"
#include "cinch/models/model.h"

namespace cinch::models {

class VitEmbeddingsImpl : public torch::nn::Module {
 public:
  explicit VitEmbeddingsImpl(const job::VitConfig& config);
  /// [batch, channels, image_size, image_size] to [batch, 1 + patches, hidden].
  at::Tensor forward(const at::Tensor& images);

 private:
  at::Tensor cls_token_, position_embeddings_;
  torch::nn::Conv2d projection_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(VitEmbeddings);

/// The end of a residual branch: dropout(dense(x)).
class VitOutputImpl : public torch::nn::Module {
 public:
  VitOutputImpl(std::int64_t inputs, const job::VitConfig& config);
  at::Tensor forward(const at::Tensor& x) { return dropout_->forward(dense_->forward(x)); }

 private:
  torch::nn::Linear dense_;
  torch::nn::Dropout dropout_;
};
TORCH_MODULE(VitOutput);

class VitAttentionImpl : public torch::nn::Module {
 public:
  explicit VitAttentionImpl(const job::VitConfig& config);
  at::Tensor forward(const at::Tensor& x) { return output_->forward(attention_->forward(x)); }

 private:
  SelfAttention attention_;
  VitOutput output_;
};
TORCH_MODULE(VitAttention);

class VitLayerImpl : public torch::nn::Module {
 public:
  explicit VitLayerImpl(const job::VitConfig& config);
  at::Tensor forward(const at::Tensor& x);  ///< [batch, length, hidden] to the same.

 private:
  torch::nn::LayerNorm layernorm_before_, layernorm_after_;
  VitAttention attention_;
  Intermediate intermediate_;
  VitOutput output_;
};
TORCH_MODULE(VitLayer);

class Vit final : public Model {
 public:
  explicit Vit(const job::VitConfig& config);
  /// Throws UsageError if there are no classes.
  at::Tensor loss_sum(const data::Batch& batch) override;
  /// The final norm's output: [batch, channels, image_size, image_size] to [batch, 1 + patches, hidden].
  at::Tensor hidden(const at::Tensor& images);
  /// Images to [batch, classes]; without classes to the class token's [batch, hidden].
  at::Tensor forward(const at::Tensor& images);

 private:
  VitEmbeddings embeddings_;
  std::vector<VitLayer> layers_;
  torch::nn::LayerNorm layernorm_{nullptr};
  torch::nn::Linear classifier_{nullptr};
};
}  // namespace cinch::models
