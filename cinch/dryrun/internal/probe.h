#pragma once
// What a CPU kernel allocates, found by running it once on stand-ins and kept by signature: op, layouts, scalars,
// threads, settings. In memory, and on disk (probe_cache.h).

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "cinch/dryrun/internal/kernel_script.h"

namespace cinch::dryrun::internal {

/// The kernel's script. `arguments` may be fake; where the result depends on values, stand-ins hold what makes it
/// largest (unknown_values.h), or real arguments' own values. Errors of the kernel pass through: those that a
/// factorization of zeros gives only if it fails on ones and on unit matrices too.
const KernelScript& probe(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

/// Writes what was found since to the disk.
void save_probes() noexcept;

/// For tests: as a new process would begin.
void forget_probes();
/// Kernels that this process ran to know what they allocate.
std::size_t kernels_probed();
}  // namespace cinch::dryrun::internal
