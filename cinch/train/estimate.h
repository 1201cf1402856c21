#pragma once
// What will a training step of one's own need? Any lambda, any torch::nn module, unchanged.
//
//   auto estimate = cinch::estimate([&] {
//     auto loss = torch::nn::functional::cross_entropy(net->forward(images), labels);
//     optimizer.zero_grad(); loss.backward(); optimizer.step();
//   });
//   std::puts(cinch::to_string(estimate.peak).c_str());

#include <functional>
#include <vector>

#include "cinch/device/device_spec.h"
#include "cinch/trace/trace.h"

namespace cinch {

struct StepEstimate {
  trace::Trace trace;             ///< Classified: steps 1 and 2, and what was met that existed before.
  Bytes peak;                     ///< Over both steps, of requested bytes; existing tensors that the step uses included.
  std::vector<Bytes> step_peaks;  ///< Of step 1, of step 2: optimizer state appears between them.
  Bytes existing;                 ///< Of tensors made before (captured by the lambda) that the step used.
};
}  // namespace cinch
