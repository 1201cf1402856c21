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
  mutable at::Tensor scales;  ///< kInt8: float32 [rows, blocks].

  /// `weight` [rows, columns] as it will be kept; sets the others.
  at::Tensor round(const at::Tensor& weight, BaseWeights how);
  /// The scales where the weight is now: they follow it to another device.
  const at::Tensor& scales_on(at::Device device) const;
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
  /// Rows in `dtype`, if they are kept in another one; the adapter's row `padding` gets no gradient.
  at::Tensor embedding(const at::Tensor& weight, at::ScalarType dtype, const at::Tensor& indices, std::int64_t padding,
                       const std::function<at::Tensor()>& plain) const;
};

/// Gives `parameter` the contents of `weight` and the mark, which copies in other dtypes and on other devices bear,
/// too. Installs the ops, once, for good.
void attach(const at::Tensor& parameter, const at::Tensor& weight, std::shared_ptr<Adapter> adapter);
/// The adapter of a weight, or nullptr.
std::shared_ptr<Adapter> adapter_of(const at::Tensor& weight);
}  // namespace cinch::techniques::internal
