#include "cinch/train/internal/run_recording.h"

namespace cinch::train {
using trace::Action;
using trace::Phase;

void RunRecording::on_begin(const trace::TraceHeader& header, const trace::NameTable& names) {
  kept_.on_begin(header, names);
}

bool RunRecording::in_window(const trace::Event& event) const {
  switch (event.phase) {
    case Phase::kEvaluation:
      return event.step == windows_.evaluation_step;
    case Phase::kSave:
      return event.step == windows_.save_step;
    default:
      return event.step <= windows_.last_step;
  }
}

void RunRecording::on_event(const trace::Event& event) {
  if (event.action == Action::kAlloc) live_ += event.bytes;
  if (event.action == Action::kFreeCompleted) live_ -= event.bytes;
  if (live_ > peak_) {
    peak_ = live_;
    peak_event_ = event;
  }
  trace::Event copy = event;
  copy.op = trace::kNoOp;  // A recording has none, and a prediction's are not kept.
  const auto id = static_cast<std::uint32_t>(event.allocation);
  const bool windowed = in_window(event);
  if (event.action == Action::kFreeCompleted) {
    const auto known = ids_.find(id);
    if (known == ids_.end()) return;
    copy.allocation = known->second;
    ids_.erase(known);
  } else if (!windowed) {
    return;
  } else if (event.action == Action::kAlloc) {
    copy.allocation = trace::AllocationId{next_id_++};
    ids_[id] = copy.allocation;
  }
  // One evaluation and one save follow the last step of a prediction.
  if (copy.phase == Phase::kEvaluation || copy.phase == Phase::kSave) copy.step = windows_.last_step;
  kept_.on_event(copy);
}

void RunRecording::on_tensor(trace::AllocationId allocation, const trace::TensorInfo& info) {
  const auto known = ids_.find(static_cast<std::uint32_t>(allocation));
  if (known != ids_.end()) kept_.on_tensor(known->second, info);
}

void RunRecording::on_label(trace::AllocationId allocation, trace::Category category, trace::NameId name) {
  const auto known = ids_.find(static_cast<std::uint32_t>(allocation));
  if (known != ids_.end()) kept_.on_label(known->second, category, name);
}
}  // namespace cinch::train
