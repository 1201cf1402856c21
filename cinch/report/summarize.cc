#include "cinch/report/summarize.h"

#include <algorithm>
#include <map>

namespace cinch::report {
namespace {

using trace::Action;

bool same_run(const trace::Event& left, const trace::Event& right) {
  return left.step == right.step && left.phase == right.phase;
}

std::size_t runs_in(std::span<const trace::Event> events) {
  std::size_t runs = events.empty() ? 0 : 1;
  for (std::size_t i = 1; i < events.size(); ++i) runs += same_run(events[i - 1], events[i]) ? 0 : 1;
  return runs;
}
}  // namespace

PeakSummary summarize_peak(const trace::Trace& trace, std::size_t tensors) {
  const trace::Timeline timeline(trace);
  const trace::Timeline::Peak peak = timeline.peak();
  PeakSummary summary;
  summary.requested = peak.bytes;
  summary.step = peak.step;
  summary.phase = peak.phase;
  summary.module = trace.name(peak.module);
  summary.op = trace.op_name(peak.op);
  if (trace.events().empty()) return summary;
  summary.categories = timeline.live_by_category(peak.event);
  summary.tensors = plan::peak_tensors(trace, tensors);
  std::map<std::uint32_t, Bytes> steps;  // One pass: a recording may have thousands.
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    Bytes& highest = steps[trace.events()[i].step];
    highest = std::max(highest, timeline.live(i));
  }
  summary.steps.assign(steps.begin(), steps.end());
  return summary;
}

Curve thin(const trace::Trace& trace, std::size_t points) {
  const auto events = trace.events();
  Curve curve;
  if (events.empty() || points == 0) return curve;
  // A stretch ends with its phase as long as there are few phases: each then has a point of its own.
  const std::size_t runs = runs_in(events);
  const bool by_phase = runs <= points / 2;
  const std::size_t room = by_phase ? points - runs : points;
  const std::size_t stretch = (events.size() + room - 1) / room;

  trace::CategoryBytes live;
  for (const trace::Allocation& allocation : trace.allocations()) {
    if (allocation.allocated_at == trace::kBeforeTrace) live[allocation.category] += allocation.bytes;
  }
  Bytes total = live.sum(), highest;
  std::size_t length = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const trace::Event& event = events[i];
    if (event.action == Action::kAlloc || event.action == Action::kFreeCompleted) {
      const trace::Allocation& allocation = trace.allocation(event.allocation);
      const Bytes change = event.action == Action::kAlloc ? allocation.bytes : Bytes() - allocation.bytes;
      live[allocation.category] += change;
      total += change;
    }
    const bool begins = length == 0 || length == stretch || (by_phase && !same_run(events[i - 1], event));
    if (begins) length = 0;
    if (begins || total > highest) {
      if (begins) curve.points.emplace_back();
      curve.points.back() = {event.step, event.phase, live, i};
      highest = total;
    }
    ++length;
    curve.peak = std::max(curve.peak, total);
  }
  return curve;
}
}  // namespace cinch::report
