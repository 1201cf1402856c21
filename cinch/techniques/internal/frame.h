#pragma once
// One checkpointed region: what it takes to run it again, and what the second run made.

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>

#include "cinch/techniques/activation_checkpoint.h"
#include "cinch/techniques/internal/call_context.h"
#include "cinch/techniques/internal/kept_outputs.h"
#include "cinch/techniques/internal/op_log.h"
#include "cinch/techniques/internal/surroundings.h"
#include "cinch/techniques/saved_tensors.h"

namespace cinch::techniques::internal {

/// The place of one tensor that forward saved and dropped. Lives as long as the graph may ask for the tensor; what was
/// recomputed for it goes with it. Guarded by its frame's mutex.
class Slot {
 public:
  /// `kept`: a detached alias of `tensor`.
  void put(int task, const at::Tensor& tensor, at::Tensor kept);
  /// Takes out what was recomputed for graph task `task`.
  std::optional<at::Tensor> take(int task);
  void forget(int task);

 private:
  struct Value {
    int task;
    SavedVersion version;
    at::Tensor tensor;
  };
  std::vector<Value> values_;  ///< One a graph task that runs now: nearly always none or one.
};

class Frame : public std::enable_shared_from_this<Frame> {
 public:
  Frame(const CheckpointPolicy& policy, at::ArrayRef<at::Tensor> inputs, detail::CheckpointRegion::Rerun rerun);

  /// Notes that forward saved `tensor`.
  std::shared_ptr<Slot> drop(const at::Tensor& tensor);
  /// What forward dropped there; runs the region again, once for each graph task.
  at::Tensor take(Slot& slot);
  /// Drops what graph task `task` left.
  void forget(int task);

  /// What the region's ops pass through while it runs; nullptr if its policy asks for none.
  KeptOutputs* kept_outputs() { return kept_ ? &*kept_ : nullptr; }
  OpLog* op_log() { return log_ ? &*log_ : nullptr; }

 private:
  class Keep;
  struct Save {
    at::DimVector sizes;
    at::ScalarType dtype;
    at::Device device;
    std::weak_ptr<Slot> slot;  ///< Expired: the graph does not need it any more.
  };

  void recompute(int task);
  void run_until_enough(Keep& keep);
  std::vector<at::Tensor> unpack_inputs() const;
  std::size_t needed() const;  ///< Number of saves up to the last one that the graph may ask for.
  void check(std::size_t index, const at::Tensor& tensor) const;
  void check_ops() const;
  std::string where() const;
  void forget_locked(int task);

  const CheckpointPolicy policy_;
  const detail::CheckpointRegion::Rerun rerun_;
  const std::string module_;
  const CallContext calls_;
  const AutocastState autocast_;
  GeneratorStates generators_;
  std::optional<KeptOutputs> kept_;
  std::optional<OpLog> log_;
  std::vector<std::optional<SavedTensor>> inputs_;
  std::vector<bool> input_requires_grad_;
  std::vector<Save> saves_;
  std::mutex mutex_;
};
}  // namespace cinch::techniques::internal
