#include "cinch/trace/builder.h"

#include "cinch/core/error.h"

namespace cinch::trace {

TraceBuilder::TraceBuilder(TraceHeader::Source source) {
  trace_.on_begin({.source = source, .producer = "cinch test", .device_name = "cpu", .threads = 1}, names_);
}

TraceBuilder& TraceBuilder::phase(Phase phase, std::uint32_t step) {
  next_ = Event{.action = Action::kMark, .phase = phase, .step = step, .time_ns = next_.time_ns};
  trace_.on_event(next_);
  return *this;
}

TraceBuilder& TraceBuilder::module(std::string_view path) {
  next_.module = names_.intern(path);
  return *this;
}

TraceBuilder& TraceBuilder::recompute(bool on) {
  next_.recompute = on;
  return *this;
}

TraceBuilder& TraceBuilder::time_ns(std::int64_t time) {
  next_.time_ns = time;
  return *this;
}

OpId TraceBuilder::op(std::string_view name, double flops, Bytes read, Bytes written, DType dtype) {
  next_.op = OpId{static_cast<std::uint32_t>(trace_.ops().size())};
  trace_.on_op(next_.op, {.name = names_.intern(name),
                          .module = next_.module,
                          .phase = next_.phase,
                          .recompute = next_.recompute,
                          .dtype = dtype,
                          .step = next_.step,
                          .flops = flops,
                          .read = read,
                          .written = written});
  return next_.op;
}

TraceBuilder& TraceBuilder::no_op() {
  next_.op = kNoOp;
  return *this;
}

AllocationId TraceBuilder::alloc(Bytes bytes) {
  Event event = next_;
  event.action = Action::kAlloc;
  event.allocation = AllocationId{static_cast<std::uint32_t>(trace_.allocations().size())};
  event.bytes = bytes;
  trace_.on_event(event);
  return event.allocation;
}

AllocationId TraceBuilder::alloc(const TensorInfo& tensor) {
  Bytes bytes = element_size(tensor.dtype);
  for (std::int64_t size : tensor.sizes) bytes = bytes * size;
  const AllocationId id = alloc(bytes);
  trace_.on_tensor(id, tensor);
  return id;
}

TraceBuilder& TraceBuilder::free(AllocationId allocation) {
  Event event = next_;
  event.action = Action::kFreeCompleted;
  event.allocation = allocation;
  const std::size_t before = trace_.left_out();
  trace_.on_event(event);
  if (trace_.left_out() != before) throw UsageError("the trace is told to free what does not live in it");
  return *this;
}

TraceBuilder& TraceBuilder::oom(Bytes asked) {
  Event event = next_;
  event.action = Action::kOom;
  event.bytes = asked;
  trace_.on_event(event);
  return *this;
}

TraceBuilder& TraceBuilder::label(AllocationId allocation, Category category, std::string_view name) {
  trace_.on_label(allocation, category, names_.intern(name));
  return *this;
}
}  // namespace cinch::trace
