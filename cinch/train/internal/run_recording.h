#pragma once
// The part of a run that a prediction speaks of, kept as a trace; of everything else a few numbers. Memory does not grow
// with the number of steps.

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "cinch/trace/sink.h"
#include "cinch/trace/trace.h"

namespace cinch::train {

/// Which events are kept. A prediction has initialization, steps 1 and 2, one evaluation, one save: so do these.
struct RecordingWindows {
  std::uint32_t last_step = 2;         ///< Of training; all up to here.
  std::uint32_t evaluation_step = 2;   ///< The evaluation after this step.
  std::uint32_t save_step = 2;         ///< The save after this step.
};

/// No step: an evaluation or save that is not kept.
inline constexpr std::uint32_t kNoStep = 0xffffffffu;

/// Keeps the events of the windows, evaluation and save as if they came after `last_step`, and the free of whatever was
/// made in them. Numbers allocations anew. Throughout: live bytes, the peak, and when it was.
class RunRecording final : public trace::Sink {
 public:
  explicit RunRecording(RecordingWindows windows) : windows_(windows) {}

  void on_begin(const trace::TraceHeader& header, const trace::NameTable& names) override;
  void on_event(const trace::Event& event) override;
  void on_tensor(trace::AllocationId allocation, const trace::TensorInfo& info) override;
  void on_label(trace::AllocationId allocation, trace::Category category, trace::NameId name) override;

  /// What was kept. Complete once its producer is gone, or while no tensor is made.
  const trace::Trace& kept() const { return kept_; }
  trace::Trace take() { return std::move(kept_); }
  /// Of everything, kept or not.
  Bytes peak() const { return peak_; }
  /// The event at the peak: `step` as in the run.
  const trace::Event& peak_event() const { return peak_event_; }

 private:
  bool in_window(const trace::Event& event) const;

  RecordingWindows windows_;
  trace::Trace kept_;
  Bytes live_, peak_;
  trace::Event peak_event_;
  std::unordered_map<std::uint32_t, trace::AllocationId> ids_;  ///< Kept and live: their number in kept_.
  std::uint32_t next_id_ = 0;
};
}  // namespace cinch::train
