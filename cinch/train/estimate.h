#pragma once
// What will a training step of one's own need? Any lambda that trains any torch::nn module, unchanged.
//
//   auto estimate = cinch::estimate([&] {
//     optimizer.zero_grad();
//     torch::nn::functional::cross_entropy(net->forward(images), labels).backward();
//     optimizer.step();
//   }, cinch::device::find("cpu"), {.optimizers = {&optimizer}});
//   std::puts(cinch::to_string(estimate.peak).c_str());
//
// Net, optimizer and batch may be captured or made inside. Captured tensors are counted and never written.

#include <functional>
#include <string>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/device/device_spec.h"
#include "cinch/trace/trace.h"

namespace torch::optim {
class Optimizer;
}

namespace cinch {

struct EstimateOptions {
  /// Captured optimizers: predicted as if fresh, and given back as they were.
  std::vector<torch::optim::Optimizer*> optimizers = {};
};

struct StepEstimate {
  trace::Trace trace;             ///< Classified; steps 1 and 2. What existed before comes first.
  Bytes peak;                     ///< Over both steps, of requested bytes; existing tensors that the step uses included.
  std::vector<Bytes> step_peaks;  ///< Of step 1, of step 2: optimizer state appears between them.
  Bytes existing;                 ///< Of tensors made before, captured by the step.
  /// Ops that make the peak a bound from above, as sizes of results depend on values: "aten::nonzero in head".
  std::vector<std::string> bounded = {};
  std::vector<std::string> by_shape_alone = {};  ///< Ops of which only results count, not what kernels take inside.
};

/// Runs `step` twice, dry. Gradients of captured parameters are afterwards as before (undefined if the step set them to
/// that). Throws UsageError if fake tensors outlive it (a captured optimizer that was not named, a history of losses),
/// UnsupportedError for an op without a rule; see dryrun::DryRun for what a step may do.
StepEstimate estimate(const std::function<void()>& step, const device::DeviceSpec& device = device::find("cpu"),
                      const EstimateOptions& options = {});
}  // namespace cinch
