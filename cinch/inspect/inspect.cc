#include "cinch/inspect/inspect.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "cinch/allocator/replay.h"
#include "cinch/core/text.h"
#include "cinch/inspect/internal/findings.h"
#include "cinch/inspect/internal/leaked.h"
#include "cinch/inspect/internal/live_builder.h"
#include "cinch/inspect/internal/out_of_memory.h"
#include "cinch/inspect/internal/passes.h"
#include "cinch/inspect/internal/remedies.h"
#include "cinch/inspect/words.h"

namespace cinch::inspect {
namespace {

using internal::LiveBuilder;
using internal::Meter;
using internal::Moments;

/// Whose thread it was: the library keeps one for each.
std::string threads_of(const Live& live, Kind kind) {
  bool main = false, autograd = false;
  for (const Live::Path& path : live.paths) {
    if (path.kind != kind) continue;
    (path.path.op.find("Backward") != std::string::npos ? autograd : main) = true;
  }
  return main && autograd ? "(main, autograd thread)" : autograd ? "(autograd thread)" : "";
}

void add_notes(Live& live) {
  const auto parameters = std::find_if(live.kinds.begin(), live.kinds.end(),
                                       [](const Live::OfKind& row) { return row.kind == Kind::kParameter; });
  for (Live::OfKind& row : live.kinds) {
    if (row.kind == Kind::kCublasWorkspace) row.note = threads_of(live, row.kind);
    if (row.kind == Kind::kParameter && row.before == row.bytes) row.note = "(before the recording)";
    const bool gradients = row.kind == Kind::kGradient && live.phase == trace::Phase::kBackward;
    if (!gradients || parameters == live.kinds.end() || row.tensors >= parameters->tensors) continue;
    row.note = "of " + with_thousands(static_cast<std::int64_t>(parameters->tensors));
    const Bytes to_come = parameters->bytes - row.bytes;
    if (to_come > Bytes(0)) row.note += "; " + size_words(to_come) + " still to come";
  }
}

/// What turns the ids of one recording into words.
struct Words {
  const snapshot::Snapshot& snapshot;
  const snapshot::Device& device;
  const Kinds& kinds;
  std::size_t paths;

