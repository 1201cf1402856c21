#include "cinch/record/producer.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <atomic>
#include <mutex>

#include "cinch/core/version.h"
#include "cinch/record/internal/forward_ranges.h"

namespace cinch::record {
namespace {
std::atomic<Producer*> g_active{nullptr};

trace::Category first_guess(const trace::Context& context) {
  return context.phase == trace::Phase::kForward || context.recompute ? trace::Category::kActivation
                                                                      : trace::Category::kTemporary;
}
}  // namespace

trace::TraceHeader make_header(trace::TraceHeader::Source source, int threads) {
  std::string producer = "cinch ";
  producer.append(kVersion).append(", LibTorch ").append(TORCH_VERSION);  // g++ 12 warns falsely of `+`
  return {source, std::move(producer), "cpu", threads};
}

Producer* Producer::active() noexcept { return g_active.load(std::memory_order_acquire); }

Producer::Producer(trace::Sink& sink, const trace::TraceHeader& header, RecorderOptions options)
    : sink_(sink), options_(options) {
  Producer* none = nullptr;
  if (!g_active.compare_exchange_strong(none, this))
    throw UsageError("a recorder or dry run is already active in this process", "end it before another begins");
  sink_.on_begin(header, names_);
  exchange_listener(this);
}

Producer::~Producer() {
  exchange_listener(nullptr);
  g_active = nullptr;
}

trace::Context Producer::context() {
  auto context = trace::current();
  const auto node = torch::autograd::get_current_node();
  if (std::this_thread::get_id() != owner_) {
    // A kernel's worker inherits nothing: it works for the op of the thread that started it.
    if (!node && context.phase == trace::Phase::kOther && context.module == nullptr) return last_;
    if (!node) return context;
    // Autograd's thread of a device works for the step whose backward() waits for it.
    if (context.phase == trace::Phase::kOther) {
      context.phase = trace::Phase::kBackward;
      context.step = last_.step;
      context.times = last_.times;
    }
    if (!context.recompute) context.module = internal::forward_module(node->thread_id(), node->sequence_nr());
    return context;
  }
  if (context.phase == trace::Phase::kOther && context.step > 0) {  // A step whose phases nobody names.
    if (node) context.phase = trace::Phase::kBackward;
    else context.phase = backward_seen_ && !at::GradMode::is_enabled() ? trace::Phase::kOptimizer : trace::Phase::kForward;
  }
  if (node && !context.recompute) context.module = internal::forward_module(node->thread_id(), node->sequence_nr());
  return last_ = context;
}

trace::Event Producer::make_event(trace::Action action, Bytes bytes) {
  const auto now = context();
  trace::Event event;
  event.action = action;
  event.phase = now.phase;
  event.recompute = now.recompute;
  event.step = now.step;
  event.op = op_;
  event.module = now.module ? names_.intern(*now.module) : trace::NameId{};
  event.bytes = bytes;
  if (options_.clock)
    event.time_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin_).count();
  return event;
}

void Producer::mark_if_new(const trace::Event& event) {
  if (marked_ && event.phase == marked_phase_ && event.step == marked_step_) return;
  backward_seen_ = event.phase == trace::Phase::kBackward || (backward_seen_ && event.step == marked_step_);
  marked_ = true;
  marked_phase_ = event.phase;
  marked_step_ = event.step;
  trace::Event mark;
  mark.action = trace::Action::kMark;
  mark.phase = event.phase;
  mark.step = event.step;
  mark.time_ns = event.time_ns;
  sink_.on_event(mark);
}

void Producer::on_allocate(Bytes bytes, AllocationTag& tag) {
  auto event = make_event(trace::Action::kAlloc, bytes);
  mark_if_new(event);
  const bool fails = options_.fail_at >= 0 && next_id_ == static_cast<std::uint64_t>(options_.fail_at);
  if (fails || (options_.cap && live_ + bytes > *options_.cap)) {
    if (fails) options_.fail_at = -1;
    event.action = trace::Action::kOom;
    sink_.on_event(event);
    throw OutOfMemoryError(bytes, live_, options_.cap.value_or(live_), by_category_, names_[event.module]);
  }
  event.allocation = tag.id = trace::AllocationId{next_id_++};
  tag.category = first_guess(last_);
  live_ += bytes;
  peak_ = std::max(peak_, live_);
  by_category_[tag.category] += bytes;
  sink_.on_event(event);
}

void Producer::on_free(const AllocationTag& tag) noexcept {
  auto event = make_event(trace::Action::kFreeCompleted, Bytes(tag.bytes));
  mark_if_new(event);
  event.allocation = tag.id;
  live_ -= event.bytes;
  by_category_[tag.category] -= event.bytes;
  sink_.on_event(event);
}

void Producer::label(AllocationTag& tag, trace::Category category, std::string_view name) {
  const auto lock = lock_listeners();
  if (tag.listener != serial()) return;
  by_category_[tag.category] -= Bytes(tag.bytes);
  tag.category = category;
  by_category_[tag.category] += Bytes(tag.bytes);
  const auto id = names_.intern(name);
  if (category == trace::Category::kParameter && !name.empty()) parameters_.insert_or_assign(tag.id, id);
  sink_.on_label(tag.id, category, id);
}

void Producer::name_copy(trace::AllocationId copy, trace::AllocationId original) {
  const auto lock = lock_listeners();
  const auto found = parameters_.find(original);
  if (found != parameters_.end() && copy != original) sink_.on_label(copy, trace::Category::kUnknown, found->second);
}

void Producer::tensor(trace::AllocationId id, const trace::TensorInfo& info) {
  const auto lock = lock_listeners();
  sink_.on_tensor(id, info);
}

void Producer::begin_op(std::string_view name, trace::OpCall call) {
  const auto lock = lock_listeners();
  const auto now = context();
  call.name = names_.intern(name);
  call.module = now.module ? names_.intern(*now.module) : trace::NameId{};
  call.phase = now.phase;
  call.recompute = now.recompute;
  call.step = now.step;
  call.times = now.times;
  op_ = trace::OpId{next_op_++};
  sink_.on_op(op_, call);
}

trace::OpId Producer::exchange_op(trace::OpId op) { return std::exchange(op_, op); }

MemoryStats Producer::stats() const {
  const auto lock = lock_listeners();
  return {live_, peak_, by_category_, Bytes()};
}
}  // namespace cinch::record
