#pragma once
// LoRA (2106.09685): the model's weights are frozen; beside chosen layers a product of two thin matrices is trained.
//
//   const cinch::Lora lora(*model, {.targets = {"q_proj", "v_proj"}, .rank = 8, .alpha = 16});
//   auto optimizer = optim::adamw({{.parameters = optim::named(*model), .learning_rate = 2e-4}});  // the adapters
//   alone
//
// A Linear x W^T + b gives x W^T + b + alpha / rank × dropout(x) A^T B^T; an Embedding likewise. The model's own code
// stays as it is: the adapter hangs on the weight, and takes effect wherever a Linear or Embedding, or at::linear(),
// uses it.
//
// Module::to() moves and casts adapters along with their weights; a weight that is kept rounded then takes the new
// dtype's room.
//
// Limits. Layers that are no torch::nn::Linear or Embedding have no adapters. An adapted layer has no clone(): it
// throws. What puts another tensor in a weight's place (set_data(), torch::load()) leaves its adapter behind: adapters
// and merging notice and throw, forward does not. Ops other than those of Linear and Embedding (an at::mm with the
// weight) see the base weight alone; linear_cross_entropy() refuses it.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace cinch::techniques {

namespace internal {
struct AdaptedModule;
}

/// How the frozen weights of adapted layers are kept. Other than kAsTheyAre they are rounded for good, and each layer
/// makes its weight again when it runs, in forward and in backward, and drops it.
enum class BaseWeights : std::uint8_t {
  kAsTheyAre,
  kBFloat16,  ///< 2 bytes a weight.
  kInt8,      ///< 1 byte a weight and 4 for each 64 of a row (of the whole row, where 64 does not divide it). Lossy.
};

struct LoraOptions {
  /// Which Linear and Embedding modules: the whole path, or its end after a dot ("q_proj", "attention.qkv"); with '*',
  /// the whole path, in which it stands for any text ("layers.*.mlp.fc").
  std::vector<std::string> targets;
  std::int64_t rank = 8;
  double alpha = 16;   ///< The product is scaled by alpha / rank.
  double dropout = 0;  ///< Of what goes into a Linear's adapter, in training.
  BaseWeights base = BaseWeights::kAsTheyAre;
  std::string prefix = {};  ///< In files, before every path: what transformers' model has above: "model." for Llama.
};

/// Puts adapters into a model. They are modules and parameters of it (PATH.lora_A.weight, PATH.lora_B.weight,
/// PATH.lora_embedding_A, _B) and live as long as it does, with or without this object.
class Lora {
 public:
  /// Freezes all parameters of `model` and adds adapters, in float32: A drawn from the default generator as PEFT does,
  /// B zero (of embeddings A zero, B drawn), so that with BaseWeights::kAsTheyAre nothing changes at first. Throws
  /// UsageError: a pattern that matches nothing, a layer that has an adapter or shares its weight with another that is
  /// chosen.
  Lora(torch::nn::Module& model, const LoraOptions& options);

  std::vector<std::string> paths() const;      ///< Of the adapted modules.
  std::vector<at::Tensor> parameters() const;  ///< Of the adapters.

  /// Adds the products to the weights; forward then costs what it did without adapters. Keeps a copy of the weights, so
  /// that unmerge() restores them bitwise. Throws UsageError if merged, or if the weights are kept rounded.
  void merge();
  void unmerge();  ///< Throws UsageError unless merged.
  bool merged() const { return merged_; }

  /// The adapters by the names of Hugging Face's PEFT, for interchange::save_safetensors(): the live parameters, not
  /// copies.
  std::map<std::string, at::Tensor> tensors() const;
  /// What PEFT expects beside them, as adapter_config.json.
  std::string peft_config() const;
  /// Copies in, all or nothing. Throws UsageError while merged; Error for tensors that are missing, left over, of
  /// another shape or no floating point, naming the first.
  void load(const std::map<std::string, at::Tensor>& tensors);

 private:
  LoraOptions options_;
  std::vector<std::shared_ptr<internal::AdaptedModule>> modules_;
  bool merged_ = false;
};
}  // namespace cinch::techniques

namespace cinch {
using techniques::BaseWeights;
using techniques::Lora;
using techniques::LoraOptions;
}  // namespace cinch
