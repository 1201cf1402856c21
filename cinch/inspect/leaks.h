#pragma once
// What a program keeps more of with every step.
//
//   const Leaks leaks = find_leaks(snapshot, device, categorize(snapshot, device), 24_GiB);
//   for (const Leak& leak : leaks.found) …   // leak.bytes_per_step, leak.path
//
// A leak is a call path (a stack; where there are none, module and op) of which allocations of at least three periods
// live on at the end and keep coming, or one that replaces what it holds by something larger again and again. What only
// appears while a program warms up, is replaced, swings, or is kept for a fixed number of steps is none.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cinch/inspect/categories.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/event.h"
#include "cinch/trace/sink.h"
#include "cinch/trace/trace.h"

namespace cinch::inspect {

/// How the recording was cut into periods, which are training steps where the recording says so.
enum class PeriodSource {
  kNone,       ///< No period found: nothing can be said.
  kSteps,      ///< Steps that a trace of cinch's own counts.
  kOptimizer,  ///< Optimizer steps, by annotations or stacks.
  kForward,    ///< Forward passes, by stacks: where the optimizer is not seen.
  kPattern     ///< An allocation that comes back regularly.
};

/// One call path that grows.
struct Leak {
  enum class Kind {
    kKept,    ///< Every period leaves allocations behind.
    kGrowing  ///< An allocation is replaced by a larger one.
  };
  Kind kind = Kind::kKept;
  trace::StackId stack{};
  std::string path;                           ///< For people: of the stack, or module and op.
  trace::Phase phase = trace::Phase::kOther;  ///< That it is allocated in; kOther in a snapshot.
  Bytes bytes_per_step;                       ///< Of a typical period; where not each has some: on average.
  double allocations_per_step = 0;            ///< 0 for kGrowing.
  Bytes held;                                 ///< By the end of the last period, since it began to grow.
  std::size_t periods = 0;                    ///< That added to it.
};

struct Leaks {
  PeriodSource source = PeriodSource::kNone;
  std::size_t periods = 0;  ///< Complete ones, and what came before the first.
  std::vector<Leak> found;  ///< Most bytes a step first.
  Bytes bytes_per_step;     ///< Of all together.
  Bytes peak_of_last;       ///< Most live bytes in the last complete period.
  std::optional<Bytes> capacity;
  /// Periods after the last complete one until live bytes alone pass `capacity`; 0: they did. None if nothing leaks.
  std::optional<std::uint64_t> steps_until_full;
  /// Many call paths leave tensors of the same periods: what a loss leaves that is kept with its graph.
  bool graph_kept = false;
};

struct LeakOptions {
  /// What `boundaries` are.
  PeriodSource source = PeriodSource::kOptimizer;
  /// Events (from 0, those with `before` set not counted) at which an optimizer step, or anything that comes once a
  /// step, begins; ascending. Fewer than three are not used: then steps that the trace counts, then a pattern.
  std::vector<std::size_t> boundaries{};
  std::optional<Bytes> capacity{};            ///< Of the card.
  const trace::StackTable* stacks = nullptr;  ///< Of the events, for Leak::path.
};

/// Plays a recording into a sink, the same each time it is called.
using Play = std::function<void(trace::Sink&)>;

/// Plays it once or, where a pattern must be found first, twice. Memory is bounded by what is live and by the number of
/// different call paths and sizes.
Leaks find_leaks(const Play& play, const LeakOptions& options = {});

/// Of one device's recording; `kinds` as categorize() gives them.
Leaks find_leaks(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Kinds& kinds,
                 std::optional<Bytes> capacity = {});
/// Of a trace of cinch's own.
Leaks find_leaks(const trace::Trace& trace, std::optional<Bytes> capacity = {});
}  // namespace cinch::inspect
