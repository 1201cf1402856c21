#include "cinch/inspect/internal/sites.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace cinch::inspect::internal {

using trace::Action;
using trace::Event;

namespace {
/// Leaves the last kExact and, of those before, about as many at even distances.
void thin(std::vector<Growth::Moment>& moments) {
  const std::size_t older = moments.size() - Growth::kExact;
  const std::size_t distance = (moments[older - 1].period - moments[0].period) / Growth::kExact + 1;
  std::size_t kept = 1;
  for (std::size_t i = 1; i < moments.size(); ++i) {
    if (i >= older || moments[i].period - moments[kept - 1].period >= distance) moments[kept++] = moments[i];
  }
  moments.resize(kept);
}

std::size_t mix(std::size_t seed, std::size_t value) {
  return (seed ^ (value + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2))) * 0xff51afd7ed558ccdu;
}
}  // namespace

std::size_t HashSite::operator()(const Site& site) const {
  std::size_t hash = mix(0, static_cast<std::size_t>(site.stack));
  hash = mix(hash, static_cast<std::size_t>(site.module));
  return mix(hash, (static_cast<std::size_t>(site.op) << 8) | static_cast<std::size_t>(site.phase));
}

std::size_t HashMark::operator()(const Mark& mark) const {
  return mix(HashSite()(mark.site), static_cast<std::size_t>(mark.bytes.count()));
}

Site SiteNames::of(const Event& event) const {
  if (event.stack != trace::StackId{}) return {.stack = event.stack};
  const auto op = static_cast<std::size_t>(event.op);
  return {.module = event.module, .op = op < ops_.size() ? ops_[op] : trace::NameId{}, .phase = event.phase};
}

std::size_t Growth::aged_at(std::size_t period) const {
  const auto after = std::upper_bound(moments.begin(), moments.end(), period,
                                      [](std::size_t p, const Moment& moment) { return p < moment.period; });
  if (after == moments.begin()) return moments.empty() ? 0 : moments.front().aged;  // What was there before all.
  const Moment& moment = *std::prev(after);
  return moment.period == period ? moment.aged : moment.live;
}

void GrowthMeter::on_begin(const trace::TraceHeader& /*header*/, const trace::NameTable& names) { names_ = &names; }

void GrowthMeter::on_op(trace::OpId /*id*/, const trace::OpCall& call) { site_names_.on_op(call); }

void GrowthMeter::on_event(const Event& event) {
  if (!event.before) {
    if (begins_period(event)) end_period();
    ++position_;
  }
  if (event.action == Action::kAlloc) allocate(event);
  if (event.action == Action::kFreeCompleted) release(event.allocation);
  if (event.action == Action::kOom) ran_out_ = true;
}

bool GrowthMeter::begins_period(const Event& event) {
  if (cut_.by_step) {
    const bool later = step_ && event.step > *step_;
    if (!step_ || later) step_ = event.step;
    return later;
  }
  if (cut_.mark) {
    return event.action == Action::kAlloc && event.bytes == cut_.mark->bytes &&
           site_names_.of(event) == cut_.mark->site;
  }
  if (next_cut_ == cut_.events.size() || position_ < cut_.events[next_cut_]) return false;
  ++next_cut_;
  return true;
}

void GrowthMeter::allocate(const Event& event) {
  const Site site = site_names_.of(event);
  const auto [place, fresh] = ids_.emplace(site, static_cast<std::uint32_t>(states_.size()));
  if (fresh) states_.push_back({.site = site, .growth = {}, .live_bytes = {}, .fresh_bytes = {}, .freed_bytes = {}});
  State& state = states_[place->second];
  const std::size_t born = event.before ? kBefore : period_;
  if (!live_.emplace(static_cast<std::uint32_t>(event.allocation), Life{place->second, born, event.bytes}).second)
    return;
  live_bytes_ += event.bytes;
  peak_ = std::max(peak_, live_bytes_);
  if (event.before) {
    ++state.live;
    state.live_bytes += event.bytes;
    return;
  }
  ++state.fresh;
  state.fresh_bytes += event.bytes;
  allocated_in_period_ += event.bytes;
  touch(place->second);
}

void GrowthMeter::release(trace::AllocationId id) {
  const auto found = live_.find(static_cast<std::uint32_t>(id));
  if (found == live_.end()) return;
  const Life life = found->second;
  live_.erase(found);
  live_bytes_ -= life.bytes;
  trough_ = std::min(trough_, live_bytes_);
  State& state = states_[life.site];
  if (life.born == period_) {
    --state.fresh;
    state.fresh_bytes -= life.bytes;
    return;
  }
  ++state.freed;
  state.freed_bytes += life.bytes;
  freed_.push_back(life);
  touch(life.site);
}

void GrowthMeter::touch(std::uint32_t site) {
  if (states_[site].touched) return;
  states_[site].touched = true;
  touched_.push_back(site);
}

