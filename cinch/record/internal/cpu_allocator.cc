// c10's CPU allocator, replaced: the same posix_memalign(64) as c10's own, with a tag in front of the data.
//
// The DataPtr's context must equal its data and raw_deleter() must be set, or oneDNN's GELU aborts the process
// (c10/core/Allocator.h, "raw_allocate").
#include "cinch/record/internal/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "cinch/core/error.h"
#include "cinch/record/internal/arena_hooks.h"
#include "cinch/record/internal/step_plan.h"
#include "cinch/record/listener.h"

namespace cinch::record {
namespace {

/// In front of a tensor's data.
struct Header {
  AllocationTag tag;
  internal::Ticket ticket;
  std::size_t bytes = 0;
};
// Kernels rely on 64-byte alignment for speed, and for the same result from run to run.
using internal::kAlignment;
static_assert(sizeof(Header) <= kAlignment);

Header* header_of(void* data) { return std::launder(reinterpret_cast<Header*>(static_cast<char*>(data) - kAlignment)); }

std::int64_t held_by(void* block) { return static_cast<std::int64_t>(::malloc_usable_size(block)); }

void release(void* data) {
  if (data == nullptr) return;
  auto* header = header_of(data);
  tell_freed(header->tag);
  const internal::Ticket ticket = header->ticket;
  const auto bytes = static_cast<std::int64_t>(header->bytes);
  if (internal::take_back(header, ticket)) return;
  internal::count_heap(-bytes, -held_by(header));
  std::free(header);
}

class CpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    if (bytes > static_cast<std::size_t>(INT64_MAX) - kAlignment)
      throw Error("a tensor of " + std::to_string(bytes) + " bytes was asked for", "look for a negative size");
    AllocationTag tag;
    tell_allocated(Bytes(static_cast<std::int64_t>(bytes)), tag, /*real=*/true);
    internal::Ticket ticket;
    void* memory = internal::serve(bytes, ticket);
    if (memory == nullptr) {
      if (posix_memalign(&memory, kAlignment, bytes + kAlignment) != 0) {
        tell_freed(tag);
        throw Error("the system has no " + std::to_string(bytes) + " bytes left for a tensor",
                    "lower the budget below the machine's free memory");
      }
      internal::count_heap(static_cast<std::int64_t>(bytes), held_by(memory));
    }
    new (memory) Header{tag, ticket, bytes};
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
  if (deleter == &release) return &header_of(const_cast<void*>(context))->tag;
  if (deleter == g_fake_deleter.load(std::memory_order_relaxed))
    return static_cast<AllocationTag*>(const_cast<void*>(context));
  return nullptr;
}
}  // namespace cinch::record
