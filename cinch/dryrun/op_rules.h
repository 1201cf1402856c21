#pragma once
// What is known of each op: one table, one file a family (rules_*.cc).
//
// A dry run meets ops below autograd. For each the table says which of these holds:
//   decompose   its CPU kernel only calls other ops: it runs as it is, its arguments still fake, and its inner
//               allocations count;
//   in place    returns the argument it writes, allocates nothing but scratch;
//   shape       LibTorch's C++ Meta kernel, or a function here, gives the outputs' layouts;
//   probe       nobody wrote its kernel's allocations down: the CPU kernel runs once for each signature on stand-ins
//               (lazily mapped zero pages), and what it allocates is kept and replayed.
// dry_run_test.cc and tests/prediction_test.cc check the rules that their models reach against the kernels themselves
// (internal/check_rules.h). A rule for an op none of them reaches is as good as its reading of the kernel.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "cinch/core/bytes.h"

namespace cinch::dryrun {

/// One call, as rules see it. Tensors may be fake: sizes, strides and dtype are theirs, data is not there.
class OpArguments {
 public:
  OpArguments(const c10::OperatorHandle& op, std::span<const c10::IValue> values, int threads, bool on_cuda = false)
      : op_(op), values_(values), threads_(threads), on_cuda_(on_cuda) {}
  const c10::IValue& operator[](std::size_t i) const { return values_[i]; }
  std::size_t size() const { return values_.size(); }
  /// Undefined if the argument is None.
  at::Tensor tensor(std::size_t i) const;
  std::vector<at::Tensor> tensors(std::size_t i) const;  ///< Of a list argument.
  const c10::OperatorHandle& op() const { return op_; }
  int threads() const { return threads_; }               ///< Intra-op threads: kernels' scratch depends on them.
  bool on_cuda() const { return on_cuda_; }              ///< Whether the call runs on a (claimed) CUDA device.

 private:
  const c10::OperatorHandle& op_;
  std::span<const c10::IValue> values_;
  int threads_;
  bool on_cuda_;
};

struct OpRule {
  enum class Kind : std::uint8_t { kDecompose, kInPlace, kShape, kProbe } kind = Kind::kProbe;
  /// kShape: the outputs as tensors on the Meta device, made by empty_meta(); undefined ones allowed. Empty: the C++ Meta
  /// kernel. Of kProbe: for cards, and for calls too large to probe.
  std::function<std::vector<at::Tensor>(const OpArguments&)> shape = {};
  /// Of kShape: calls that are probed all the same, unless they are too large for that. Empty: none.
  std::function<bool(const OpArguments&)> probe_if = {};
  /// Allocations inside the kernel that stand beside the outputs and are freed before it returns: made before the outputs
  /// (casts of arguments), and after them. In order; zeros are passed over.
  /// CPU kernels' alone.
  std::function<std::vector<Bytes>(const OpArguments&)> scratch_before = {}, scratch = {};
  /// Of that scratch, what threads take side by side or one after the other, as it happens: it counts in full, a recording
  /// may have less. Empty: none.
  std::function<Bytes(const OpArguments&)> racing = {};
  /// The same of the CUDA kernel, after the outputs. Empty: none.
  std::function<std::vector<Bytes>(const OpArguments&)> cuda_scratch = {};
  /// Multiply-adds count 2. Empty: 0, the op is bound by memory.
  std::function<double(const OpArguments&)> flops = {};
  /// Of its first argument it reads no more than it gives: it looks rows up.
  bool looks_up = false;
  /// On CUDA it calls cuBLAS, whose workspace stays with the thread.
  bool cublas = false;
};

/// For users' own ops: "myops::fused(Tensor x) -> Tensor" is "myops::fused"; overloads as "aten::add.Tensor".
/// Throws UsageError if there is a rule already.
void add_rule(std::string_view op, OpRule rule);
/// nullptr if there is none.
const OpRule* find_rule(const c10::OperatorName& op);

/// A layout, for OpRule::shape. The first is contiguous.
at::Tensor empty_meta(at::IntArrayRef sizes, at::ScalarType dtype);
at::Tensor empty_meta_like(const at::Tensor& tensor);  ///< Its layout, densely packed, as at::empty_like gives.
Bytes bytes_of(const at::Tensor& tensor);              ///< Elements times their size.
Bytes bytes_of(std::int64_t elements, at::ScalarType dtype);
}  // namespace cinch::dryrun
