#pragma once
// Which tensors were made while a watch lives, by which op, and which of them still exist. Keeps none of them alive.

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/StorageImpl.h>

#include "cinch/trace/scope.h"

namespace cinch::techniques::internal {

/// Memory, and the op it came from.
struct MadeStorage {
  explicit MadeStorage(c10::weak_intrusive_ptr<c10::StorageImpl> memory) : storage(std::move(memory)) {}
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  std::uint64_t order = 0;
  std::string op;      ///< The outermost that returned it first: "aten::linear".
  std::string module;  ///< Where known.
  std::string node;    ///< Of the backward pass it was made in, if it was: "MmBackward0".
  trace::Phase phase = trace::Phase::kOther;
  std::uint32_t step = 0;
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype = at::kFloat;
};

/// Sees the ops of all threads, as LibTorch's dispatcher calls them. Memory that was there before is known by being an
/// argument before it is a result.
class TensorWatch {
 public:
  TensorWatch();
  ~TensorWatch();
  TensorWatch(const TensorWatch&) = delete;
  TensorWatch& operator=(const TensorWatch&) = delete;

  /// What was made and is alive, oldest first.
  std::vector<MadeStorage> alive() const;
  /// nullptr for memory that was there before, or is unknown. Valid until the next op.
  const MadeStorage* find(const c10::StorageImpl* storage) const;
  /// The op that returned this tensor last; empty if none did.
  std::string last_op(const at::TensorImpl* tensor) const;
  /// Handles to all tensors that went through an op and still exist.
  std::vector<at::Tensor> tensors() const;

  void on_call(const at::RecordFunction& call, bool outermost);
  void on_return(const at::RecordFunction& call, std::uint64_t began_at);
  std::uint64_t clock() const;

 private:
  struct SeenTensor {
    c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl> tensor;
    std::string op;
  };
  void note_result(const at::Tensor& tensor, const at::RecordFunction& call, std::uint64_t began_at);
  void forget_the_dead();

  mutable std::mutex lock_;
  std::uint64_t clock_ = 0;
  std::size_t sweep_at_ = 4096;
  std::unordered_map<const c10::StorageImpl*, MadeStorage> made_;
  std::unordered_map<const c10::StorageImpl*, c10::weak_intrusive_ptr<c10::StorageImpl>> older_;
  std::unordered_map<const at::TensorImpl*, SeenTensor> tensors_;
};
}  // namespace cinch::techniques::internal
