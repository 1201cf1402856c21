#include "cinch/record/cuda/record_on_oom.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <string>

#include "cinch/core/atomic_file.h"
#include "cinch/record/cuda/cuda_memory.h"

namespace cinch {
namespace {
std::mutex g_lock;  // One snapshot at a time.
std::filesystem::path g_file;

void write_snapshot() noexcept {
  try {
    const std::lock_guard lock(g_lock);
    AtomicFile file(g_file);
    file.write(record::cuda::snapshot());
    file.commit();
  } catch (const std::exception& error) {
    TORCH_WARN("cinch could not write a snapshot of CUDA's memory: ", error.what());
  }
}
}  // namespace

void record_on_oom(const std::filesystem::path& file, std::size_t max_events) {
  try {
    record::cuda::start_history(max_events);
  } catch (const c10::Error& error) {
    throw UnsupportedError(std::string("CUDA's memory cannot be recorded: ") + error.what_without_backtrace(),
                           "It takes a GPU, its driver, and a LibTorch with CUDA.");
  }
  const std::lock_guard lock(g_lock);
  const bool first = g_file.empty();
  g_file = std::filesystem::absolute(file);  // The program may change its folder.
  if (first) record::cuda::on_out_of_memory(&write_snapshot);
}
}  // namespace cinch
