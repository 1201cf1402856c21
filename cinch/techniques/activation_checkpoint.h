#pragma once
// Activation checkpointing: save a region's inputs only, run it again in backward.
//
//   y = cinch::checkpoint([block](at::Tensor x) { return block->forward(x); }, x);
//   y = cinch::checkpoint({.keep = OpSet::matmuls_and_attention()}, ...);          // recomputes what is cheap alone
//
// Follows torch/utils/checkpoint.py, use_reentrant=False.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/ArrayRef.h>

#include "cinch/techniques/op_set.h"

namespace cinch::techniques {

/// What is compared between a region's forward and its second run, beyond what check_recomputation compares.
enum class DeterminismCheck : std::uint8_t {
  kNone,
  kOps,     ///< The ops it calls, in order.
  kValues,  ///< Also checksums of what they give: reads every result once more, twice.
};

/// Immutable.
struct CheckpointPolicy {
  bool preserve_rng_state = true;   ///< Off only if nothing random runs inside; otherwise gradients differ.
  bool check_recomputation = true;  ///< Shape, dtype, device of what is recomputed; throws Error naming op and module.
  /// Tensors that forward updates in place and backward does not read, such as batch norm's running statistics: the
  /// second run's updates are undone, so that they are updated once. call() names the module's buffers itself.
  std::vector<at::Tensor> updated = {};
  /// Selective checkpointing: outputs of these ops are saved, beside the inputs, and backward does not run them again.
  /// Saved as the enclosing scope's policy says (an Offload moves them). One that was changed in place is computed
  /// again. In a checkpoint inside this one its own policy holds alone.
  OpSet keep = {};
  DeterminismCheck determinism =
      DeterminismCheck::kNone;  ///< Throws Error naming the first op that differs, and module.
};

namespace detail {

/// True for at::Tensor and for optional, vector, array, pair, tuple of what holds one.
template <class T>
struct HoldsTensor : std::false_type {};
template <>
struct HoldsTensor<at::Tensor> : std::true_type {};
template <class T>
struct HoldsTensor<std::optional<T>> : HoldsTensor<T> {};
template <class T, class Allocator>
struct HoldsTensor<std::vector<T, Allocator>> : HoldsTensor<T> {};
template <class T, std::size_t size>
struct HoldsTensor<std::array<T, size>> : HoldsTensor<T> {};
template <class First, class Second>
struct HoldsTensor<std::pair<First, Second>> : std::disjunction<HoldsTensor<First>, HoldsTensor<Second>> {};
template <class... T>
struct HoldsTensor<std::tuple<T...>> : std::disjunction<HoldsTensor<T>...> {};

/// Calls `visit(at::Tensor&)` for each tensor in `value`, in order.
template <class T, class Visit>
void visit_tensors(T& value, const Visit& visit) {
  if constexpr (!HoldsTensor<T>::value) {
    return;
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    visit(value);
  } else if constexpr (requires { value.has_value(); }) {
    if (value) visit_tensors(*value, visit);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([&visit](auto&... items) { (visit_tensors(items, visit), ...); }, value);
  } else {
    for (auto& item : value) visit_tensors(item, visit);
  }
}

/// While it lives, what autograd saves on this thread is dropped, to be made again by `rerun`.
class [[nodiscard]] CheckpointRegion {
 public:
  /// Receives the inputs anew, in the same order.
  using Rerun = std::function<void(c10::ArrayRef<at::Tensor> inputs)>;
  CheckpointRegion(const CheckpointPolicy& policy, c10::ArrayRef<at::Tensor> inputs, Rerun rerun);
  ~CheckpointRegion();
  CheckpointRegion(const CheckpointRegion&) = delete;
  CheckpointRegion& operator=(const CheckpointRegion&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace detail

/// Runs `forward(inputs...)` and saves only its inputs; backward runs it again, once, up to the last tensor needed.
/// Any result type; inputs need not require gradients. `forward` and `inputs` are copied and must be callable again.
/// Restores generators and autocast state around the second run. Nests. Backward twice needs retain_graph, as always.
///
/// Tensors in optional, vector, array, pair and tuple are checked for changes in place and follow an enclosing policy;
/// inputs of other types, and what `forward` captures, are held as they are. Throws Error, in backward, if what is
/// recomputed is not what forward saved.
template <class Forward, class... Inputs>
requires std::invocable<Forward&, const Inputs&...>
auto checkpoint(const CheckpointPolicy& policy, Forward forward, Inputs... inputs)
    -> std::invoke_result_t<Forward&, const Inputs&...> {
  if (!c10::GradMode::is_enabled()) return std::invoke(forward, std::as_const(inputs)...);
  std::vector<at::Tensor> tensors;
  std::tuple<Inputs...> emptied(inputs...);  // the tensors in it are saved apart
  detail::visit_tensors(emptied, [&tensors](at::Tensor& tensor) { tensors.push_back(std::exchange(tensor, {})); });
  const detail::CheckpointRegion region(policy, tensors, [forward, emptied](c10::ArrayRef<at::Tensor> saved) mutable {
    auto filled = emptied;
    auto next = saved.begin();
    detail::visit_tensors(filled, [&next](at::Tensor& tensor) { tensor = *next++; });
    std::apply([&forward](const auto&... input) { static_cast<void>(std::invoke(forward, input...)); }, filled);
  });
  return std::invoke(forward, std::as_const(inputs)...);
}

/// With the default policy.
template <class Forward, class... Inputs>
requires std::invocable<Forward&, const Inputs&...>
auto checkpoint(Forward forward, Inputs... inputs) -> std::invoke_result_t<Forward&, const Inputs&...> {
  return checkpoint(CheckpointPolicy{}, std::move(forward), std::move(inputs)...);
}
}  // namespace cinch::techniques

namespace cinch {
using techniques::checkpoint;
using techniques::CheckpointPolicy;
}  // namespace cinch
