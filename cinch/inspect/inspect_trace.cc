#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "cinch/inspect/inspect.h"
#include "cinch/inspect/internal/findings.h"
#include "cinch/inspect/internal/live_builder.h"
#include "cinch/inspect/internal/out_of_memory.h"
#include "cinch/inspect/internal/remedies.h"

namespace cinch::inspect {
namespace {

/// The first kinds are the categories, in their order.
Kind kind_of(trace::Category category) { return static_cast<Kind>(category); }

CallPath path_of(const trace::Trace& trace, const trace::Allocation& allocation) {
  CallPath path{std::string(trace.op_name(allocation.op)), {}};
  const auto place = trace.name(allocation.name != trace::NameId{} ? allocation.name : allocation.module);
  if (!place.empty()) path.frames.emplace_back(place);
  return path;
}

/// What lives after an event. A place is an allocation that stands for those of its name, module and op.
Live live_after(const trace::Trace& trace, const trace::Timeline& timeline, std::size_t event, std::size_t paths) {
  internal::LiveBuilder builder;
  std::map<std::tuple<trace::NameId, trace::NameId, std::string_view>, std::uint32_t> places;
  for (const trace::AllocationId id : timeline.live_allocations(event)) {
    const trace::Allocation& allocation = trace.allocation(id);
    const auto place = places.emplace(std::tuple(allocation.name, allocation.module, trace.op_name(allocation.op)),
                                      static_cast<std::uint32_t>(id));
    builder.add(place.first->second, kind_of(allocation.category), allocation.bytes,
                allocation.allocated_at == trace::kBeforeTrace);
  }
  Live live =
      builder.take([&](std::uint32_t id) { return path_of(trace, trace.allocation(trace::AllocationId{id})); }, paths);
  live.event = event;
  if (event >= trace.events().size()) return live;
  const trace::Event& at = trace.events()[event];
  live.phase = at.phase;
  live.step = at.step;
  if (at.allocation != trace::kNoAllocation) live.where = to_string(path_of(trace, trace.allocation(at.allocation)));
  return live;
}

std::vector<CurvePoint> curve_of(const trace::Trace& trace, std::size_t points) {
  std::vector<CurvePoint> curve;
  trace::CategoryBytes live;
  Bytes sum, highest(-1);
  const std::size_t stretch = std::max<std::size_t>(trace.events().size() / std::max<std::size_t>(points, 1), 1);
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const trace::Event& event = trace.events()[i];
    const bool made = event.action == trace::Action::kAlloc, gone = event.action == trace::Action::kFreeCompleted;
    if ((made || gone) && event.allocation != trace::kNoAllocation) {
      const trace::Allocation& allocation = trace.allocation(event.allocation);
      const Bytes change = made ? allocation.bytes : Bytes(0) - allocation.bytes;
      live[allocation.category] += change;
      sum += change;
    }
    if (i % stretch == 0) {
      highest = Bytes(-1);
      curve.emplace_back();
    }
    if (sum <= highest) continue;
    highest = sum;
    curve.back() = {i, event.phase, event.step, live, Bytes(0)};
  }
  return curve;
}

/// Where tensors alone pass the capacity: on a CPU nothing else counts.
std::optional<OutOfMemory> over(const trace::Trace& trace, const trace::Timeline& timeline, Bytes capacity,
                                std::size_t paths) {
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const trace::Event& event = trace.events()[i];
    if (event.action != trace::Action::kAlloc || timeline.live(i) <= capacity) continue;
    OutOfMemory oom;
    oom.capacity = capacity;
    oom.event = i;
    oom.asked = event.bytes;
    oom.short_by = timeline.live(i) - capacity;
    oom.free = std::max(capacity - (timeline.live(i) - event.bytes), Bytes(0));
    oom.live = live_after(trace, timeline, i, paths);
    oom.why = "Tensors alone are more.";
    std::vector<internal::Moments::Allocation> live;
    for (const trace::AllocationId id : timeline.live_allocations(i)) {
      if (id != event.allocation) live.push_back({id, trace.allocation(id).bytes, {}, false, 0});
    }
    for (const auto& allocation : internal::smallest_set(std::move(live), oom.short_by)) {
      const trace::Allocation& what = trace.allocation(allocation.id);
      oom.make_room.push_back({what.bytes, kind_of(what.category), to_string(path_of(trace, what))});
    }
    return oom;
  }
  return std::nullopt;
}
}  // namespace

Inspection inspect(const trace::Trace& trace, const Options& options) {
  const trace::Timeline timeline(trace);
  Inspection result;
  result.device = -1;
  result.device_name = trace.header().device_name;
  result.events = trace.events().size();
  result.left_out = trace.left_out();
  for (const trace::Event& event : trace.events()) {
    if (event.phase == trace::Phase::kOptimizer) result.optimizer_steps = std::max(result.optimizer_steps, event.step);
  }
  const std::size_t last = trace.events().empty() ? 0 : trace.events().size() - 1;
  result.peak = live_after(trace, timeline, timeline.peak().event, options.paths);
  result.end = live_after(trace, timeline, last, options.paths);
  result.best_possible = result.peak.bytes;
  result.curve = curve_of(trace, options.curve_points);
  result.leaks = find_leaks(trace, options.capacity);
  if (options.capacity) {
    result.oom = over(trace, timeline, *options.capacity, options.paths);
    if (result.oom) {
      OutOfMemory& oom = *result.oom;
      oom.short_at_peak = std::max(result.peak.bytes - oom.capacity, Bytes(0));
      Bytes room;
      for (const Tensor& tensor : oom.make_room) room += tensor.bytes;
      if (room < oom.short_at_peak) oom.make_room.clear();
      internal::describe(result, oom);
      const bool trains = std::any_of(trace.events().begin(), trace.events().end(), [](const trace::Event& event) {
        return event.phase == trace::Phase::kBackward || event.phase == trace::Phase::kOptimizer;
      });
      internal::Reductions reductions([&](trace::AllocationId id) { return kind_of(trace.allocation(id).category); },
                                      trace.events().size(), trains, result.leaks.bytes_per_step);
      trace.replay(reductions);
      internal::advise(result, oom, reductions);
    } else {
      result.fits_capacity = options.capacity;
    }
  }
  result.findings = internal::findings(result);
  return result;
}
}  // namespace cinch::inspect
