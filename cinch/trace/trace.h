#pragma once
// A whole trace in memory, and the questions one asks of it.
//
//   Trace trace;  { DryRun dry(trace, cpu); step(); }
//   classify(trace);
//   Timeline timeline(trace);
//   timeline.peak().bytes;  timeline.live_by_category(timeline.peak().event);
//   if (auto d = first_divergence(predicted, recorded)) puts(d->sentence.c_str());

#include <filesystem>
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
  Bytes bytes;                             ///< Requested.
  std::size_t allocated_at = kBeforeTrace; ///< Event index.
  std::size_t freed_at = kAfterTrace;      ///< Index of kFreeCompleted; kAfterTrace if it never came. Half-open life.
  Category category = Category::kUnknown;
  NameId name{};                           ///< Parameter's or buffer's name, if labelled.
  NameId module{};
  OpId op = kNoOp;
  Phase phase = Phase::kOther;
  bool recompute = false;
  std::uint32_t step = 0;
  bool labelled = false;                   ///< `category` came from a label.
  std::optional<TensorInfo> tensor;
};

/// Append-only while it is a Sink; const afterwards, then safe to read from many threads. Copyable.
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
  /// Pushes everything into `sink`, in order.
  void replay(Sink& sink) const;

 private:
  friend void classify(Trace& trace);
  friend void adopt_shapes(Trace& recording, const Trace& prediction);
  void learn(NameId id);

  TraceHeader header_;
  const NameTable* source_ = nullptr;  ///< While being filled.
  std::vector<std::string> names_{std::string()};
  std::vector<Event> events_;
  std::vector<OpCall> ops_;
  std::vector<std::size_t> op_positions_;  ///< Number of events before each op: keeps the order for replay().
  std::vector<Allocation> allocations_;
};

/// Gives every allocation its category: labels first (parameter, buffer, input, gradient, optimizer state), then by
/// life: made in forward and alive when that micro-batch's backward begins, or kept by a recomputation, is activation;
/// else temporary. Deterministic, idempotent.
void classify(Trace& trace);

/// Live bytes over a trace. Built in O(events).
class Timeline {
 public:
  explicit Timeline(const Trace& trace);  ///< The trace must outlive it.
  Bytes live(std::size_t event) const;    ///< After that event.
  struct Peak {
    Bytes bytes;
    std::size_t event = 0;
    std::uint32_t step = 0;
    Phase phase = Phase::kOther;
    NameId module{};
    OpId op = kNoOp;
  };
  /// The first, if several are equal. A trace without allocations has a peak of 0 at event 0.
  Peak peak() const;
  Peak peak(std::uint32_t step) const;               ///< Over the events of one step, what was live before included.
  std::vector<AllocationId> live_allocations(std::size_t event) const;  ///< Largest first. O(allocations).
  CategoryBytes live_by_category(std::size_t event) const;              ///< Sums to live(event), exactly.

 private:
  const Trace* trace_;
  std::vector<Bytes> live_;
};

/// Live bytes when a phase ended, in order of the trace: one entry for each run of events of equal step and phase.
struct PhaseEnd {
  std::uint32_t step;
  Phase phase;
  Bytes live;
  friend bool operator==(const PhaseEnd&, const PhaseEnd&) = default;
};
std::vector<PhaseEnd> phase_ends(const Trace& trace);

/// The first event at which two traces allocate or free something else (clock and ops are not compared).
/// "predicted 4,096 B in layers.3.attention aten::clone; recorded nothing."
struct Divergence {
  std::size_t left_event = 0, right_event = 0;
  std::string sentence;
};
std::optional<Divergence> first_divergence(const Trace& left, const Trace& right);

/// Copies TensorInfo (and the name of the op) from a prediction to the recording that agrees with it. Stops at the first
/// divergence.
void adopt_shapes(Trace& recording, const Trace& prediction);

/// Own format: versioned, little-endian, streamed. save() throws IoError; load() throws DataError with the offset;
/// sizes are checked before they are believed.
void save(const Trace& trace, const std::filesystem::path& file);
void load(const std::filesystem::path& file, Sink& sink);
}  // namespace cinch::trace