void GrowthMeter::end_period() {
  for (const Life& life : freed_) {
    if (life.born == kBefore) continue;
    Growth& growth = states_[life.site].growth;
    if (period_ - life.born >= 2) ++growth.old_frees;
    const auto births = std::lower_bound(growth.births.begin(), growth.births.end(), life.born,
                                         [](const Growth::Births& b, std::size_t period) { return b.period < period; });
    births->bytes -= life.bytes;
    if (--births->count == 0) growth.births.erase(births);
  }
  freed_.clear();
  for (const std::uint32_t site : touched_) end_period(states_[site]);
  touched_.clear();
  if (period_ > 0) {
    swings_ += static_cast<double>((peak_ - trough_).count());
    allocated_ += static_cast<double>(allocated_in_period_.count());
    left_ += static_cast<double>((live_bytes_ - live_at_end_of_last_).count());
  }
  highest_end_ = std::max(highest_end_, live_bytes_);
  deepest_fall_ = std::max(deepest_fall_, highest_end_ - live_bytes_);
  allocated_in_period_ = Bytes(0);
  peak_of_last_ = peak_;
  peak_ = trough_ = live_at_end_of_last_ = live_bytes_;
  ++period_;
}

void GrowthMeter::end_period(State& state) const {
  state.touched = false;
  if (state.fresh == 0 && state.freed == 0) return;  // Nothing that outlived this period came or went.
  Growth& growth = state.growth;
  const std::size_t aged = state.live - state.freed;
  state.live = aged + state.fresh;
  state.live_bytes = state.live_bytes - state.freed_bytes + state.fresh_bytes;
  if (growth.moments.empty()) growth.name = name_of(state.site);
  if (state.fresh > 0) growth.births.push_back({period_, state.fresh, state.fresh_bytes});
  growth.moments.push_back({period_, aged, state.live, state.live_bytes});
  state.fresh = state.freed = 0;
  state.fresh_bytes = state.freed_bytes = Bytes(0);
  if (growth.moments.size() == kMoments) thin(growth.moments);
}

bool GrowthMeter::look_like_steps() const {
  const double average_swing = swings_ / static_cast<double>(std::max<std::size_t>(1, period_ - 1));
  return period_ > 1 && static_cast<double>(deepest_fall_.count()) <= 2 * average_swing && 2 * left_ <= allocated_;
}

std::string GrowthMeter::name_of(const Site& site) const {
  if (names_ == nullptr) return {};
  const std::string &module = (*names_)[site.module], &op = (*names_)[site.op];
  return module + (module.empty() || op.empty() ? "" : " ") + op;
}

void GrowthMeter::finish() {
  names_ = nullptr;  // Its producer may be gone.
  const bool taken_down = live_bytes_ < Bytes(live_at_end_of_last_.count() / 2);
  if (cut_.by_step && !ran_out_ && !taken_down) end_period();
}

void GrowthMeter::each(const std::function<void(const Site&, const Growth&)>& visit) const {
  for (const State& state : states_) {
    if (!state.growth.moments.empty()) visit(state.site, state.growth);
  }
}

void PeriodFinder::on_op(trace::OpId /*id*/, const trace::OpCall& call) { site_names_.on_op(call); }

void PeriodFinder::on_event(const Event& event) {
  if (event.before) return;
  if (event.step > step_) {
    step_ = event.step;
    ++steps_;
  }
  if (event.action == Action::kAlloc) {
    Gaps& gaps = gaps_[{site_names_.of(event), event.bytes}];
    if (gaps.count == 0) {
      gaps.first = position_;
    } else {
      const std::size_t gap = position_ - gaps.last;
      gaps.shortest = gaps.count == 1 ? gap : std::min(gaps.shortest, gap);
      gaps.longest = std::max(gaps.longest, gap);
    }
    gaps.last = position_;
    ++gaps.count;
  }
  ++position_;
}

/// Once a period: never twice in a row, never long absent (but for an evaluation in between), over half the recording,
/// to its end, and from its begin but for a set-up.
bool PeriodFinder::Gaps::regular(std::size_t events) const {
  if (count < 3 || last - first < events / 2) return false;
  const double mean = static_cast<double>(last - first) / static_cast<double>(count - 1);
  const auto absent = [&](std::size_t gap) { return static_cast<double>(gap) > 6 * mean; };
  if (absent(longest) || absent(events - last) || (absent(first) && first > events / 4)) return false;
  return static_cast<double>(shortest) >= 0.5 * mean;
}

std::optional<Mark> PeriodFinder::mark() const {
  // What comes once a step comes as often as most of what is regular, by number of allocations.
  std::map<std::size_t, std::size_t> votes;
  for (const auto& [mark, gaps] : gaps_) {
    if (gaps.regular(position_)) votes[gaps.count] += gaps.count;
  }
  std::size_t best_count = 0, best_votes = 0;
  for (const auto& [count, own] : votes) {
    std::size_t sum = own;
    if (const auto next = votes.find(count + 1); next != votes.end()) sum += next->second;
    if (const auto before = votes.find(count - 1); before != votes.end()) sum += before->second;
    if (sum >= best_votes) std::tie(best_count, best_votes) = std::pair(count, sum);
  }
  const Mark* best = nullptr;
  std::tuple<double, std::size_t> best_rank{};
  for (const auto& [mark, gaps] : gaps_) {
    if (gaps.count + 1 < best_count || gaps.count > best_count + 1 || !gaps.regular(position_)) continue;
    const double swing = static_cast<double>(gaps.longest) / static_cast<double>(gaps.shortest);
    const std::tuple rank(swing, gaps.first);
    if (best == nullptr || rank < best_rank) {
      best = &mark;
      best_rank = rank;
    }
  }
  return best != nullptr ? std::optional(*best) : std::nullopt;
}
}  // namespace cinch::inspect::internal
