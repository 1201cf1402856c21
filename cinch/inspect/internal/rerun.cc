#include "cinch/inspect/internal/rerun.h"

#include <variant>

namespace cinch::inspect::internal {

using trace::Action;

void Rerun::on_event(const trace::Event& event) {
  if (event.before) return adopt(event);
  const std::size_t at = events_++;
  if (failed_at_) return;
  if (event.action == Action::kAlloc || event.action == Action::kOom) {
    allocate(event, at);
  } else if (event.action == Action::kFreeCompleted) {
    const auto found = live_.find(static_cast<std::uint32_t>(event.allocation));
    if (found == live_.end()) return;
    if (pending_.erase(found->first) > 0) {
      allocator_.complete(found->second);
    } else {
      allocator_.free(found->second);
    }
    live_.erase(found);
  }
}

/// A recording can contradict itself: an allocation that it says was there, and that is not in its segments, has no
/// block to free.
void Rerun::adopt(const trace::Event& event) {
  if (event.action != Action::kAlloc) return;
  const auto block = restored_.find(event.address);
  if (block == restored_.end()) return;
  const auto id = static_cast<std::uint32_t>(event.allocation);
  live_[id] = event.address;
  if (block->second == trace::Block::State::kActivePendingFree) pending_.insert(id);
  restored_.erase(block);
}

void Rerun::allocate(const trace::Event& event, std::size_t at) {
  if (event.bytes <= Bytes(0)) return;
  const auto result = allocator_.allocate(event.bytes, event.stream, event.pool);
  if (std::holds_alternative<allocator::OutOfMemory>(result)) {
    failed_at_ = at;
    return;
  }
  const std::uint64_t address = std::get<trace::Block>(result).address;
  if (event.action == Action::kAlloc) {
    live_[static_cast<std::uint32_t>(event.allocation)] = address;
  } else {
    allocator_.free(address);
  }
}

std::unordered_map<std::uint64_t, trace::AllocationId> Rerun::by_address() const {
  std::unordered_map<std::uint64_t, trace::AllocationId> result;
  for (const auto& [id, address] : live_) result[address] = trace::AllocationId{id};
  return result;
}
}  // namespace cinch::inspect::internal
