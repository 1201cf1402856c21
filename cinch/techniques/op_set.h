#pragma once
// Ops whose outputs a selective checkpoint keeps.

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace cinch::techniques {

/// A set of ops that checkpoints intercept; cheap to copy. From the moment that one exists each of them passes through
/// a kernel of ours while a checkpoint that keeps it runs, and only then.
class OpSet {
 public:
  OpSet() = default;  ///< Empty.
  /// Names as "aten::addmm", with overload "aten::sum.dim_IntList". They are the ops below autograd, what composite
  /// ones decompose into: aten::linear is aten::addmm or aten::mm there. Throws UsageError for a name that no op has,
  /// for an op whose results are views, its arguments, or lists, and UnsupportedError for one that LibTorch treats
  /// apart.
  explicit OpSet(const std::vector<std::string>& names);

  /// What costs most to compute again for its bytes: products of matrices, convolutions, attention, LSTM layers.
  static const OpSet& matmuls_and_attention();

  bool empty() const noexcept { return ops_ == nullptr || ops_->empty(); }
  bool contains(const c10::OperatorHandle& op) const { return ops_ != nullptr && ops_->count(op) != 0; }

 private:
  std::shared_ptr<const std::unordered_set<c10::OperatorHandle>> ops_;
};
}  // namespace cinch::techniques