  Live live(std::size_t event, const Moments::Moment& moment) const {
    LiveBuilder builder;
    for (const Moments::Allocation& allocation : moment.live) {
      builder.add(static_cast<std::uint32_t>(allocation.stack), kinds.of[static_cast<std::size_t>(allocation.id)],
                  allocation.bytes, allocation.before);
    }
    const auto path_of = [&](std::uint32_t stack) { return call_path(snapshot.stacks(), trace::StackId{stack}); };
    Live live = builder.take(path_of, paths);
    const PhaseRun& run = kinds.phase_at(event);
    live.event = device.first_event + event;
    live.phase = run.phase;
    live.step = run.step;
    if (moment.stack != trace::StackId{}) live.where = to_string(path_of(static_cast<std::uint32_t>(moment.stack)));
    add_notes(live);
    return live;
  }
};

/// Says who holds the segments in part free.
void name_holders(Fragmentation& parts, const Words& words) {
  for (PinnedSegment& segment : parts.pinned) {
    for (PinnedSegment::Holder& holder : segment.holders) {
      if (holder.stack != trace::StackId{}) holder.path = to_string(call_path(words.snapshot.stacks(), holder.stack));
    }
  }
}

bool has_phase(const Kinds& kinds, std::initializer_list<trace::Phase> phases) {
  return std::any_of(kinds.phases.begin(), kinds.phases.end(), [&](const PhaseRun& run) {
    return std::find(phases.begin(), phases.end(), run.phase) != phases.end();
  });
}

void add_failure(Inspection& result, const internal::Failure& failure, const Words& words,
                 const allocator::Settings& settings, const Moments::Moment& moment) {
  OutOfMemory oom;
  oom.live = words.live(failure.event, moment);
  if (!moment.segments.empty()) oom.waste = fragmentation(moment.segments, settings, moment.stream);
  internal::explain(oom, failure, words.snapshot, words.device, settings, moment, words.kinds);
  name_holders(oom.waste, words);
  // Of what a recording that ended in the failure would have gone on to need nothing is known.
  if (!oom.recorded) oom.short_at_peak = std::max(result.peak.bytes - oom.capacity, Bytes(0));
  Bytes room;
  for (const Tensor& tensor : oom.make_room) room += tensor.bytes;
  if (room < oom.short_at_peak) oom.make_room.clear();
  internal::describe(result, oom);
  if (!oom.any_setting_helps) {
    const auto kind_of = [&](trace::AllocationId id) { return words.kinds.of[static_cast<std::size_t>(id)]; };
    internal::Reductions reductions(kind_of, oom.recorded ? failure.event : words.device.events,
                                    has_phase(words.kinds, {trace::Phase::kBackward, trace::Phase::kOptimizer}),
                                    result.leaks.bytes_per_step);
    words.snapshot.play(words.device, reductions);
    internal::advise(result, oom, reductions);
  }
  result.oom = std::move(oom);
}

/// Of a program that trains a pattern is within a step, where it is the model's layers that repeat: of whole steps
/// there are too few.
void add_leaks(Inspection& result, Leaks leaks, const Kinds& kinds) {
  result.leaks = std::move(leaks);
  if (result.leaks.source != PeriodSource::kPattern) return;
  const bool trains = has_phase(kinds, {trace::Phase::kBackward, trace::Phase::kOptimizer});
  if (!trains && !has_phase(kinds, {trace::Phase::kForward})) return;
  if (!trains) result.growing = std::move(result.leaks.found);
  result.leaks = {};
}

/// The windows of the curve are of the recording.
std::vector<CurvePoint> shifted(std::vector<CurvePoint> curve, std::size_t by) {
  for (CurvePoint& point : curve) point.event += by;
  return curve;
}
}  // namespace

Inspection inspect(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Options& options) {
  const allocator::Settings settings = allocator::recorded_settings(snapshot.settings());
  Kinds kinds = categorize(snapshot, device);
  Inspection result;
  add_leaks(result, find_leaks(snapshot, device, kinds, options.capacity), kinds);
  internal::mark_leaked(snapshot, device, result.leaks, kinds);
  Meter meter(&kinds, device.events, options.curve_points, options.capacity);
  snapshot.play(device, meter);
  Meter::Totals totals = meter.take();

  result.device = device.index;
  result.device_name = "GPU " + std::to_string(device.index);
  result.events = totals.events;
  result.first_event = device.first_event;
  result.left_out = device.left_out;
  result.has_history = totals.events > 0 || device.first_event > 0;
  result.alloc_conf = snapshot.settings().alloc_conf;
  result.optimizer = kinds.optimizer;
  result.optimizer_steps = kinds.optimizer_steps;
  result.has_segments = true;
  result.peak_reserved = totals.peak_reserved;
  result.peak_reserved_event = device.first_event + totals.peak_reserved_event;
  result.best_possible = totals.rounded_peak;
  result.curve = shifted(std::move(totals.curve), device.first_event);

  const auto failure =
      result.has_history ? internal::find_failure(snapshot, device, settings, totals, options.capacity, result.retries)
                         : std::nullopt;
  const std::size_t last = totals.events > 0 ? totals.events - 1 : 0;
  std::vector<std::size_t> wanted = {totals.peak_event, last};
  if (failure) wanted.push_back(failure->event);
  internal::Layout layout(device.start, settings);
  Moments moments(std::move(wanted), &layout);
  snapshot.play(device, moments);
  moments.finish();

  const Words words{snapshot, device, kinds, options.paths};
  result.peak = words.live(totals.peak_event, moments.at(totals.peak_event));
  result.at_peak = fragmentation(moments.at(totals.peak_event).segments, settings);
  result.end = words.live(last, moments.at(last));
  result.at_end = fragmentation(device.end, settings);
  name_holders(result.at_peak, words);
  name_holders(result.at_end, words);
  if (failure) {
    add_failure(result, *failure, words, settings, moments.at(failure->event));
  } else if (result.has_history) {
    result.fits_capacity = options.capacity;
  }
  result.findings = internal::findings(result);
  return result;
}
}  // namespace cinch::inspect
