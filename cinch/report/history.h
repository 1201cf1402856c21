#pragma once
// A whole classified trace as the page draws it: every event, and every tensor of the peak.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/plan/solver.h"
#include "cinch/trace/event.h"
#include "cinch/trace/trace.h"

namespace cinch::report {

/// Live bytes over all events, without loss: a step is like the one before it, so each event is the number of its kind.
struct History {
  /// What events can have in common.
  struct Kind {
    Bytes change;  ///< Of what lives; 0 for marks and the like.
    trace::Category category = trace::Category::kUnknown;
    bool recompute = false;
    std::uint32_t module = 0, op = 0;  ///< Of `names`: where the program was.
    friend bool operator==(const Kind&, const Kind&) = default;
  };
  /// Events of equal step and phase, up to the next run.
  struct Run {
    std::size_t begin;
    std::uint32_t step;
    trace::Phase phase;
    friend bool operator==(const Run&, const Run&) = default;
  };
  trace::CategoryBytes before;            ///< Live before the first event.
  std::vector<std::string> names{""};     ///< Each once; the first is "".
  std::vector<Kind> kinds;                ///< In order of appearance.
  std::vector<std::uint32_t> events;      ///< Of `kinds`, by position in the trace.
  std::vector<Run> runs;                  ///< In order.
  std::vector<plan::PeakTensor> tensors;  ///< All that live at the first highest event, largest first.
};

/// Traces beyond it get no history: a page would take too long to open.
inline constexpr std::size_t kMostEvents = 4'000'000;

/// Empty if the trace has no events or more than kMostEvents. O(events).
History history(const trace::Trace& trace);
}  // namespace cinch::report
