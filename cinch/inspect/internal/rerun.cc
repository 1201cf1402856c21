#include "cinch/inspect/internal/rerun.h"

#include <utility>
#include <variant>

namespace cinch::inspect::internal {

using trace::Action;

void Rerun::on_event(const trace::Event& event) {
  const std::size_t at = event.before ? 0 : events_++;
  if (failure_ || served_) return;
  if (event.action == Action::kAlloc || event.action == Action::kOom) {
    const bool done = allocate(event);
    if (failure_) failure_->event = at;
    served_ = done && event.action == Action::kOom;
  } else if (event.action == Action::kFreeCompleted) {
    const auto found = live_.find(static_cast<std::uint32_t>(event.allocation));
    if (found == live_.end()) return;
    allocator_.free(found->second);
    live_.erase(found);
  }
}

bool Rerun::allocate(const trace::Event& event) {
  if (event.bytes <= Bytes(0)) return true;
  auto result = allocator_.allocate(event.bytes, event.stream, event.pool);
  if (const auto* why = std::get_if<allocator::OutOfMemory>(&result)) {
    failure_ = Failure{0, event.bytes, *why};
    return false;
  }
  if (event.action == Action::kAlloc) {
    live_[static_cast<std::uint32_t>(event.allocation)] = std::get<trace::Block>(result).address;
  }
  return true;
}

std::unordered_map<std::uint64_t, trace::AllocationId> Rerun::by_address() const {
  std::unordered_map<std::uint64_t, trace::AllocationId> result;
  for (const auto& [id, address] : live_) result[address] = trace::AllocationId{id};
  return result;
}
}  // namespace cinch::inspect::internal
