#include "cinch/plan/internal/walk.h"

#include <algorithm>
#include <limits>
#include <map>

namespace cinch::plan::internal {
using trace::Action;
using trace::Event;
using trace::Phase;

void Place::move_to(const Event& event) {
  began_forward = began_backward = false;
  if (first_ || event.step != step_) {
    micro_batch = 0;
    forwards_ = 0;
    step_ = event.step;
    phase_ = Phase::kOther;
    first_ = false;
  }
  if (event.phase == Phase::kForward && phase_ != Phase::kForward) {
    micro_batch = forwards_++;
    began_forward = true;
  }
  if (event.phase == Phase::kBackward && phase_ != Phase::kBackward) began_backward = true;
  phase_ = event.phase;
}

int Roots::operator()(trace::NameId name) {
  const auto at = static_cast<std::size_t>(name);
  if (at >= roots_.size()) roots_.resize(at + 1, kUnread);
  if (roots_[at] == kUnread) roots_[at] = modules_.find(trace_.name(name));
  return roots_[at];
}

ModuleIndex::ModuleIndex(std::span<const std::string> modules) {
  for (const std::string& path : modules) by_path_.emplace(path, static_cast<int>(by_path_.size()));
}

int ModuleIndex::find(std::string_view path) const {
  for (std::string prefix(path); !prefix.empty();) {
    if (const auto found = by_path_.find(prefix); found != by_path_.end()) return found->second;
    const std::size_t dot = prefix.rfind('.');
    if (dot == std::string::npos) break;
    prefix.resize(dot);
  }
  return -1;
}

std::vector<std::size_t> highest_of_each_run(const trace::Trace& trace) {
  std::vector<std::size_t> highest;
  std::int64_t live = 0, most = 0;
  const Event* before = nullptr;
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const Event& event = trace.events()[i];
    if (event.action == Action::kAlloc) live += event.bytes.count();
    if (event.action == Action::kFreeCompleted) live -= event.bytes.count();
    const bool same = before != nullptr && before->step == event.step && before->phase == event.phase &&
                      before->module == event.module && before->recompute == event.recompute;
    if (!same) highest.push_back(i);
    if (!same || live > most) {
      most = live;
      highest.back() = i;
    }
    before = &event;
  }
  return highest;
}
std::int64_t state_between_steps(const trace::Trace& trace) {
  std::int64_t live = 0, least = std::numeric_limits<std::int64_t>::max();
  const std::uint32_t last = trace.steps();
  for (const Event& event : trace.events()) {
    if (event.step == last) least = std::min(least, live);
    if (event.action != Action::kAlloc && event.action != Action::kFreeCompleted) continue;
    if (trace.allocation(event.allocation).category != trace::Category::kOptimizerState) continue;
    live += event.action == Action::kAlloc ? event.bytes.count() : -event.bytes.count();
  }
  return std::min(least, live);
}

std::set<std::string, std::less<>> modules_that_differ(const trace::Trace& a, const trace::Trace& b) {
  const auto made = [](const trace::Trace& trace) {
    const std::uint32_t last = trace.steps();
    std::map<std::string, std::multiset<std::int64_t>, std::less<>> by_module;
    for (const trace::Allocation& one : trace.allocations()) {
      if (one.step != last || (one.phase != Phase::kForward && one.phase != Phase::kBackward)) continue;
      by_module[std::string(trace.name(one.module))].insert(one.bytes.count());
    }
    return by_module;
  };
  const auto of_a = made(a), of_b = made(b);
  std::set<std::string, std::less<>> differ;
  const auto compare = [&](const auto& left, const auto& right) {
    for (const auto& [name, bytes] : left) {
      const auto there = right.find(name);
      if (there == right.end() || there->second != bytes) differ.insert(name);
    }
  };
  compare(of_a, of_b);
  compare(of_b, of_a);
  return differ;
}
}  // namespace cinch::plan::internal
