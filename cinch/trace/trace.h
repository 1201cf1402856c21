#pragma once
// A whole trace in memory, and the questions one asks of it.
//
//   Trace trace;  { DryRun dry(trace, cpu); step(); }
//   classify(trace);
//   Timeline timeline(trace);
//   timeline.peak().bytes;  timeline.live_by_category(timeline.peak().event);
//   if (auto d = first_divergence(predicted, recorded)) puts(d->sentence.c_str());

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/trace/event.h"
#include "cinch/trace/sink.h"

namespace cinch::trace {

inline constexpr std::size_t kBeforeTrace = static_cast<std::size_t>(-1);
inline constexpr std::size_t kAfterTrace = static_cast<std::size_t>(-1);

/// One life of one allocation, joined from its events.
struct Allocation {
  Bytes bytes{};                            ///< Requested.
  std::size_t allocated_at = kBeforeTrace;  ///< Event index.
  std::size_t freed_at = kAfterTrace;       ///< Index of kFreeCompleted; kAfterTrace if it never came. Half-open life.
  Category category = Category::kUnknown;
  NameId name{};  ///< Parameter's or buffer's, if labelled; without a label, of the parameter that it is a copy of.
  NameId module{};
  OpId op = kNoOp;
  Phase phase = Phase::kOther;
  bool recompute = false;
  std::uint32_t step = 0;
  bool labelled = false;  ///< `category` came from a label.
  std::optional<TensorInfo> tensor;
};

/// Append-only while it is a Sink, of one producer; const afterwards, then safe to read from many threads. Copyable.
///
/// Whatever is in it is consistent: an event that contradicts those before it (an id out of order, a free of what does
/// not live, a negative size), a label or tensor of an unknown allocation and an op out of order are left out and
/// counted by left_out(). Of several labels of one allocation the one that comes first in parameter, buffer, optimizer
/// state, gradient, input, activation, temporary counts.
class Trace final : public Sink {
 public:
  void on_begin(const TraceHeader& header, const NameTable& names) override;
  void on_op(OpId id, const OpCall& call) override;
  void on_event(const Event& event) override;
  void on_tensor(AllocationId allocation, const TensorInfo& info) override;
  void on_label(AllocationId allocation, Category category, NameId name) override;

  std::span<const Event> events() const { return events_; }
  std::span<const OpCall> ops() const { return ops_; }
  std::span<const Allocation> allocations() const { return allocations_; }
  const Allocation& allocation(AllocationId id) const { return allocations_[static_cast<std::size_t>(id)]; }
  /// Text of a name. Names are copied from the producer's table as they are met, so a Trace outlives its producer.
  std::string_view name(NameId id) const;
  /// Name of an op's call: "aten::addmm"; "" for kNoOp.
  std::string_view op_name(OpId id) const;
  const TraceHeader& header() const { return header_; }
  std::uint32_t steps() const;  ///< The largest step of any event.
  std::size_t left_out() const { return left_out_; }
  /// Pushes everything into `sink`: ops and events in order, tensor and label of an allocation right after its event.
  void replay(Sink& sink) const;

 private:
  friend void classify(Trace& trace);
  friend void adopt_shapes(Trace& recording, const Trace& prediction);
  NameId learn(NameId id);
  bool accept_alloc(const Event& event);
  bool accept_free(Event& event);

  TraceHeader header_;
  const NameTable* source_ = nullptr;  ///< While being filled.
  std::vector<std::string> names_{std::string()};
  std::vector<Event> events_;
  std::vector<OpCall> ops_;
  std::vector<std::size_t> op_positions_;  ///< Number of events before each op: keeps the order for replay().
  std::vector<Allocation> allocations_;
  std::size_t left_out_ = 0;
};

/// Gives every allocation its category: labels first (parameter, buffer, input, gradient, optimizer state), then by
/// life: made in forward and alive when that micro-batch's backward begins, or kept by a recomputation, is activation;
/// else temporary. Deterministic, idempotent.
void classify(Trace& trace);

/// Live bytes over a trace. Built in O(events).
class Timeline {
 public:
  explicit Timeline(const Trace& trace);  ///< The trace must outlive it.
  Bytes live(std::size_t event) const;    ///< After that event, which is in the trace; 0 if the trace is empty.
  struct Peak {
    Bytes bytes{};
    std::size_t event = 0;
    std::uint32_t step = 0;
    Phase phase = Phase::kOther;
    NameId module{};
    OpId op = kNoOp;
  };
  /// The first, if several are equal. A trace without allocations has a peak of 0 at event 0.
  Peak peak() const;
  /// Over the events of one step, what was made before and is still live included; 0 for a step without events.
  Peak peak(std::uint32_t step) const;
  /// Live after that event, largest first, then in order of allocation. O(allocations).
  std::vector<AllocationId> live_allocations(std::size_t event) const;
  CategoryBytes live_by_category(std::size_t event) const;  ///< Sums to live(event), exactly.

 private:
  Peak peak_at(std::size_t event) const;

  const Trace* trace_;
  std::vector<Bytes> live_;
  std::map<std::uint32_t, std::size_t> peak_event_;  ///< Of each step.
};

/// Live bytes when a phase ended, in order of the trace: one entry for each run of events of equal step and phase.
struct PhaseEnd {
  std::uint32_t step;
  Phase phase;
  Bytes live;
  friend bool operator==(const PhaseEnd&, const PhaseEnd&) = default;
};
std::vector<PhaseEnd> phase_ends(const Trace& trace);

/// The first event at which two traces allocate or free something else: bytes, and which allocation is freed. Clock,
/// ops, marks and labels are not compared. `left` is called predicted, `right` recorded:
/// "predicted 4,096 B in layers.3.attention aten::clone (step 1, forward); recorded nothing."
struct Divergence {
  std::size_t left_event = 0, right_event = 0;  ///< The number of its events for a trace that had ended.
  std::string sentence;
};
std::optional<Divergence> first_divergence(const Trace& left, const Trace& right);

/// Compares live bytes at the end of every phase, and the peak of every step: what must be equal even where a kernel
/// orders its scratch and its output otherwise than the dry run. Nothing if all agree; else a sentence with both
/// figures: "live after backward of step 1: predicted 4,096 B, recorded 8,192 B (phase 3 of the trace)."
std::optional<std::string> compare_phase_ends(const Trace& predicted, const Trace& recorded);

/// Copies TensorInfo and the name of the op (as an OpCall without costs) from a prediction to the recording that agrees
/// with it, allocation by allocation in order. Stops at the first whose bytes differ. Idempotent.
void adopt_shapes(Trace& recording, const Trace& prediction);

/// Own format, see internal/format.h: versioned, little-endian, streamed. Categories that are not labels are not in it:
/// classify() again. Recordings and dry runs alone: save() throws UsageError for a snapshot, and IoError. load() throws
/// IoError, or DataError with the offset; sizes are checked before they are believed. What comes before a fault has
/// been pushed by then.
void save(const Trace& trace, const std::filesystem::path& file);
void load(const std::filesystem::path& file, Sink& sink);
}  // namespace cinch::trace
