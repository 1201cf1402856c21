#include "cinch/report/history.h"

#include <limits>
#include <string_view>
#include <unordered_map>

namespace cinch::report {
namespace {

using trace::Action;

/// Numbers for names, by order of appearance.
class Names {
 public:
  explicit Names(std::vector<std::string>& names) : names_(names) { numbers_.emplace("", 0); }
  std::uint32_t operator()(std::string_view name) {
    const auto [slot, fresh] = numbers_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
    if (fresh) names_.emplace_back(name);
    return slot->second;
  }

 private:
  std::vector<std::string>& names_;
  std::unordered_map<std::string, std::uint32_t> numbers_;
};

struct HashKind {
  std::size_t operator()(const History::Kind& kind) const {
    std::uint64_t hash = static_cast<std::uint64_t>(kind.change.count());
    for (const std::uint64_t part : {std::uint64_t{kind.module}, std::uint64_t{kind.op},
                                     static_cast<std::uint64_t>(kind.category) * 2 + (kind.recompute ? 1 : 0)}) {
      hash = (hash ^ part) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

History::Kind kind_of(const trace::Trace& trace, const trace::Event& event, Names& name) {
  History::Kind kind;
  if (event.action == Action::kAlloc || event.action == Action::kFreeCompleted) {
    const trace::Allocation& allocation = trace.allocation(event.allocation);
    kind.change = event.action == Action::kAlloc ? allocation.bytes : Bytes() - allocation.bytes;
    kind.category = allocation.category;
  }
  kind.recompute = event.recompute;
  kind.module = name(trace.name(event.module));
  kind.op = name(trace.op_name(event.op));
  return kind;
}
}  // namespace

History history(const trace::Trace& trace) {
  History history;
  const auto events = trace.events();
  if (events.empty() || events.size() > kMostEvents) return history;
  for (const trace::Allocation& allocation : trace.allocations()) {
    if (allocation.allocated_at == trace::kBeforeTrace) history.before[allocation.category] += allocation.bytes;
  }
  Names name(history.names);
  std::unordered_map<History::Kind, std::uint32_t, HashKind> numbers;
  history.events.reserve(events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    const trace::Event& event = events[i];
    const History::Kind kind = kind_of(trace, event, name);
    const auto [slot, fresh] = numbers.try_emplace(kind, static_cast<std::uint32_t>(history.kinds.size()));
    if (fresh) history.kinds.push_back(kind);
    history.events.push_back(slot->second);
    if (history.runs.empty() || history.runs.back().step != event.step || history.runs.back().phase != event.phase)
      history.runs.push_back({i, event.step, event.phase});
  }
  history.tensors = plan::peak_tensors(trace, std::numeric_limits<std::size_t>::max());
  return history;
}
}  // namespace cinch::report
