#pragma once
// An optimizer that steps each parameter inside backward, as soon as its gradient is whole, and then drops the
// gradient: at no time do all gradients live.
//
//   auto optimizer = optim::in_backward(optim::adamw({{.parameters = optim::named(*model), .learning_rate = 3e-4}}));
//   optimizer->backward(model->forward(batch));        // instead of loss.backward(), step(), zero_grad()
//
// Without clipping the weights are, to the bit, those of the plain loop.
//
// What clipping and micro-batches cost:
//  * The global norm needs every gradient before the first step. With `two_passes` backward runs twice: the first
//  measures
//    each gradient's norm and drops it, the second scales, steps and drops. The weights are those of the plain loop;
//    the price is a second backward (with activation checkpointing a second recomputation), and the graph, which lives
//    until it ends. What draws random numbers in backward itself would differ between the two.
//  * Over micro-batches gradients have to add up, so all of them live from the first to the last; only in the last do
//  they
//    go one by one. It saves what the last backward's activations and the gradients would need together, no more.
//  * Both at once would save nothing: refused.
// After an exception in backward (out of memory) some parameters may have been stepped.

#include <memory>
#include <optional>

#include "cinch/optim/optimizer.h"

namespace cinch::optim {

struct InBackwardOptions {
  std::optional<double> max_grad_norm = {};  ///< Needs two_passes.
  bool two_passes = false;
};

class BackwardOptimizer : public Optimizer {
 public:
  using Optimizer::Optimizer;
  /// Backward of `loss`, a scalar; steps if this is the `last` micro-batch of a step. Throws UsageError with two_passes if
  /// it is not, or if gradients are there that it did not make.
  virtual StepResult backward(const at::Tensor& loss, bool last = true) = 0;
};

/// `optimizer` as adamw() and its like return it, or offloaded(); it goes on with its state. Takes each parameter's one
/// slot for a post-accumulate-grad hook until it is destroyed. Throws UsageError with the reason for options that
/// exclude one another. step() steps parameters whose gradients were made without backward(); it does not clip.
std::unique_ptr<BackwardOptimizer> in_backward(std::unique_ptr<Optimizer> optimizer, InBackwardOptions options = {});
}  // namespace cinch::optim
