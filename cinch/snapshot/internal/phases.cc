#include "cinch/snapshot/internal/phases.h"

#include <algorithm>

namespace cinch::snapshot::internal {

std::int64_t time_us_of(const trace::Event& event, std::size_t position) {
  return event.time_ns >= 0 ? event.time_ns / 1000 : static_cast<std::int64_t>(position);
}

std::vector<PhaseRun> phases_of(const trace::Trace& trace) {
  std::vector<PhaseRun> runs;
  const auto events = trace.events();
  for (std::size_t i = 0; i < events.size(); ++i) {
    const trace::Event& event = events[i];
    const std::int64_t time_us = time_us_of(event, i);
    const bool same = i > 0 && events[i - 1].step == event.step && events[i - 1].phase == event.phase;
    if (!runs.empty()) runs.back().end_us = std::max(runs.back().begin_us, time_us);
    if (same) continue;
    PhaseRun& run = runs.emplace_back();
    if (event.step > 0) run.name = "step " + std::to_string(event.step) + " ";
    run.name += trace::name_of(event.phase);
    run.begin_us = run.end_us = time_us;
  }
  return runs;
}
}  // namespace cinch::snapshot::internal
