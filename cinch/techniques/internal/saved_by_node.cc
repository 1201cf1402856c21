#include "cinch/techniques/internal/saved_by_node.h"

#include <exception>

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/dynamo/compiled_autograd.h>

namespace cinch::techniques::internal {

SavedByNode saved_by(const NodePointer& node) {
  if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get()))
    return {{leaf->variable}, true};
  namespace dynamo = torch::dynamo::autograd;
  dynamo::AutogradCompilerCall call(dynamo::SizeInput::STATIC);
  dynamo::NodeCall node_call(0, node);
  SavedByNode saved;
  try {
    dynamo::CompiledNodeArgs arguments(call, node_call);
    node->compiled_args(arguments);
  } catch (const std::exception&) {
    saved.whole = false;
  }
  saved.tensors = std::move(call.tensor_args.inputs);
  return saved;
}
}  // namespace cinch::techniques::internal
