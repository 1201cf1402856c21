#include "cinch/trace/trace.h"

#include <algorithm>
#include <array>

namespace cinch::trace {
namespace {
std::size_t index_of(AllocationId id) { return static_cast<std::size_t>(id); }
std::size_t index_of(OpId id) { return static_cast<std::size_t>(id); }

// A live byte has the first category that applies.
int rank(Category category) {
  static constexpr std::array<int, kCategoryCount> kRanks{0, 3, 5, 2, 4, 1, 6, 7};  // In the order of Category.
  return kRanks[static_cast<std::size_t>(category)];
}
}  // namespace

void Trace::on_begin(const TraceHeader& header, const NameTable& names) {
  header_ = header;
  source_ = &names;
}

// Copies names up to `id`, so that ids are the producer's. An id its table does not have becomes "".
NameId Trace::learn(NameId id) {
  const auto index = static_cast<std::size_t>(id);
  if (index < names_.size()) return id;
  if (source_ == nullptr || index >= source_->size()) return NameId{};
  while (names_.size() <= index) names_.push_back((*source_)[NameId{static_cast<std::uint32_t>(names_.size())}]);
  return id;
}

void Trace::on_op(OpId id, const OpCall& call) {
  if (index_of(id) != ops_.size()) {
    ++left_out_;
    return;
  }
  OpCall& op = ops_.emplace_back(call);
  op.name = learn(call.name);
  op.module = learn(call.module);
  op_positions_.push_back(events_.size());
}

void Trace::on_event(const Event& given) {
  Event event = given;
  event.module = learn(given.module);
  bool accepted = true;
  if (event.action == Action::kAlloc) accepted = accept_alloc(event);
  if (event.action == Action::kFreeCompleted) accepted = accept_free(event);
  if (accepted) {
    events_.push_back(event);
  } else {
    ++left_out_;
  }
}

bool Trace::accept_alloc(const Event& event) {
  if (index_of(event.allocation) != allocations_.size() || event.bytes < Bytes()) return false;
  Allocation& made = allocations_.emplace_back();
  made.bytes = event.bytes;
  made.allocated_at = events_.size();
  made.module = event.module;
  made.op = event.op;
  made.phase = event.phase;
  made.recompute = event.recompute;
  made.step = event.step;
  return true;
}

bool Trace::accept_free(Event& event) {
  if (index_of(event.allocation) >= allocations_.size()) return false;
  Allocation& freed = allocations_[index_of(event.allocation)];
  if (freed.freed_at != kAfterTrace) return false;
  freed.freed_at = events_.size();
  event.bytes = freed.bytes;
  return true;
}

void Trace::on_tensor(AllocationId allocation, const TensorInfo& info) {
  if (index_of(allocation) < allocations_.size()) {
    allocations_[index_of(allocation)].tensor = info;
  } else {
    ++left_out_;
  }
}

void Trace::on_label(AllocationId allocation, Category category, NameId name) {
  if (index_of(allocation) >= allocations_.size()) {
    ++left_out_;
    return;
  }
  Allocation& labelled = allocations_[index_of(allocation)];
  if (category == Category::kUnknown) {  // A name alone.
    if (!labelled.labelled) labelled.name = learn(name);
    return;
  }
  if (labelled.labelled && rank(labelled.category) <= rank(category)) return;
  labelled.labelled = true;
  labelled.category = category;
  labelled.name = learn(name);
}

std::string_view Trace::name(NameId id) const {
  const auto index = static_cast<std::size_t>(id);
  return index < names_.size() ? std::string_view(names_[index]) : std::string_view();
}

std::string_view Trace::op_name(OpId id) const {
  return index_of(id) < ops_.size() ? name(ops_[index_of(id)].name) : std::string_view();
}

std::uint32_t Trace::steps() const {
  std::uint32_t most = 0;
  for (const Event& event : events_) most = std::max(most, event.step);
  return most;
}

void Trace::replay(Sink& sink) const {
  NameTable names;  // The names of a trace differ from one another, so that they get their ids again.
  for (const std::string& name : names_) names.intern(name);
  sink.on_begin(header_, names);
  std::size_t op = 0;
  const auto push_ops = [&](std::size_t before_event) {
    for (; op < ops_.size() && op_positions_[op] <= before_event; ++op) {
      sink.on_op(OpId{static_cast<std::uint32_t>(op)}, ops_[op]);
    }
  };
  for (std::size_t i = 0; i < events_.size(); ++i) {
    push_ops(i);
    const Event& event = events_[i];
    sink.on_event(event);
    if (event.action != Action::kAlloc) continue;
    const Allocation& made = allocation(event.allocation);
    if (made.tensor) sink.on_tensor(event.allocation, *made.tensor);
    if (made.labelled) sink.on_label(event.allocation, made.category, made.name);
    if (!made.labelled && made.name != NameId{}) sink.on_label(event.allocation, Category::kUnknown, made.name);
  }
  push_ops(events_.size());
}
}  // namespace cinch::trace
