#include "cinch/inspect/internal/categorizer.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace cinch::inspect::internal {

using trace::Action;
using trace::Phase;

namespace {

/// A clock in a damaged file can say anything.
std::int64_t nanoseconds(std::int64_t us, std::int64_t origin_us) {
  constexpr double kMost = 2e18;  // Nanoseconds: 60 years.
  const double ns = (static_cast<double>(us) - static_cast<double>(origin_us)) * 1000;
  if (ns > kMost || ns < -kMost) return static_cast<std::int64_t>(ns > 0 ? kMost : -kMost);
  return (us - origin_us) * 1000;
}
}  // namespace

std::vector<Interval> optimizer_intervals(const snapshot::Snapshot& snapshot, std::string& name) {
  constexpr std::string_view begin = "Optimizer.step#", end = ".step";
  std::vector<Interval> intervals;
  bool open = false;
  for (const snapshot::Annotation& annotation : snapshot.annotations()) {
    if (!annotation.name.starts_with(begin)) continue;
    std::string_view who = std::string_view(annotation.name).substr(begin.size());
    if (who.ends_with(end)) who.remove_suffix(end.size());
    if (name.empty()) name = who;
    if (!snapshot.origin_us()) continue;
    const std::int64_t at = nanoseconds(annotation.time_us, *snapshot.origin_us());
    if (annotation.start) {
      intervals.push_back({at, std::numeric_limits<std::int64_t>::max()});
      open = true;
    } else if (open) {
      intervals.back().to = at;
      open = false;
    }
  }
  return intervals;
}

Categorizer::Categorizer(const trace::StackTable& stacks, std::vector<Interval> steps, bool window, bool stacked)
    : reader_(stacks), steps_(std::move(steps)), lifetimes_only_(!stacked), window_(window) {
  kinds_.by_stacks = !lifetimes_only_;
  kinds_.phases.push_back({0, Phase::kOther, 1});
}

bool Categorizer::in_optimizer(std::int64_t time_ns) {
  if (time_ns < 0) return false;
  while (next_step_ < steps_.size() && steps_[next_step_].to <= time_ns) ++next_step_;
  return next_step_ < steps_.size() && steps_[next_step_].from <= time_ns;
}

Phase Categorizer::phase_of(const StackFacts& facts, bool optimizer) const {
  if (optimizer && !facts.in_backward) return Phase::kOptimizer;
  const Phase now = kinds_.phases.back().phase;
  switch (facts.origin) {
    case Origin::kOptimizer:
      return facts.in_backward ? Phase::kBackward : Phase::kOptimizer;
    case Origin::kBackward:
      return Phase::kBackward;
    case Origin::kLoading:
      return Phase::kInit;
    case Origin::kForward:
      return Phase::kForward;
    case Origin::kUnhinted:  // A loss is computed outside all modules.
      return now == Phase::kForward ? Phase::kForward : Phase::kOther;
    case Origin::kNoStack:  // Where only Python was recorded, the threads of autograd's engine have no stack.
      if (lifetimes_only_) return Phase::kOther;
      return now == Phase::kForward ? Phase::kBackward : now;
  }
  return Phase::kOther;
}

void Categorizer::enter(Phase phase) {
  if (kinds_.phases.back().phase == phase) return;
  if (phase == Phase::kOptimizer) enter_optimizer();
  if (phase == Phase::kForward || phase == Phase::kBackward || (lifetimes_only_ && phase == Phase::kOther)) {
    step_open_ = false;
  }
  const std::uint32_t step = phase == Phase::kOptimizer ? kinds_.optimizer_steps : kinds_.optimizer_steps + 1;
  if (kinds_.phases.back().first_event == events_) {
    kinds_.phases.back() = {events_, phase, step};
  } else {
    kinds_.phases.push_back({events_, phase, step});
  }
  if (phase == Phase::kBackward) last_backward_run_ = static_cast<std::uint32_t>(kinds_.phases.size() - 1);
}

