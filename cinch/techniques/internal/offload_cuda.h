#pragma once
// How storages leave a CUDA device: by a function of a library of its own, since it needs libtorch_cuda.

#include <memory>

#include <ATen/core/Tensor.h>

#include "cinch/techniques/internal/moved_storages.h"

namespace cinch::techniques::internal {

using CudaSend = std::unique_ptr<Away> (*)(const at::Tensor& flat);
void set_cuda_send(CudaSend send) noexcept;
}  // namespace cinch::techniques::internal
