#pragma once
// What autograd saves for backward, kept otherwise: the one mechanism under every technique on activations.
//
//   struct Halve final : SavedTensorPolicy { std::unique_ptr<SavedHandle> pack(const at::Tensor& t) override; };
//   Halve halve;
//   { SavedTensorScope scope(halve);  loss = net->forward(x).sum(); }   // each save goes through halve.pack()
//   loss.backward();                                                    // each use through SavedHandle::unpack()
//
// Follows torch.autograd.graph.saved_tensors_hooks. The first scope of the process installs an autograd engine of ours
// (the only way in from C++); while no scope is active it does nothing.

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>

namespace cinch::techniques {

/// What a policy keeps in place of one saved tensor. Destroyed when the graph no longer needs the tensor.
class SavedHandle {
 public:
  virtual ~SavedHandle() = default;
  /// The tensor as it was packed: values, shape, dtype, device; not part of a graph. Called without grad mode, once for
  /// each use, so more than once under retain_graph, and maybe on another thread.
  virtual at::Tensor unpack() = 0;
};

/// Decides how tensors are kept between forward and backward.
class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;
  /// Called without grad mode when autograd saves `tensor`, before the op that saves it is in the graph. Keep
  /// tensor.detach(), never `tensor`: that would be a cycle. Must not change it. What it throws, the op throws.
  virtual std::unique_ptr<SavedHandle> pack(const at::Tensor& tensor) = 0;
};

/// While it lives, tensors saved on this thread go through `policy` (the innermost scope's alone). Saved tensors
/// outlive it; the policy must outlive only the scope. Scopes belong to a thread: other threads do not inherit them.
class [[nodiscard]] SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorPolicy& policy);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
};

/// The policy of the innermost scope of this thread; nullptr if there is none.
SavedTensorPolicy* active_policy() noexcept;

/// Keeps `tensor` as it is: for what a policy has no better form of.
std::unique_ptr<SavedHandle> keep(const at::Tensor& tensor);

/// What a tensor was when it was saved, to tell later whether it was changed in place. Holds no storage.
class SavedVersion {
 public:
  explicit SavedVersion(const at::Tensor& tensor);
  bool changed() const;
  /// Throws Error naming tensor and module if it was.
  void check() const;

 private:
  c10::VariableVersion counter_;  ///< Shared with the tensor; disabled for an inference tensor.
  std::uint32_t version_ = 0;
  std::string module_;  ///< Where it was saved.
  at::DimVector sizes_;
  at::ScalarType dtype_;
};

/// One tensor saved as autograd would save it here: through the innermost policy, or as it is if there is none. Checks
/// versions itself, because autograd leaves its own check out where hooks are active.
class SavedTensor {
 public:
  explicit SavedTensor(const at::Tensor& tensor);
  /// Through `policy`, or as it is if that is nullptr.
  SavedTensor(const at::Tensor& tensor, SavedTensorPolicy* policy);
  /// The values, outside any graph. Throws Error if the tensor was changed in place meanwhile.
  at::Tensor unpack() const;
  bool changed() const { return version_.changed(); }

 private:
  SavedVersion version_;
  std::unique_ptr<SavedHandle> handle_;
};
}  // namespace cinch::techniques
