#pragma once
// The seam between whatever makes events and whatever needs them.
//
//   trace::Trace trace;                    // keeps everything
//   record::Recorder recorder(trace);      // pushes into it

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cinch/trace/event.h"

namespace cinch::trace {

/// Interned text. Ids are dense from 0 and stay valid; 0 is "". Not thread-safe: its producer locks.
class NameTable {
 public:
  NameTable();
  NameTable(const NameTable&) = delete;  // ids_ points into texts_
  NameTable& operator=(const NameTable&) = delete;
  NameTable(NameTable&&) = default;
  NameTable& operator=(NameTable&&) = default;

  NameId intern(std::string_view text);
  const std::string& operator[](NameId id) const { return texts_[static_cast<std::size_t>(id)]; }
  std::size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, NameId> ids_;
};

/// Receives a trace while it is made. Called by one thread at a time (the producer locks), in order.
/// Must not allocate tensors and must not throw: it runs inside the allocator.
class Sink {
 public:
  virtual ~Sink() = default;
  /// First call. `names` grows meanwhile and outlives the last call.
  virtual void on_begin(const TraceHeader& /*header*/, const NameTable& /*names*/) {}
  /// Ids from 0 in order.
  virtual void on_op(OpId /*id*/, const OpCall& /*call*/) {}
  /// Allocations are numbered from 0 in order; a free names one that lives.
  virtual void on_event(const Event& event) = 0;
  virtual void on_tensor(AllocationId /*allocation*/, const TensorInfo& /*info*/) {}
  /// "This allocation is parameter layers.0.weight." May come any time while the allocation lives. kUnknown says the name
  /// alone, not what it is for: a copy of layers.0.weight that autocast made is an activation or a temporary.
  virtual void on_label(AllocationId /*allocation*/, Category /*category*/, NameId /*name*/) {}
};

/// Keeps live bytes, those of segments, their peaks and nothing else. O(1) memory.
class PeakMeter final : public Sink {
 public:
  void on_event(const Event& event) override;
  Bytes live() const { return live_; }
  Bytes peak() const { return peak_; }
  Bytes reserved() const { return reserved_; }  ///< By segments; 0 of a trace without them.
  Bytes peak_reserved() const { return peak_reserved_; }

 private:
  Bytes live_, peak_, reserved_, peak_reserved_;
};
}  // namespace cinch::trace
