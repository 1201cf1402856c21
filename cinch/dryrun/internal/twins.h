#pragma once
// For one call: tensors of another kind (Meta, or stand-ins on zero pages) that take the arguments' places, sharing
// storages as the arguments do, so that views stay views and writes in place are seen.

#include <cstddef>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include "cinch/dryrun/internal/kernel_script.h"

namespace cinch::dryrun::internal {

class Twins {
 public:
  enum class Kind : std::uint8_t { kMeta, kStandIn };
  Twins(Kind kind, const torch::jit::Stack& arguments);

  /// The call's arguments with twins for tensors.
  const torch::jit::Stack& stack() const { return stack_; }
  const std::vector<at::Tensor>& originals() const { return originals_; }
  const std::vector<at::Tensor>& twins() const { return twins_; }

  /// Where an output of the call lies, if it lies in an argument.
  std::optional<KernelScript::Place> place_of(const at::Tensor& output) const;

 private:
  at::Tensor twin_of(const at::Tensor& original, Kind kind);

  torch::jit::Stack stack_;
  std::vector<at::Tensor> originals_, twins_;
  std::unordered_map<const c10::StorageImpl*, c10::Storage> storages_;          ///< Original → twin.
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of_tensor_;     ///< Twin → position.
  std::unordered_map<const c10::StorageImpl*, std::size_t> index_of_storage_;   ///< Twin → a position over it.
};
}  // namespace cinch::dryrun::internal
