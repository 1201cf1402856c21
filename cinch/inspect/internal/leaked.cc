#include "cinch/inspect/internal/leaked.h"

#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "cinch/trace/sink.h"

namespace cinch::inspect::internal {
namespace {

class Marker final : public trace::Sink {
 public:
  Marker(const Leaks& leaks, Kinds& kinds) : kinds_(kinds) {
    for (const Leak& leak : leaks.found) {
      if (leak.stack != trace::StackId{}) leaks_.insert({static_cast<std::uint32_t>(leak.stack), leak.kind});
    }
  }
  bool nothing_to_do() const { return leaks_.empty(); }

  void on_event(const trace::Event& event) override {
    if (event.allocation == trace::kNoAllocation) return;
    const auto id = static_cast<std::uint32_t>(event.allocation);
    if (event.action == trace::Action::kFreeCompleted) live_.erase(id);
    if (event.action != trace::Action::kAlloc || event.before) return;
    const auto leak = leaks_.find(static_cast<std::uint32_t>(event.stack));
    if (leak == leaks_.end()) return;
    if (leak->second == Leak::Kind::kGrowing) {
      kinds_.of[id] = Kind::kLeaked;
    } else {
      live_.insert(id);
    }
  }
  void finish() {
    for (const std::uint32_t id : live_) kinds_.of[id] = Kind::kLeaked;
  }

 private:
  std::unordered_map<std::uint32_t, Leak::Kind> leaks_;
  std::unordered_set<std::uint32_t> live_;
  Kinds& kinds_;
};
}  // namespace

void mark_leaked(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Leaks& leaks, Kinds& kinds) {
  Marker marker(leaks, kinds);
  if (marker.nothing_to_do()) return;
  snapshot.play(device, marker);
  marker.finish();
}
}  // namespace cinch::inspect::internal
