#pragma once
// The dry run in force.

#include <unordered_map>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "cinch/dryrun/dry_run.h"
#include "cinch/record/internal/producer.h"

namespace cinch::dryrun {

struct DryRun::State {
  State(trace::Sink& sink, const device::DeviceSpec& device);
  ~State();
  static State* active() noexcept;

  /// A tensor made before this run is met: counts its storage once, as an allocation with a label.
  void meet(const at::Tensor& tensor);

  record::internal::Producer producer;
  at::Tensor generator_state;       ///< Of the default generator, to be restored.
  c10::impl::IncludeDispatchKeyGuard intercept;

  struct Existing {
    c10::Storage storage;           ///< Kept alive: its address is its identity.
    record::internal::AllocationTag tag;
  };
  std::unordered_map<const c10::StorageImpl*, Existing> existing;
  struct Leaf {
    at::Tensor tensor, grad;        ///< As they were when met.
  };
  std::unordered_map<const c10::TensorImpl*, Leaf> leaves;  ///< Whose gradients must not stay fake.
};

namespace internal {
/// Registers the fallback of DispatchKey::Fake, once, for good.
void install_fallback();
}  // namespace internal
}  // namespace cinch::dryrun
