#include "cinch/inspect/leaks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "cinch/inspect/call_path.h"
#include "cinch/inspect/internal/sites.h"

namespace cinch::inspect {
namespace {

using internal::Cut;
using internal::Growth;
using internal::GrowthMeter;
using internal::Site;

constexpr std::size_t kFewest = 3;      // Periods that must add to a leak.
constexpr std::size_t kGraphPaths = 4;  // Call paths of one graph, at least.

template <typename T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The first period that is looked at: what comes before the first boundary may be half a step, with set-up and warm-up
/// in it, and is used only where there is little else.
std::size_t first_period(std::size_t periods) { return periods >= 5 ? 1 : 0; }

/// Whether survivors from before each period's begin grow in number over [first, last], in each third of it, beneath
/// whatever they swing: by the smallest number that any later period's end shows.
bool rises_throughout(const Growth& growth, std::size_t first, std::size_t last) {
  const std::size_t span = last - first;
  if (span < 2) return false;
  std::array<std::size_t, 4> floor{};
  std::size_t lowest = growth.aged_at(last);
  std::size_t third = 3;
  for (std::size_t period = last + 1; period-- > first;) {
    lowest = std::min(lowest, growth.aged_at(period));
    while (third > 0 && period <= first + span * third / 3) floor[third--] = lowest;
  }
  floor[0] = lowest;
  const std::size_t whole = floor[3] - floor[0];
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t rise = floor[i + 1] - floor[i];
    if (rise == 0 && span >= 3) return false;
    if (6 * rise < whole && span >= 6) return false;
  }
  return whole > 0;
}

/// Whether at least a third of the average growth went on in the last `window` periods.
bool goes_on(const Growth& growth, std::size_t first, std::size_t last, std::size_t window) {
  window = std::min(window, last - first);
  const double all = static_cast<double>(growth.aged_at(last)) - static_cast<double>(growth.aged_at(first));
  const double recent = static_cast<double>(growth.aged_at(last)) - static_cast<double>(growth.aged_at(last - window));
  return recent > 0 && 3 * recent * static_cast<double>(last - first) >= all * static_cast<double>(window);
}

/// Bytes and allocations that a period adds. What the last two periods left may still be let go of as usual: they count
/// only where there is little else.
void rate(const std::vector<Growth::Births>& births, std::size_t first, std::size_t last, Leak& leak) {
  const std::size_t settled = last >= first + 4 ? last - 2 : last;
  std::vector<std::int64_t> bytes, counts;
  std::size_t end = first;
  for (const Growth::Births& born : births) {
    if (born.period < first || born.period > settled) continue;
    bytes.push_back(born.bytes.count());
    counts.push_back(static_cast<std::int64_t>(born.count));
    end = born.period;
  }
  const double interval =
      bytes.size() < 2 ? 1 : static_cast<double>(end - first) / static_cast<double>(bytes.size() - 1);
  leak.bytes_per_step = Bytes(std::llround(static_cast<double>(median(bytes)) / interval));
  leak.allocations_per_step = static_cast<double>(median(counts)) / interval;
}

/// Survivors of ever more periods.
std::optional<Leak> kept(const Growth& growth, std::size_t periods) {
  const std::size_t skip = first_period(periods), last = periods - 1;
  std::size_t sources = 0, survivors = 0, begin = 0;
  Bytes held;
  for (const Growth::Births& born : growth.births) {
    if (born.period < skip) continue;
    if (sources++ == 0) begin = born.period;
    survivors += born.count;
    held += born.bytes;
  }
  if (sources < kFewest) return std::nullopt;
  if (!rises_throughout(growth, begin, last)) return std::nullopt;
  // What began late may be all that a sawtooth, or a queue of fixed length, has left.
  const bool late = begin > skip + (last - skip) / 3;
  if (late && 4 * growth.old_frees > survivors) return std::nullopt;
  const std::size_t interval = std::max<std::size_t>(1, (growth.births.back().period - begin) / (sources - 1));
  if (!goes_on(growth, begin, last, std::max({std::size_t{3}, periods / 4, interval + 1}))) return std::nullopt;
  if (!goes_on(growth, begin, last, interval == 1 ? 3 : 2 * interval)) return std::nullopt;
  Leak leak;
  rate(growth.births, begin, last, leak);
  leak.held = held;
  leak.periods = sources;
  return leak;
}

/// The last moments from which on bytes never shrank.
std::vector<Growth::Moment> last_rise(const Growth& growth, std::size_t skip) {
  const auto& moments = growth.moments;
  std::size_t begin = moments.size() - 1;
  while (begin > 0 && moments[begin - 1].period >= skip && moments[begin - 1].bytes <= moments[begin].bytes &&
         moments[begin - 1].bytes > Bytes(0)) {
    --begin;
  }
  return {moments.begin() + static_cast<std::ptrdiff_t>(begin), moments.end()};
}

/// An allocation, or a few, replaced by larger ones.
std::optional<Leak> growing(const Growth& growth, std::size_t periods) {
  const std::size_t skip = first_period(periods), last = periods - 1;
  const std::vector<Growth::Moment> rise = last_rise(growth, skip);
  const std::size_t begin = rise.front().period;
  const std::size_t seen = std::max(skip, growth.moments.front().period);
  if (begin < skip || 2 * (last - begin) < last - seen) return std::nullopt;
  const std::size_t exact = rise.size() - std::min(rise.size(), Growth::kExact);
  std::vector<std::int64_t> steps;
  std::vector<std::size_t> when{rise[exact].period};
  for (std::size_t i = exact + 1; i < rise.size(); ++i) {
    if (rise[i].bytes == rise[i - 1].bytes) continue;
    steps.push_back((rise[i].bytes - rise[i - 1].bytes).count());
    when.push_back(rise[i].period);
  }
  if (steps.size() < kFewest) return std::nullopt;
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
  const bool even = *most - *least <= *least / 100;
  if (steps.size() < 4 && !even) return std::nullopt;  // Sizes that vary rise thrice in a row soon enough.
  std::size_t longest = 0;
  for (std::size_t i = 1; i < when.size(); ++i) longest = std::max(longest, when[i] - when[i - 1]);
  const double mean = static_cast<double>(when.back() - when.front()) / static_cast<double>(steps.size());
  // A record high comes ever more rarely, a cache that grows does not.
  if (mean > 2 && static_cast<double>(longest) > 1.5 * mean) return std::nullopt;
  if (static_cast<double>(last - when.back()) > mean + 1) return std::nullopt;
  const Bytes whole = rise.back().bytes - rise.front().bytes;
  const auto later = std::upper_bound(rise.begin(), rise.end(), begin + (last - begin) / 2,
                                      [](std::size_t half, const Growth::Moment& m) { return half < m.period; });
  if (4 * (rise.back().bytes - std::prev(later)->bytes).count() < whole.count()) return std::nullopt;
  Leak leak;
  leak.kind = Leak::Kind::kGrowing;
  const auto span = static_cast<std::int64_t>(last - begin);
  leak.bytes_per_step = mean < 1.34 ? Bytes(median(steps)) : Bytes(whole.count() / span);
  leak.held = whole;
  leak.periods = static_cast<std::size_t>(std::lround(static_cast<double>(when.back() - begin) / mean));
  return leak;
}

std::string path_of(const Site& site, const Growth& growth, const trace::StackTable* stacks) {
  if (site.stack != trace::StackId{} && stacks != nullptr) return to_string(call_path(*stacks, site.stack), 3);
  return growth.name.empty() ? "(no stack recorded)" : growth.name;
}

bool looks_like_graph(const std::vector<Leak>& leaks) {
  std::map<std::size_t, std::size_t> alike;
  for (const Leak& leak : leaks) {
    if (leak.kind == Leak::Kind::kKept && ++alike[leak.periods] >= kGraphPaths) return true;
  }
  return false;
}

void sum_up(Leaks& leaks, std::optional<Bytes> capacity) {
  std::stable_sort(leaks.found.begin(), leaks.found.end(),
                   [](const Leak& a, const Leak& b) { return a.bytes_per_step > b.bytes_per_step; });
  for (const Leak& leak : leaks.found) leaks.bytes_per_step += leak.bytes_per_step;
  leaks.graph_kept = looks_like_graph(leaks.found);
  leaks.capacity = capacity;
  if (!capacity || leaks.bytes_per_step <= Bytes(0)) return;
  const std::int64_t room = (*capacity - leaks.peak_of_last).count();
  leaks.steps_until_full = room < 0 ? 0 : static_cast<std::uint64_t>(room / leaks.bytes_per_step.count()) + 1;
}

/// No period: nothing can be said.
Leaks none(std::optional<Bytes> capacity) {
  Leaks leaks;
  leaks.capacity = capacity;
  return leaks;
}

Leaks measure(const Play& play, Cut cut, PeriodSource source, const LeakOptions& options) {
  GrowthMeter meter(std::move(cut));
  play(meter);
  meter.finish();
  Leaks leaks;
  leaks.source = source;
  leaks.periods = meter.periods();
  leaks.peak_of_last = meter.peak_of_last();
  if (meter.periods() < kFewest) return leaks;
  const bool counted = source == PeriodSource::kSteps || source == PeriodSource::kOptimizer;
  if (!counted && !meter.look_like_steps()) return none(options.capacity);
  meter.each([&](const Site& site, const Growth& growth) {
    std::optional<Leak> leak = kept(growth, meter.periods());
    if (!leak) leak = growing(growth, meter.periods());
    if (!leak || leak->bytes_per_step <= Bytes(0)) return;
    leak->stack = site.stack;
    leak->phase = site.phase;
    leak->path = path_of(site, growth, options.stacks);
    leaks.found.push_back(std::move(*leak));
  });
  sum_up(leaks, options.capacity);
  return leaks;
}
}  // namespace

