#pragma once
// Activation checkpointing: save a region's inputs only, run it again in backward.
//
//   y = cinch::checkpoint([block](at::Tensor x) { return block->forward(x); }, x);
//
// Follows torch/utils/checkpoint.py, use_reentrant=False.

#include <type_traits>

namespace cinch::techniques {

/// Immutable.
struct CheckpointPolicy {
  bool preserve_rng_state = true;   ///< Off only if nothing random runs inside; otherwise gradients differ.
  bool check_recomputation = true;  ///< Count, shape, dtype, device of what is recomputed; throws Error naming the op.
};

/// Runs `forward(inputs...)` and saves only its inputs; backward runs it again, once, up to the last tensor needed.
/// Any result type; inputs need not require gradients. `forward` and `inputs` are copied and must be callable again.
/// Restores generators and autocast state around the second run. Nests. Backward twice needs retain_graph, as always.
template <class Forward, class... Inputs>
auto checkpoint(const CheckpointPolicy& policy, Forward forward, Inputs... inputs)
    -> std::invoke_result_t<Forward&, const Inputs&...>;
}  // namespace cinch::techniques
