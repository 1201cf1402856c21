#pragma once
// What one node of an autograd graph keeps for its backward pass.

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace cinch::techniques::internal {

/// Of a graph's node: by version of LibTorch a shared_ptr or an intrusive_ptr.
using NodePointer = decltype(torch::autograd::Edge::function);

struct SavedByNode {
  std::vector<at::Tensor> tensors;  ///< An input of the op is the tensor itself; its output is another handle.
  bool whole = true;  ///< False: some could not be read (changed in place since, or kept by a SavedTensorPolicy).
};

/// Reads without side effects. There is no interface for it but the one by which compiled autograd collects the
/// arguments of a node (torch/csrc/dynamo/compiled_autograd.h).
SavedByNode saved_by(const NodePointer& node);
}  // namespace cinch::techniques::internal
