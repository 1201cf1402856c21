#include "cinch/train/estimate.h"

#include <torch/optim/optimizer.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "cinch/core/error.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/trace/scope.h"

namespace cinch {
namespace {
using trace::AllocationId;

/// Optimizers with their state put aside.
class FreshOptimizers {
 public:
  explicit FreshOptimizers(const std::vector<torch::optim::Optimizer*>& optimizers) : optimizers_(optimizers) {
    for (auto* optimizer : optimizers_) states_.push_back(std::exchange(optimizer->state(), {}));
  }
  ~FreshOptimizers() {
    for (std::size_t i = 0; i < optimizers_.size(); ++i) optimizers_[i]->state() = std::move(states_[i]);
  }
  FreshOptimizers(const FreshOptimizers&) = delete;
  FreshOptimizers& operator=(const FreshOptimizers&) = delete;

 private:
  std::vector<torch::optim::Optimizer*> optimizers_;
  std::vector<std::remove_cvref_t<decltype(std::declval<torch::optim::Optimizer>().state())>> states_;
};

/// Names of a finished trace, for another.
struct Names {
  trace::NameTable table;
  std::unordered_map<trace::NameId, trace::NameId> known;
  trace::NameId of(const trace::Trace& from, trace::NameId id) {
    const auto [slot, fresh] = known.try_emplace(id, trace::NameId{});
    if (fresh) slot->second = table.intern(from.name(id));
    return slot->second;
  }
};

/// The trace with what existed before at its beginning, and what the optimizer made and kept labelled as its state.
class Arrange final : public trace::Sink {
 public:
  Arrange(const trace::Trace& raw, std::vector<AllocationId> existing) : raw_(raw), existing_(std::move(existing)) {}

  trace::Trace run() {
    made_.on_begin(raw_.header(), names_.table);
    for (const auto id : existing_) {
      trace::Event event;
      event.action = trace::Action::kAlloc;
      event.phase = trace::Phase::kInit;
      event.bytes = raw_.allocation(id).bytes;
      push(event, id);
    }
    raw_.replay(*this);
    trace::classify(made_);
    return std::move(made_);
  }

  void on_op(trace::OpId id, const trace::OpCall& call) override {
    auto copy = call;
    copy.name = names_.of(raw_, call.name);
    copy.module = names_.of(raw_, call.module);
    made_.on_op(id, copy);
  }
  void on_event(const trace::Event& event) override {
    auto copy = event;
    copy.module = names_.of(raw_, event.module);
    if (event.action != trace::Action::kAlloc) {
      if (event.action == trace::Action::kFreeCompleted) copy.allocation = ids_.at(event.allocation);
      made_.on_event(copy);
    } else if (!ids_.contains(event.allocation)) {
      push(copy, event.allocation);
    }
  }

 private:
  void push(trace::Event event, AllocationId id) {
    const AllocationId number{static_cast<std::uint32_t>(ids_.size())};
    event.allocation = number;
    ids_.emplace(id, number);
    made_.on_event(event);
    const auto& was = raw_.allocation(id);
    if (was.tensor) made_.on_tensor(number, *was.tensor);
    const bool state = was.phase == trace::Phase::kOptimizer && outlives_its_step(was);
    if (was.labelled) made_.on_label(number, was.category, names_.of(raw_, was.name));
    else if (state) made_.on_label(number, trace::Category::kOptimizerState, trace::NameId{});
  }
  bool outlives_its_step(const trace::Allocation& allocation) const {
    return allocation.freed_at == trace::kAfterTrace || raw_.events()[allocation.freed_at].step != allocation.step;
  }

  const trace::Trace& raw_;
  std::vector<AllocationId> existing_;
  Names names_;
  std::unordered_map<AllocationId, AllocationId> ids_;
  trace::Trace made_;
};
}  // namespace

StepEstimate estimate(const std::function<void()>& step, const device::DeviceSpec& device, const EstimateOptions& options) {
  constexpr std::uint32_t kSteps = 2;
  const auto alive_before = dryrun::fake_bytes_alive();
  trace::Trace raw;
  std::vector<AllocationId> existing;
  StepEstimate result;
  {
    const FreshOptimizers fresh(options.optimizers);
    dryrun::DryRun dry(raw, device);
    for (std::uint32_t number = 1; number <= kSteps; ++number) {
      const trace::PhaseScope unnamed(trace::Phase::kOther, number);  // The phases are inferred.
      step();
      dry.label_gradients();
    }
    existing = dry.existing();
    result.bounded = dry.bounded();
    result.by_shape_alone = dry.by_shape_alone();
    for (auto* optimizer : options.optimizers) optimizer->state().clear();
  }
  if (const auto left = dryrun::fake_bytes_alive() - alive_before; left > Bytes())
    throw UsageError("after the estimate something still keeps " + std::to_string(left.count()) + " bytes of its tensors",
                     "name captured optimizers in EstimateOptions, or make them in the step; do not keep its tensors");
  for (const auto id : existing) result.existing += raw.allocation(id).bytes;
  result.trace = Arrange(raw, std::move(existing)).run();
  const trace::Timeline timeline(result.trace);
  result.peak = timeline.peak().bytes;
  for (std::uint32_t number = 1; number <= kSteps; ++number) result.step_peaks.push_back(timeline.peak(number).bytes);
  return result;
}
}  // namespace cinch
