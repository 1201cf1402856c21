#pragma once
// What is asked of LibTorch's CUDA allocator.

#include <cstddef>
#include <functional>
#include <string>

namespace cinch::record::cuda {

/// Initializes CUDA, and has the allocator keep its last `max_events` events with call stacks. Throws c10::Error.
void start_history(std::size_t max_events);
/// Calls `observer` whenever an allocation fails, on the thread that asked, with the allocator unlocked; for good.
void on_out_of_memory(std::function<void()> observer);
/// A snapshot, pickled as torch.cuda.memory._snapshot() would be.
std::string snapshot();
}  // namespace cinch::record::cuda
