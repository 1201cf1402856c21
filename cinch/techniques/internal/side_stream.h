#pragma once
// Storages of a device with streams, moved to pinned host memory on a stream of their own.

#include <memory>

#include <ATen/core/Tensor.h>

#include "cinch/techniques/internal/moved_storages.h"

namespace cinch::techniques::internal {

/// The side stream waits for the stream that computes and is waited for by it; the host waits for neither.
std::unique_ptr<Away> send_on_side_stream(const at::Tensor& flat);
}  // namespace cinch::techniques::internal
