#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "cinch/trace/trace.h"

namespace cinch::trace {
namespace {
constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

// For each allocation that its graph or a checkpoint may keep: the event from which on, if it lives until then, it is
// kept for backward. kNever for all others.
std::vector<std::size_t> kept_from(const Trace& trace) {
  std::vector<std::size_t> from(trace.allocations().size(), kNever);
  std::unordered_map<std::uint32_t, std::size_t> backward;  // By step: its next kBackward event.
  std::size_t recomputation_end = trace.events().size();
  for (std::size_t i = trace.events().size(); i-- > 0;) {
    const Event& event = trace.events()[i];
    if (!event.recompute) recomputation_end = i;
    if (event.action == Action::kAlloc && event.recompute) {
      from[static_cast<std::size_t>(event.allocation)] = recomputation_end;
    } else if (event.action == Action::kAlloc && event.phase == Phase::kForward) {
      if (const auto next = backward.find(event.step); next != backward.end()) {
        from[static_cast<std::size_t>(event.allocation)] = next->second;
      }
    }
    if (event.phase == Phase::kBackward) backward[event.step] = i;
  }
  return from;
}
}  // namespace

void classify(Trace& trace) {
  const std::vector<std::size_t> from = kept_from(trace);
  for (std::size_t i = 0; i < trace.allocations_.size(); ++i) {
    Allocation& allocation = trace.allocations_[i];
    if (allocation.labelled) continue;
    // The event that begins backward may be the one that frees: the allocation was alive until then.
    const bool kept = from[i] != kNever && allocation.freed_at >= from[i];
    allocation.category = kept ? Category::kActivation : Category::kTemporary;
  }
}
}  // namespace cinch::trace
