#pragma once
// Tensors that should be gone and are not: which, made where, and held by whom.
//
//   techniques::LeakCheck leaks;
//   leaks.name(total, "total");                      // variables that reports may name
//   train_step();
//   for (const auto& leak : leaks.leaks()) std::cerr << leak.text() << '\n';
//
//   64.0 KiB Float [128, 128], made by aten::mul in blocks.0.mlp: saved by MulBackward0 for the backward pass of total
//
// For finding faults, not for every step of a training: each op costs some microseconds more while one lives. Works on
// real and on dry tensors, on any device. Tensors that no op returned (from_blob) are not seen.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "cinch/core/bytes.h"
#include "cinch/trace/event.h"

namespace cinch::techniques {

/// What keeps a tensor's memory.
struct Holder {
  enum class Kind : std::uint8_t {
    kGraph,     ///< A node saved it for a backward pass that has not come (or was told to retain the graph).
    kCycle,     ///< The same, in a graph that the tensor holds itself: nothing but cutting it will free either.
    kGradient,  ///< It is the .grad of a leaf.
    kProgram,   ///< Handles that are none of the above: variables, containers, what a hook or a function captured.
    kUnknown,   ///< Memory without a handle that can be found: a SavedTensorPolicy's, another library's.
  } kind = Kind::kUnknown;
  std::string text;  ///< "saved by MulBackward0 for the backward pass of total"
};

struct Leak {
  Bytes bytes;
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
  std::string op;      ///< "aten::mul"
  std::string module;  ///< Path of the module that was running; empty if none was known.
  std::string node;    ///< "MulBackward0", if it was made in a backward pass.
  trace::Phase phase = trace::Phase::kOther;
  std::uint32_t step = 0;
  std::vector<Holder> holders;
  std::string text() const;  ///< One line.
};

/// Watches from construction on. Several may live at once. Not for use while another thread runs ops.
class LeakCheck {
 public:
  LeakCheck();
  ~LeakCheck();
  LeakCheck(const LeakCheck&) = delete;
  LeakCheck& operator=(const LeakCheck&) = delete;

  /// Reports call this tensor (this handle, and its gradient) `name` from now on. Does not keep it alive.
  void name(const at::Tensor& tensor, const std::string& name);
  /// It is meant to outlive the scope: no leak.
  void expect(const at::Tensor& tensor);

  /// Memory that was taken since the watch began and is alive, oldest first.
  std::vector<Leak> leaks() const;
  /// Throws Error naming the largest leaks; no effect if there are none.
  void check() const;

  /// What keeps `tensor`'s memory, as far as it can be found: among tensors that went through an op while this lives.
  /// The handle `tensor` itself counts as the program's.
  std::vector<Holder> holders(const at::Tensor& tensor) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};
}  // namespace cinch::techniques
