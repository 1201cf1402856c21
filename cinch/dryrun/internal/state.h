#pragma once
// The dry run in force.

#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "cinch/dryrun/dry_run.h"
#include "cinch/record/producer.h"
#include "cinch/record/recorder.h"

namespace cinch::dryrun {

struct DryRun::State {
  State(trace::Sink& sink, const device::DeviceSpec& device);
  ~State();
  static State* active() noexcept;

  /// A tensor is met as an argument. One made before this run counts its storage once, as an allocation; a leaf that
  /// requires a gradient is a parameter, whoever made it.
  void meet(const at::Tensor& tensor);
  /// Labels the gradients of the parameters met so far.
  void label_gradients();

  bool on_cuda() const { return device.type == device::DeviceType::kCuda; }
  /// Fake memory. Only what lies on the device that is predicted for is an event: with CUDA, the host's is not.
  c10::DataPtr allocate(Bytes bytes, c10::Device where);
  /// cuBLAS is about to be used by the calling thread: its workspace, once a thread.
  void use_cublas();

  device::DeviceSpec device;
  record::Producer producer;
  at::Tensor generator_state;       ///< Of the default generator, to be restored.
  c10::impl::IncludeDispatchKeyGuard intercept;

  struct Existing {
    c10::Storage storage;           ///< Kept alive: its address is its identity.
    record::AllocationTag tag;
  };
  std::unordered_map<const c10::StorageImpl*, Existing> existing;
  struct Leaf {
    at::Tensor tensor, grad;        ///< As they were when met.
  };
  std::unordered_map<const c10::TensorImpl*, Leaf> leaves;  ///< Made before: their gradients must not stay fake.
  std::unordered_map<const c10::TensorImpl*, c10::weak_intrusive_ptr<c10::TensorImpl>> parameters;
  std::unordered_map<std::thread::id, c10::DataPtr> cublas_workspaces;
  std::set<std::string> bounded, by_shape_alone;  ///< Ops, see DryRun.
};

namespace internal {
/// Registers the fallback of DispatchKey::Fake, once, for good.
void install_fallback();
}  // namespace internal
}  // namespace cinch::dryrun
