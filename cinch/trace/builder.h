#pragma once
// Traces by hand, for tests and examples.
//
//   TraceBuilder b;
//   b.phase(Phase::kForward, 1).module("layers.0");
//   AllocationId h = b.alloc(4_KiB);
//   b.phase(Phase::kBackward, 1).free(h);
//   Trace trace = b.build();

#include <cstdint>
#include <string_view>

#include "cinch/trace/event.h"
#include "cinch/trace/sink.h"
#include "cinch/trace/trace.h"

namespace cinch::trace {

class TraceBuilder {
 public:
  explicit TraceBuilder(TraceHeader::Source source = TraceHeader::Source::kDryRun);
  TraceBuilder(const TraceBuilder&) = delete;
  TraceBuilder& operator=(const TraceBuilder&) = delete;

  /// A phase begins, with a kMark: the following events are of it, in no module, of no op, no recomputation.
  TraceBuilder& phase(Phase phase, std::uint32_t step);
  TraceBuilder& module(std::string_view path);
  TraceBuilder& recompute(bool on);
  /// Of the following events.
  TraceBuilder& time_ns(std::int64_t time);

  /// A call of an op in the phase and module at hand; the following allocations are its.
  OpId op(std::string_view name, double flops = 0, Bytes read = {}, Bytes written = {}, DType dtype = DType::kFloat32);
  /// No op from here on.
  TraceBuilder& no_op();

  AllocationId alloc(Bytes bytes);
  AllocationId alloc(const TensorInfo& tensor);  ///< Of as many bytes as the tensor has.
  TraceBuilder& free(AllocationId allocation);   ///< Throws UsageError if it does not live.
  TraceBuilder& oom(Bytes asked);
  TraceBuilder& label(AllocationId allocation, Category category, std::string_view name = {});

  /// What was built so far, not classified.
  Trace build() const { return trace_; }

 private:
  NameTable names_;
  Trace trace_;
  Event next_;
};
}  // namespace cinch::trace
