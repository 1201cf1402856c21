#include "cinch/inspect/categories.h"

#include <algorithm>
#include <array>

#include "cinch/inspect/internal/categorizer.h"

namespace cinch::inspect {
namespace {

struct Row {
  trace::Category category;
  std::string_view name;
};

constexpr std::array<Row, kKindCount> kRows = {{{trace::Category::kParameter, "parameters"},
                                                {trace::Category::kGradient, "gradients"},
                                                {trace::Category::kActivation, "activations"},
                                                {trace::Category::kOptimizerState, "optimizer state"},
                                                {trace::Category::kInput, "input"},
                                                {trace::Category::kBuffer, "buffers, input"},
                                                {trace::Category::kTemporary, "temporary"},
                                                {trace::Category::kUnknown, "unknown"},
                                                {trace::Category::kParameter, "frozen parameters"},
                                                {trace::Category::kGradient, "gradient buckets"},
                                                {trace::Category::kActivation, "autocast weight copies"},
                                                {trace::Category::kActivation, "recomputed activations"},
                                                {trace::Category::kTemporary, "cuBLAS workspaces"},
                                                {trace::Category::kTemporary, "cuDNN workspaces"},
                                                {trace::Category::kTemporary, "communication"},
                                                {trace::Category::kUnknown, "leaked"}}};

/// Whether any allocation of the recording has a stack that says something: those of the blocks in a snapshot's state
/// may, though its history has none.
class StackedEvents final : public trace::Sink {
 public:
  explicit StackedEvents(const trace::StackTable& stacks) : reader_(stacks) {}
  void on_event(const trace::Event& event) override {
    if (any_ || event.before || event.action != trace::Action::kAlloc) return;
    any_ = reader_.says_something(event.stack);
  }
  bool any() const { return any_; }

 private:
  internal::StackReader reader_;
  bool any_ = false;
};
}  // namespace

trace::Category category_of(Kind kind) { return kRows[static_cast<std::size_t>(kind)].category; }
std::string_view name_of(Kind kind) { return kRows[static_cast<std::size_t>(kind)].name; }

const PhaseRun& Kinds::phase_at(std::size_t event) const {
  const auto after = std::upper_bound(phases.begin(), phases.end(), event,
                                      [](std::size_t at, const PhaseRun& run) { return at < run.first_event; });
  return after == phases.begin() ? phases.front() : *(after - 1);
}

Kinds categorize(const snapshot::Snapshot& snapshot, const snapshot::Device& device) {
  std::string optimizer;
  auto steps = internal::optimizer_intervals(snapshot, optimizer);
  StackedEvents stacked(snapshot.stacks());
  snapshot.play(device, stacked);
  internal::Categorizer categorizer(snapshot.stacks(), std::move(steps), device.first_event > 0, stacked.any());
  snapshot.play(device, categorizer);
  Kinds kinds = categorizer.finish();
  kinds.optimizer = std::move(optimizer);
  return kinds;
}
}  // namespace cinch::inspect
