// c10's CPU allocator, replaced: the same posix_memalign(64) as c10's own, with a tag in front of the data.
//
// The DataPtr's context must equal its data and raw_deleter() must be set, or oneDNN's GELU aborts the process
// (c10/core/Allocator.h, "raw_allocate").
#include "cinch/record/internal/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "cinch/core/error.h"
#include "cinch/record/listener.h"

namespace cinch::record {
namespace {

// Kernels rely on 64-byte alignment for speed, and for the same result from run to run.
constexpr std::size_t kAlignment = 64;
static_assert(sizeof(AllocationTag) <= kAlignment);

AllocationTag* tag_before(void* data) {
  return std::launder(reinterpret_cast<AllocationTag*>(static_cast<char*>(data) - kAlignment));
}

void release(void* data) {
  if (data == nullptr) return;
  auto* tag = tag_before(data);
  tell_freed(*tag);
  std::free(tag);
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    if (bytes > static_cast<std::size_t>(INT64_MAX) - kAlignment)
      throw Error("a tensor of " + std::to_string(bytes) + " bytes was asked for", "look for a negative size");
    AllocationTag tag;
    tell_allocated(Bytes(static_cast<std::int64_t>(bytes)), tag);
    void* memory = nullptr;
    if (posix_memalign(&memory, kAlignment, bytes + kAlignment) != 0) {
      tell_freed(tag);
      throw Error("the system has no " + std::to_string(bytes) + " bytes left for a tensor",
                  "lower the budget below the machine's free memory");
    }
    new (memory) AllocationTag(tag);
    void* data = static_cast<char*>(memory) + kAlignment;
    return {data, data, &release, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }
};

std::atomic<void (*)(void*)> g_fake_deleter{nullptr};
}  // namespace

void internal::install_cpu_allocator() {
  static const bool installed = [] {
    static auto* allocator = new CpuAllocator;  // tensors may outlive every static
    c10::SetCPUAllocator(allocator, /*priority=*/255);
    return true;
  }();
  (void)installed;
}

void set_fake_deleter(void (*deleter)(void*)) noexcept { g_fake_deleter = deleter; }

AllocationTag* tag_of(const void* context, void (*deleter)(void*)) noexcept {
  if (context == nullptr || deleter == nullptr) return nullptr;
  if (deleter == &release) return tag_before(const_cast<void*>(context));
  if (deleter == g_fake_deleter.load(std::memory_order_relaxed))
    return static_cast<AllocationTag*>(const_cast<void*>(context));
  return nullptr;
}
}  // namespace cinch::record
