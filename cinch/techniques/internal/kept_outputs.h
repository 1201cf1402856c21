#pragma once
// Outputs of chosen ops, kept in a region's forward and given back in its second run instead of running the ops again.
//
// A kernel of ours is registered for each op of an OpSet, below autograd and above a dry run, on a dispatch key that is
// switched on while a region runs. Autograd records the op both times as ever.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/DimVector.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "cinch/techniques/internal/surroundings.h"
#include "cinch/techniques/op_set.h"
#include "cinch/techniques/saved_tensors.h"

namespace cinch::techniques::internal {

/// The key: that of tensors whose negation is put off (the imaginary part of a conjugate). It lies where we need one,
/// no op of an OpSet has a kernel of LibTorch's on it, and LibTorch's for all others passes on what has no such tensor.
inline constexpr auto kKeepingKey = c10::DispatchKey::Negative;

/// Registers our kernel for `op`, once. Throws UnsupportedError if LibTorch has one.
void intercept(const c10::OperatorHandle& op);

/// Of one region. Not thread-safe: its frame sees to it.
class KeptOutputs {
 public:
  /// `policy`: where outputs are saved; nullptr: as they are. Must live until forward is over.
  KeptOutputs(OpSet ops, SavedTensorPolicy* policy) : ops_(std::move(ops)), policy_(policy) {}

  void begin_second_run(std::string region);
  bool keeps(const c10::OperatorHandle& op) const { return ops_.contains(op); }
  /// Runs `op`, or gives back what it gave in forward, unless that was changed in place since. Throws Error naming the
  /// op if it is another than in forward.
  void call(const c10::OperatorHandle& op, c10::DispatchKeySet below, torch::jit::Stack& stack);
  /// In forward: `view` has been made, a view of which LibTorch does not tell its base that it was changed in place.
  void watch(const at::Tensor& view);
  /// In forward: `tensor` is about to be changed in place. If it is kept, a copy is kept from now on.
  void copy_before_change(const at::Tensor& tensor);

 private:
  struct Output {
    explicit Output(const c10::OperatorHandle& op) : op(op) {}
    c10::OperatorHandle op;
    std::vector<std::optional<SavedTensor>> tensors;  ///< For each result; none: it is not a tensor, or undefined.
    std::vector<c10::IValue> others;                  ///< For each result that is none.
    std::vector<const void*> storages;                ///< Theirs, while `tensors` are the results themselves.
    std::vector<SavedVersion> views;                  ///< Untracked views of them.
    at::DimVector sizes, strides;                     ///< Of the result, if it is one tensor.
    std::int64_t offset = 0;
    GeneratorStates generators;  ///< After the op, if it draws random numbers.
    bool changes = false;        ///< The region changes it in place: `tensors` holds a copy.
    bool gone = false;           ///< Given to a backward that keeps no graph.
  };
  Output* over(const at::Tensor& tensor);
  void keep(const c10::OperatorHandle& op, torch::jit::Stack& stack);
  bool can_give_back(const Output& output) const;
  void give_back(Output& output, torch::jit::Stack& stack);

  const OpSet ops_;
  SavedTensorPolicy* const policy_;
  std::vector<Output> outputs_;
  std::string region_;
  std::size_t next_ = 0;  ///< Of the second run.
  bool forward_ = true;
};

/// While it lives, ops of this thread go through `kept`; nullptr: through none.
class [[nodiscard]] KeepingScope {
 public:
  explicit KeepingScope(KeptOutputs* kept) noexcept;
  ~KeepingScope();
  KeepingScope(const KeepingScope&) = delete;
  KeepingScope& operator=(const KeepingScope&) = delete;

 private:
  KeptOutputs* before_;
  bool included_;
};

/// While it lives, no op of this thread is kept: for ops of our own.
struct NoKeeping {
  KeepingScope none{nullptr};
};
}  // namespace cinch::techniques::internal
