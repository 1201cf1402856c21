#include "cinch/record/internal/step_plan.h"

#include <chrono>

#include "cinch/placement/placement.h"

namespace cinch::record::internal {
namespace {
/// How many places may be passed over to find the one that fits: enough for a few requests that did not come this time.
constexpr int kLookAhead = 16;

/// Training waits for it.
constexpr std::chrono::milliseconds kPlanningTime{300};
}  // namespace

std::uint32_t StepRecord::made(std::size_t bytes) {
  requests_.push_back({bytes, clock_++, kOutlives});
  return static_cast<std::uint32_t>(requests_.size() - 1);
}

void StepRecord::clear() noexcept {
  requests_.clear();
  clock_ = 0;
}

StepPlan::StepPlan(const StepRecord& step) {
  std::vector<placement::Buffer> blocks, tensors;
  for (const auto& request : step.requests()) {
    slots_.push_back({request.bytes, {}});
    if (request.freed == StepRecord::kOutlives) continue;
    tensors.push_back({request.made, request.freed, Bytes(static_cast<std::int64_t>(request.bytes))});
    blocks.push_back(tensors.back());
    blocks.back().size = Bytes(static_cast<std::int64_t>(block_size(request.bytes)));
  }
  load_ = placement::live_load(tensors);
  placement::Options options;
  options.alignment = Bytes(kAlignment);
  options.time_limit = kPlanningTime;
  const auto placed = placement::place(blocks, options);
  height_ = static_cast<std::size_t>(placed.height.count());
  auto offset = placed.offsets.begin();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (step.requests()[i].freed != StepRecord::kOutlives)
      slots_[i].offset = static_cast<std::size_t>((offset++)->count());
  }
}

StepPlan::Answer StepPlan::next(std::size_t bytes) noexcept {
  int passed = 0;
  for (std::size_t i = next_; i < slots_.size() && passed <= kLookAhead; ++i) {
    const Slot& slot = slots_[i];
    // What outlives a step is often made in the first one only: it is taken where it is expected, else passed over.
    if (slot.bytes == bytes && (slot.offset || i == next_)) {
      next_ = i + 1;
      return {true, slot.offset};
    }
    if (slot.offset) ++passed;
  }
  return {};
}
}  // namespace cinch::record::internal
