#pragma once
// What a CPU kernel allocates, found by running it once on stand-ins and kept by signature: op, layouts, scalars, threads.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "cinch/dryrun/internal/kernel_script.h"

namespace cinch::dryrun::internal {

/// The kernel's script. `arguments` may be fake; where the result depends on values, stand-ins hold what makes it largest
/// (unknown_values.h), or real arguments' own values. Errors of the kernel pass through: those that a factorization of
/// zeros gives only if it fails on ones and on unit matrices too.
const KernelScript& probe(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
}  // namespace cinch::dryrun::internal
