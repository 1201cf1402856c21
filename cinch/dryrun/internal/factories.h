#pragma once
// Ops of a dry run that are no kernels on tensors: factories, and those that read values.

#include <torch/library.h>

#include "cinch/dryrun/internal/state.h"

namespace cinch::dryrun::internal {

/// Small enough to compute for real on the CPU: scalars, lists a program writes down, generator states.
inline constexpr std::int64_t kSmall = 8192;  // Bytes.

/// Of a real tensor that was made in this run.
void tell_shape(DryRun::State& state, const at::Tensor& tensor);

/// The dry run in force. Throws UsageError if there is none.
DryRun::State& require_active();

/// For DispatchKey::Fake of aten.
void register_factories(torch::Library& aten);
void register_set(torch::Library& aten);  ///< set_(), in set_storage.cc.
}  // namespace cinch::dryrun::internal
