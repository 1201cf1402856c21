#pragma once
// A kernel's script as bytes, to be kept on disk (probe_cache.h), and back. The bytes may be anybody's: what is read is
// whole in itself, or refused.

#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "cinch/dryrun/internal/kernel_script.h"

namespace cinch::dryrun::internal {

/// Nothing if it would not come back the same: outputs other than tensors, lists of tensors and numbers, types that
/// cinch has no name for, memory that is none of the call's.
std::optional<std::string> to_bytes(const KernelScript& script);

/// Nothing if they are damaged: then nobody may play them. Of outputs and layouts tensors on the Meta device.
std::optional<KernelScript> from_bytes(std::string_view bytes);

/// Whether `script`, which from_bytes() gave, can be that of this call: outputs of the op's types, every tensor inside
/// the memory it is said to lie in.
bool answers(const KernelScript& script, const c10::OperatorHandle& op, const torch::jit::Stack& arguments);
}  // namespace cinch::dryrun::internal
