#include "cinch/report/summarize.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cinch/report/internal/format.h"

namespace cinch::report {
namespace {

using trace::Action;

bool same_run(const trace::Event& left, const trace::Event& right) {
  return left.step == right.step && left.phase == right.phase;
}

std::size_t runs_in(std::span<const trace::Event> events) {
  std::size_t runs = events.empty() ? 0 : 1;
  for (std::size_t i = 1; i < events.size(); ++i) runs += same_run(events[i - 1], events[i]) ? 0 : 1;
  return runs;
}
}  // namespace

PeakSummary summarize_peak(const trace::Trace& trace, std::size_t tensors) {
  const trace::Timeline timeline(trace);
  const trace::Timeline::Peak peak = timeline.peak();
  PeakSummary summary;
  summary.requested = peak.bytes;
  summary.step = peak.step;
  summary.phase = peak.phase;
  summary.module = trace.name(peak.module);
  summary.op = trace.op_name(peak.op);
  if (trace.events().empty()) return summary;
  summary.categories = timeline.live_by_category(peak.event);
  summary.tensors = plan::peak_tensors(trace, tensors);
  std::map<std::uint32_t, Bytes> steps;  // One pass: a recording may have thousands.
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    Bytes& highest = steps[trace.events()[i].step];
    highest = std::max(highest, timeline.live(i));
  }
  summary.steps.assign(steps.begin(), steps.end());
  return summary;
}

namespace {

/// The one of `modules` that `path` is or lies in; null if there is none.
const std::string* owner(std::string_view path, const std::set<std::string, std::less<>>& modules) {
  for (std::size_t end = path.size();; end = path.rfind('.', end - 1)) {
    const auto found = modules.find(path.substr(0, end));
    if (found != modules.end()) return &*found;
    if (end == 0 || path.rfind('.', end - 1) == std::string_view::npos) return nullptr;
  }
}
}  // namespace

std::vector<ActivationGroup> activation_groups(const trace::Trace& trace, const std::vector<std::string>& modules,
                                               std::int64_t classes) {
  using Kind = ActivationGroup::Kind;
  const std::set<std::string, std::less<>> known(modules.begin(), modules.end());
  std::map<std::string, std::size_t> alike;  // Pattern of a path → how many modules have it.
  for (const std::string& module : modules) ++alike[internal::pattern(module)];
  std::map<std::pair<Kind, std::string>, ActivationGroup> groups;
  const trace::Timeline timeline(trace);
  for (const trace::AllocationId id : timeline.live_allocations(timeline.peak().event)) {
    const trace::Allocation& allocation = trace.allocation(id);
    if (allocation.category != trace::Category::kActivation && allocation.category != trace::Category::kTemporary)
      continue;
    const std::string_view module = trace.name(allocation.module);
    const bool scores = classes > 0 && allocation.tensor && allocation.tensor->sizes.size() > 1 &&
                        allocation.tensor->sizes.back() == classes;
    ActivationGroup group{.kind = Kind::kOther, .name = std::string(module), .count = 0, .bytes = Bytes()};
    if (allocation.labelled) {
      group.name = std::string(trace.name(allocation.name));  // Of a library: a workspace.
    } else if (!trace.name(allocation.name).empty()) {
      group = {.kind = Kind::kWeightCopies, .name = "", .count = 0, .bytes = Bytes()};
    } else if (scores) {
      group = {.kind = Kind::kLogits, .name = "", .count = 0, .bytes = Bytes()};
    } else if (const std::string* block = owner(module, known)) {
      group = {.kind = Kind::kBlocks, .name = internal::pattern(*block), .count = 0, .bytes = Bytes()};
    }
    ActivationGroup& sum = groups.try_emplace({group.kind, group.name}, group).first->second;
    sum.count = group.kind == Kind::kBlocks ? alike[group.name] : sum.count + 1;
    sum.bytes += allocation.bytes;
  }
  std::vector<ActivationGroup> result;
  result.reserve(groups.size());
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return result;
}

Curve thin(const trace::Trace& trace, std::size_t points) {
  const auto events = trace.events();
  Curve curve;
  if (events.empty() || points == 0) return curve;
  // A stretch ends with its phase as long as there are few phases: each then has a point of its own.
  const std::size_t runs = runs_in(events);
  const bool by_phase = runs <= points / 2;
  const std::size_t room = by_phase ? points - runs : points;
  const std::size_t stretch = (events.size() + room - 1) / room;

  trace::CategoryBytes live;
  for (const trace::Allocation& allocation : trace.allocations()) {
    if (allocation.allocated_at == trace::kBeforeTrace) live[allocation.category] += allocation.bytes;
  }
  Bytes total = live.sum(), highest;
  std::size_t length = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const trace::Event& event = events[i];
    if (event.action == Action::kAlloc || event.action == Action::kFreeCompleted) {
      const trace::Allocation& allocation = trace.allocation(event.allocation);
      const Bytes change = event.action == Action::kAlloc ? allocation.bytes : Bytes() - allocation.bytes;
      live[allocation.category] += change;
      total += change;
    }
    const bool begins = length == 0 || length == stretch || (by_phase && !same_run(events[i - 1], event));
    if (begins) length = 0;
    if (begins || total > highest) {
      if (begins) curve.points.emplace_back();
      curve.points.back() = {event.step, event.phase, live, i};
      highest = total;
    }
    ++length;
    curve.peak = std::max(curve.peak, total);
  }
  return curve;
}
}  // namespace cinch::report
