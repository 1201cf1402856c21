#include "cinch/record/listener.h"

#include "cinch/record/internal/cpu_allocator.h"

#include <atomic>

namespace cinch::record {
namespace {
std::mutex g_lock;
std::atomic<Listener*> g_listener{nullptr};
std::atomic<std::uint64_t> g_serials{0};
thread_local int t_muted = 0;
}  // namespace

Listener::Listener() : serial_(++g_serials) {}

Listener* exchange_listener(Listener* listener) {
  internal::install_cpu_allocator();
  std::lock_guard lock(g_lock);
  return g_listener.exchange(listener);
}

void tell_allocated(Bytes bytes, AllocationTag& tag, bool real) {
  if (t_muted > 0 || g_listener.load(std::memory_order_relaxed) == nullptr) return;
  std::lock_guard lock(g_lock);
  auto* listener = g_listener.load(std::memory_order_relaxed);
  if (listener != nullptr && (listener->hears_real_memory || !real)) {
    tag.bytes = bytes.count();
    listener->on_allocate(bytes, tag);
    tag.listener = listener->serial();
  }
}

void tell_freed(const AllocationTag& tag) noexcept {
  if (tag.listener == 0) return;
  std::lock_guard lock(g_lock);
  auto* listener = g_listener.load(std::memory_order_relaxed);
  if (listener != nullptr && listener->serial() == tag.listener) listener->on_free(tag);
}

std::unique_lock<std::mutex> lock_listeners() { return std::unique_lock(g_lock); }

void change_muted(int by) noexcept { t_muted += by; }
}  // namespace cinch::record
