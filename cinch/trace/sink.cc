#include "cinch/trace/sink.h"

#include <algorithm>

namespace cinch::trace {

NameTable::NameTable() { intern({}); }

NameId NameTable::intern(std::string_view text) {
  if (const auto known = ids_.find(text); known != ids_.end()) return known->second;
  const NameId id{static_cast<std::uint32_t>(texts_.size())};
  ids_.emplace(texts_.emplace_back(text), id);
  return id;
}

void PeakMeter::on_event(const Event& event) {
  switch (event.action) {
    case Action::kAlloc:
      live_ += event.bytes;
      peak_ = std::max(peak_, live_);
      break;
    case Action::kFreeCompleted:
      live_ -= event.bytes;
      break;
    case Action::kSegmentAlloc:
    case Action::kSegmentMap:
      reserved_ += event.bytes;
      peak_reserved_ = std::max(peak_reserved_, reserved_);
      break;
    case Action::kSegmentFree:
    case Action::kSegmentUnmap:
      reserved_ -= event.bytes;
      break;
    default:
      break;
  }
}
}  // namespace cinch::trace
