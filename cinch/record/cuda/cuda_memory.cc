#include "cinch/record/cuda/cuda_memory.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <utility>

namespace cinch::record::cuda {

void start_history(std::size_t max_events) {
  at::globalContext().lazyInitDevice(at::kCUDA);  // Observers are kept by device: the devices have to be there.
  torch::cuda::_record_memory_history("all", "all", "all", max_events);
}

void on_out_of_memory(std::function<void()> observer) {
  c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(
      [observer = std::move(observer)](auto&&...) { observer(); });
}

std::string snapshot() { return torch::cuda::_memory_snapshot_pickled(); }
}  // namespace cinch::record::cuda
