#include "cinch/inspect/internal/passes.h"

#include <algorithm>
#include <utility>

namespace cinch::inspect::internal {

using trace::Action;

namespace {
constexpr std::int64_t kMinBlock = 512;

Bytes rounded_up(Bytes bytes) { return Bytes((bytes.count() + kMinBlock - 1) / kMinBlock * kMinBlock); }

bool has_allocation(const trace::Event& event) { return event.allocation != trace::kNoAllocation; }
}  // namespace

Meter::Meter(const Kinds* kinds, std::size_t events, std::size_t points, std::optional<Bytes> capacity)
    : kinds_(kinds),
      stretch_(std::max<std::size_t>(events / std::max<std::size_t>(points, 1), 1)),
      capacity_(capacity) {}

void Meter::on_event(const trace::Event& event) {
  count(event);
  if (event.before) {
    totals_.peak = live_;
    totals_.rounded_peak = rounded_;
    totals_.peak_reserved = reserved_;
    return;
  }
  const std::size_t at = totals_.events++;
  if (live_ > totals_.peak) {
    totals_.peak = live_;
    totals_.peak_event = at;
  }
  totals_.rounded_peak = std::max(totals_.rounded_peak, rounded_);
  if (reserved_ > totals_.peak_reserved) {
    totals_.peak_reserved = reserved_;
    totals_.peak_reserved_event = at;
  }
  watch(event, at);
  if (kinds_ != nullptr) draw();
}

/// What failed when it was recorded, and what would have at the capacity.
void Meter::watch(const trace::Event& event, std::size_t at) {
  if (event.action == Action::kOom && !totals_.oom) {
    totals_.oom = event;
    totals_.oom_event = at;
    totals_.reserved_at_oom = reserved_;
    totals_.free_at_oom = Bytes(static_cast<std::int64_t>(event.address));
  }
  if (!capacity_ || totals_.over_event) return;
  const bool refused = event.action == Action::kOom, asks = refused || event.action == Action::kAlloc;
  if (live_ + (refused ? event.bytes : Bytes(0)) <= *capacity_) return;
  totals_.over_event = at;
  totals_.over_asked = asks ? event.bytes : Bytes(0);
}

void Meter::count(const trace::Event& event) {
  switch (event.action) {
    case Action::kAlloc:
      live_ += event.bytes;
      rounded_ += rounded_up(event.bytes);
      if (kinds_ != nullptr)
        by_category_[category_of(kinds_->of[static_cast<std::size_t>(event.allocation)])] += event.bytes;
      break;
    case Action::kFreeCompleted:
      if (!has_allocation(event)) break;
      live_ -= event.bytes;
      rounded_ -= rounded_up(event.bytes);
      if (kinds_ != nullptr)
        by_category_[category_of(kinds_->of[static_cast<std::size_t>(event.allocation)])] -= event.bytes;
      break;
    case Action::kSegmentAlloc:
    case Action::kSegmentMap:
      reserved_ += event.bytes;
      break;
    case Action::kSegmentFree:
    case Action::kSegmentUnmap:
      reserved_ -= event.bytes;
      break;
    default:
      break;
  }
}

/// One point a stretch of events: the moment with the most. The peak is its stretch's.
void Meter::draw() {
  const std::size_t at = totals_.events - 1;
  if (at % stretch_ == 0) highest_in_stretch_ = Bytes(-1);
  if (live_ <= highest_in_stretch_) return;
  if (highest_in_stretch_ == Bytes(-1)) totals_.curve.emplace_back();
  highest_in_stretch_ = live_;
  const PhaseRun& run = kinds_->phase_at(at);
  totals_.curve.back() = {at, run.phase, run.step, by_category_, reserved_};
}

Meter::Totals Meter::take() {
  totals_.end = live_;
  totals_.end_reserved = reserved_;
  return std::move(totals_);
}

Moments::Moments(std::vector<std::size_t> events, Layout* layout) : wanted_(std::move(events)), layout_(layout) {
  std::sort(wanted_.begin(), wanted_.end());
  wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
}

void Moments::on_event(const trace::Event& event) {
  if (layout_ != nullptr) layout_->apply(event);
  if (event.action == Action::kAlloc) {
    live_[static_cast<std::uint32_t>(event.allocation)] = {event.allocation, event.bytes, event.stack, event.before,
                                                           event.address};
  } else if (event.action == Action::kFreeCompleted && has_allocation(event)) {
    live_.erase(static_cast<std::uint32_t>(event.allocation));
  }
  if (event.before) return;
  if (next_ < wanted_.size() && wanted_[next_] == events_) keep(wanted_[next_++], event);
  ++events_;
}

void Moments::finish() {
  while (next_ < wanted_.size()) keep(wanted_[next_++], {});
}

void Moments::keep(std::size_t event, const trace::Event& last) {
  Moment& moment = moments_[event];
  moment.live.reserve(live_.size());
  for (const auto& [id, allocation] : live_) moment.live.push_back(allocation);
  std::sort(moment.live.begin(), moment.live.end(),
            [](const Allocation& left, const Allocation& right) { return left.id < right.id; });
  if (layout_ != nullptr) moment.segments = layout_->segments();
  moment.action = last.action;
  moment.stack = last.stack;
  moment.stream = last.stream;
  moment.pool = last.pool;
}
}  // namespace cinch::inspect::internal
