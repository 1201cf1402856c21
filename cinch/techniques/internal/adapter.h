#pragma once
// An adapter on a weight: a mark on the tensor, which the ops that multiply by it or look it up meet before autocast
// and autograd do.

#include <functional>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "cinch/techniques/lora.h"

namespace cinch::techniques::internal {

/// A frozen weight, maybe in fewer bits.
struct BaseWeight {
  BaseWeights kind = BaseWeights::kAsTheyAre;
  at::ScalarType dtype = at::kFloat;  ///< Of the weight as it was.
  at::Tensor scales;                  ///< kInt8: float32 [rows, blocks].

  /// `weight` [rows, columns] as it will be kept; sets the others.
  at::Tensor round(const at::Tensor& weight, BaseWeights how);
  /// The weight again, or rows of it, from what is kept of them and their scales.
  static at::Tensor restore(const at::Tensor& kept, const at::Tensor& scales, at::ScalarType dtype);
};

struct Adapter {
  bool of_embedding = false;
  at::Tensor a, b;  ///< Linear: [rank, in], [out, rank]; embedding: [rank, entries], [size, rank].
  double scaling = 1;
  double dropout = 0;
  std::weak_ptr<torch::nn::Module> module;  ///< Whether it trains.
  BaseWeight base;
  at::Tensor kept;  ///< While merged: the weight before.

  at::Tensor product() const;  ///< What is added to the weight, but for the scaling.
  at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                    const std::function<at::Tensor()>& plain) const;
  at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices,
                       const std::function<at::Tensor()>& plain) const;
};

/// Gives `parameter` the contents of `weight` and the mark. Installs the ops, once, for good.
void attach(const at::Tensor& parameter, const at::Tensor& weight, std::shared_ptr<Adapter> adapter);
/// The adapter of a weight, or nullptr.
std::shared_ptr<Adapter> adapter_of(const at::Tensor& weight);
}  // namespace cinch::techniques::internal