/// Clipping, unscaling and the step itself are one step: a new one begins only after a forward or backward.
void Categorizer::enter_optimizer() {
  if (lifetimes_only_) close_window();
  if (!step_open_) ++kinds_.optimizer_steps;
  step_open_ = true;
}

void Categorizer::on_event(const trace::Event& event) {
  if (event.before) {
    if (event.action != Action::kAlloc) return;
    kinds_.of.push_back(Kind::kUnknown);
    before_.add(event.allocation, event.bytes.count(), reader_[event.stack]);
    return;
  }
  if (event.action == Action::kAlloc) {
    allocate(event);
  } else if (event.action == Action::kFreeCompleted && event.allocation != trace::kNoAllocation) {
    const bool stepped = !steps_.empty() && kinds_.phases.back().phase == Phase::kOptimizer;
    if (stepped && !in_optimizer(event.time_ns)) enter(Phase::kOther);  // What is freed after the step outlived it.
    release(event);
  }
  ++events_;
}

void Categorizer::allocate(const trace::Event& event) {
  const StackFacts& facts = reader_[event.stack];
  enter(phase_of(facts, in_optimizer(event.time_ns)));
  if (recomputing_ && !facts.recompute) ++recomputation_;
  recomputing_ = facts.recompute;
  kinds_.of.push_back(Kind::kUnknown);
  if (facts.origin == Origin::kLoading) before_.parameter_made(event.bytes.count());
  live_[static_cast<std::uint32_t>(event.allocation)] = {event.bytes.count(), static_cast<std::uint32_t>(event.stack),
                                                         static_cast<std::uint32_t>(kinds_.phases.size() - 1),
                                                         recomputation_, events_};
}

void Categorizer::release(const trace::Event& event) {
  if (before_.has(event.allocation)) return before_.freed(event.allocation, kinds_.phases.back().phase);
  const auto found = live_.find(static_cast<std::uint32_t>(event.allocation));
  if (found == live_.end()) return;
  const Record& record = found->second;
  const bool same_run = record.run + 1 == kinds_.phases.size();
  Fate& fate = fates_[record.stack];
  ++(same_run ? fate.freed_in_run : fate.outlived);
  if (lifetimes_only_ && same_run && kinds_.phases.back().phase == Phase::kOther && !steps_.empty()) {
    passing_.push_back({event.allocation, record.event, events_});
  } else if (kinds_.of[static_cast<std::size_t>(event.allocation)] == Kind::kUnknown) {
    set(event.allocation, kind_of(record, false));
  }
  live_.erase(found);
}

bool Categorizer::cut_short_but_passing(const Record& record) const {
  const auto fate = fates_.find(record.stack);
  return fate != fates_.end() && fate->second.freed_in_run > fate->second.outlived;
}

Kind Categorizer::in_forward(const Record& record, const StackFacts& facts, bool outlived, bool at_end) {
  const bool for_backward = last_backward_run_ > record.run;
  const bool held = at_end && !outlived && !cut_short_but_passing(record);
  if (!for_backward && !held && !(at_end && outlived)) return Kind::kTemporary;
  const bool of_weight = before_.sizes_known() && before_.like_a_parameter(2 * record.bytes);
  return facts.autocast && of_weight ? Kind::kAutocastCopy : Kind::kActivation;
}

Kind Categorizer::in_backward(const Record& record, const StackFacts& facts, bool outlived) const {
  if (facts.accumulates) return Kind::kGradient;
  if (facts.recompute) return record.recomputation != recomputation_ ? Kind::kRecomputed : Kind::kTemporary;
  if (!outlived) return Kind::kTemporary;
  return before_.like_a_parameter(record.bytes) ? Kind::kGradient : Kind::kUnknown;
}