Leaks find_leaks(const Play& play, const LeakOptions& options) {
  if (options.boundaries.size() >= kFewest) {
    return measure(play, {.events = options.boundaries}, options.source, options);
  }
  internal::PeriodFinder finder;
  play(finder);
  if (finder.steps() >= kFewest) return measure(play, {.events = {}, .by_step = true}, PeriodSource::kSteps, options);
  const std::optional<internal::Mark> mark = finder.mark();
  if (!mark) return none(options.capacity);
  return measure(play, {.events = {}, .mark = mark}, PeriodSource::kPattern, options);
}

namespace {
bool is_training(trace::Phase phase) { return phase == trace::Phase::kBackward || phase == trace::Phase::kOptimizer; }

/// Where each optimizer step begins.
std::vector<std::size_t> optimizer_begins(const Kinds& kinds) {
  std::vector<std::size_t> events;
  std::uint32_t step = 0;
  for (const PhaseRun& run : kinds.phases) {
    if (run.phase != trace::Phase::kOptimizer || run.step == step) continue;
    step = run.step;
    events.push_back(run.first_event);
  }
  return events;
}

/// Where each forward pass begins: in training the first part of it after a backward.
std::vector<std::size_t> forward_begins(const Kinds& kinds, bool trains) {
  std::vector<std::size_t> events;
  bool due = true;
  for (const PhaseRun& run : kinds.phases) {
    if (is_training(run.phase)) due = true;
    if (run.phase != trace::Phase::kForward || !due) continue;
    events.push_back(run.first_event);
    due = !trains;
  }
  return events;
}
}  // namespace

Leaks find_leaks(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Kinds& kinds,
                 std::optional<Bytes> capacity) {
  LeakOptions options{.capacity = capacity, .stacks = &snapshot.stacks()};
  const bool trains =
      std::any_of(kinds.phases.begin(), kinds.phases.end(), [](const PhaseRun& run) { return is_training(run.phase); });
  options.boundaries = optimizer_begins(kinds);
  if (options.boundaries.size() < kFewest) {
    options.boundaries = forward_begins(kinds, trains);
    options.source = PeriodSource::kForward;
    // What comes back regularly in one or two steps are layers.
    if (options.boundaries.size() < kFewest && kinds.by_stacks && trains) return none(capacity);
  }
  return find_leaks([&](trace::Sink& sink) { snapshot.play(device, sink); }, options);
}

Leaks find_leaks(const trace::Trace& trace, std::optional<Bytes> capacity) {
  return find_leaks([&](trace::Sink& sink) { trace.replay(sink); }, {.capacity = capacity});
}
}  // namespace cinch::inspect
