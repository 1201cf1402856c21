#include <algorithm>

#include "cinch/trace/trace.h"

namespace cinch::trace {

Timeline::Timeline(const Trace& trace) : trace_(&trace) {
  Bytes live;
  live_.reserve(trace.events().size());
  for (const Event& event : trace.events()) {
    if (event.action == Action::kAlloc) live += event.bytes;
    if (event.action == Action::kFreeCompleted) live -= event.bytes;
    const std::size_t index = live_.size();
    live_.push_back(live);
    const auto [highest, first] = peak_event_.try_emplace(event.step, index);
    if (!first && live > live_[highest->second]) highest->second = index;
  }
}

Bytes Timeline::live(std::size_t event) const { return live_.empty() ? Bytes() : live_.at(event); }

Timeline::Peak Timeline::peak_at(std::size_t index) const {
  const Event& event = trace_->events()[index];
  return {.bytes = live_[index],
          .event = index,
          .step = event.step,
          .phase = event.phase,
          .module = event.module,
          .op = event.op};
}

Timeline::Peak Timeline::peak() const {
  if (live_.empty()) return {};
  return peak_at(static_cast<std::size_t>(std::max_element(live_.begin(), live_.end()) - live_.begin()));
}

Timeline::Peak Timeline::peak(std::uint32_t step) const {
  const auto highest = peak_event_.find(step);
  if (highest != peak_event_.end()) return peak_at(highest->second);
  Peak none;
  none.step = step;
  return none;
}

std::vector<AllocationId> Timeline::live_allocations(std::size_t event) const {
  std::vector<AllocationId> live;
  const auto allocations = trace_->allocations();
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    if (allocations[i].allocated_at <= event && event < allocations[i].freed_at) {
      live.push_back(AllocationId{static_cast<std::uint32_t>(i)});
    }
  }
  std::stable_sort(live.begin(), live.end(), [&](AllocationId left, AllocationId right) {
    return trace_->allocation(left).bytes > trace_->allocation(right).bytes;
  });
  return live;
}

CategoryBytes Timeline::live_by_category(std::size_t event) const {
  CategoryBytes sums;
  for (const Allocation& allocation : trace_->allocations()) {
    if (allocation.allocated_at <= event && event < allocation.freed_at) sums[allocation.category] += allocation.bytes;
  }
  return sums;
}

std::vector<PhaseEnd> phase_ends(const Trace& trace) {
  std::vector<PhaseEnd> ends;
  Bytes live;
  for (const Event& event : trace.events()) {
    if (event.action == Action::kAlloc) live += event.bytes;
    if (event.action == Action::kFreeCompleted) live -= event.bytes;
    if (ends.empty() || ends.back().step != event.step || ends.back().phase != event.phase) {
      ends.push_back({.step = event.step, .phase = event.phase, .live = live});
    }
    ends.back().live = live;
  }
  return ends;
}
}  // namespace cinch::trace