/// Of one whose life has ended, or that lives at the recording's end.
Kind Categorizer::kind_of(const Record& record, bool at_end) {
  const StackFacts& facts = reader_[trace::StackId{record.stack}];
  const PhaseRun& run = kinds_.phases[record.run];
  const bool outlived = record.run + 1 < kinds_.phases.size();
  const bool stays = outlived || (at_end && !cut_short_but_passing(record));
  if (facts.cublas_workspace) return Kind::kCublasWorkspace;
  if (facts.cudnn_workspace) return Kind::kCudnnWorkspace;
  if (facts.bucket) return Kind::kGradientBucket;
  Kind kind = Kind::kTemporary;
  if (facts.origin == Origin::kOptimizer || run.phase == Phase::kOptimizer) {
    kind = stays ? Kind::kOptimizerState : Kind::kTemporary;
  } else if (run.phase == Phase::kBackward) {
    kind = in_backward(record, facts, outlived || at_end);
  } else if (run.phase == Phase::kForward) {
    kind = facts.origin == Origin::kUnhinted && facts.moves && outlived ? Kind::kInput
                                                                        : in_forward(record, facts, outlived, at_end);
  } else if (run.phase == Phase::kInit) {
    kind = stays ? Kind::kParameter : Kind::kTemporary;
  } else if (lifetimes_only_) {
    kind = Kind::kUnknown;
  } else if (stays) {
    kind = facts.moves ? Kind::kInput : Kind::kUnknown;
  }
  if (facts.communication && (kind == Kind::kTemporary || kind == Kind::kUnknown)) kind = Kind::kCommunication;
  if (kind == Kind::kGradient) before_.gradient_made(record.bytes, run.step);
  if (kind == Kind::kOptimizerState) before_.state_made(record.bytes);
  return kind;
}

/// Without stacks: what an optimizer's step finds alive, as large as a parameter, is a gradient. The first of them was
/// made as backward began, and what was alive then and is gone now was an activation.
void Categorizer::close_window() {
  const auto run = static_cast<std::uint32_t>(kinds_.phases.size() - 1);
  const std::uint32_t step = kinds_.optimizer_steps + 1;
  std::size_t backward = std::numeric_limits<std::size_t>::max();
  for (const auto& [id, record] : live_) {
    if (record.run != run || !before_.sizes_known() || !before_.like_a_parameter(record.bytes)) continue;
    set(trace::AllocationId{id}, Kind::kGradient);
    before_.gradient_made(record.bytes, step);
    backward = std::min(backward, record.event);
  }
  if (backward != std::numeric_limits<std::size_t>::max()) {
    for (const Passing& passing : passing_) {
      const bool held = passing.allocated < backward && passing.freed > backward;
      set(passing.id, held ? Kind::kActivation : Kind::kTemporary);
    }
    PhaseRun& window = kinds_.phases.back();
    window.phase = Phase::kForward;
    if (backward > window.first_event) {
      kinds_.phases.push_back({backward, Phase::kBackward, step});
    } else {
      window.phase = Phase::kBackward;
    }
  }
  passing_.clear();
}

Kinds Categorizer::finish() {
  if (recomputing_) ++recomputation_;
  // A step whose end was annotated is over, though nothing was allocated after it.
  const bool stepped = !steps_.empty() && steps_.back().to != std::numeric_limits<std::int64_t>::max();
  if (stepped && kinds_.phases.back().phase == Phase::kOptimizer) enter(Phase::kOther);
  std::vector<std::uint32_t> ids;  // In order, so that what is decided does not depend on a hash table's.
  ids.reserve(live_.size());
  for (const auto& [id, record] : live_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const std::uint32_t id : ids) {
    if (kinds_.of[id] == Kind::kUnknown) set(trace::AllocationId{id}, kind_of(live_[id], true));
  }
  const bool training = std::any_of(kinds_.phases.begin(), kinds_.phases.end(), [](const PhaseRun& run) {
    return run.phase == Phase::kForward || run.phase == Phase::kBackward || run.phase == Phase::kOptimizer;
  });
  before_.decide(kinds_.of, training, window_);
  if (kinds_.optimizer_steps == 0) {
    for (PhaseRun& run : kinds_.phases) run.step = 0;
  }
  return std::move(kinds_);
}
}  // namespace cinch::inspect::internal
