#include "cinch/plan/internal/memory_model.h"

#include <algorithm>
#include <numeric>

namespace cinch::plan::internal {
namespace {
using trace::Action;
using trace::Event;
using trace::Phase;

// Follows a trace event by event: which micro-batch of its step it is in, and whether a forward or a backward begins.
class Place {
 public:
  void move_to(const Event& event) {
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

  std::uint32_t micro_batch = 0;
  bool began_forward = false, began_backward = false;

 private:
  bool first_ = true;
  std::uint32_t step_ = 0, forwards_ = 0;
  Phase phase_ = Phase::kOther;
};

// ModuleIndex::find for the names of one trace, each looked up once.
class Roots {
 public:
  Roots(const ModuleIndex& modules, const trace::Trace& trace) : modules_(modules), trace_(trace) {}
  int operator()(trace::NameId name) {
    const auto at = static_cast<std::size_t>(name);
    if (at >= roots_.size()) roots_.resize(at + 1, kUnread);
    if (roots_[at] == kUnread) roots_[at] = modules_.find(trace_.name(name));
    return roots_[at];
  }

 private:
  static constexpr int kUnread = -2;
  const ModuleIndex& modules_;
  const trace::Trace& trace_;
  std::vector<int> roots_;
};

// Of each run of events of equal step, phase, module and recomputation, the one at which most is live.
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
}  // namespace

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

MemoryModel::MemoryModel(const ModuleIndex& modules, const trace::Trace& plain)
    : modules_(modules), plain_(made_in_forward(plain)), called_often_(modules.size()) {
  Roots roots(modules_, plain);
  Place place;
  std::vector<int> entries(modules_.size());
  int last = -1;
  for (const Event& event : plain.events()) {
    place.move_to(event);
    if (place.began_forward) {
      std::ranges::fill(entries, 0);
      last = -1;
    }
    if (event.phase != Phase::kForward) continue;
    const int root = roots(event.module);
    if (root >= 0 && root != last && ++entries[root] > 1) called_often_[root] = true;
    last = root;
  }
}

MemoryModel::MadeBy MemoryModel::made_in_forward(const trace::Trace& trace) const {
  MadeBy made;
  Roots roots(modules_, trace);
  Place place;
  std::vector<std::pair<std::pair<std::uint32_t, int>, std::size_t>> open;  // Made since the last backward began.
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const Event& event = trace.events()[i];
    place.move_to(event);
    if (place.began_backward) {
      for (const auto& [key, position] : open) {
        Made& one = made[key][position];
        one.held = one.given_up = trace.allocation(one.id).freed_at >= i;
      }
      open.clear();
    }
    if (event.action != Action::kAlloc || event.phase != Phase::kForward || event.recompute) continue;
    const int root = roots(event.module);
    if (root < 0) continue;
    const std::pair key{event.step, root};
    auto& list = made[key];
    open.emplace_back(key, list.size());
    list.push_back({event.bytes.count(), place.micro_batch, false, false, event.allocation});
  }
  return made;
}

std::vector<std::size_t> MemoryModel::forward_order() const {
  std::vector<trace::AllocationId> first(modules_.size(), trace::kNoAllocation);
  for (const auto& [key, list] : plain_) {
    trace::AllocationId& of_module = first[static_cast<std::size_t>(key.second)];
    of_module = std::min(of_module, list.front().id);
  }
  std::vector<std::size_t> order(modules_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::less(), [&](std::size_t k) { return first[k]; });
  return order;
}

// For each of `plain` the position of the same allocation in `other`; empty if they do not agree. A checkpointed forward
// makes what the plain one makes, in that order, and may make more in between (a generator's state).
std::vector<std::size_t> MemoryModel::twins(const std::vector<Made>& plain, const std::vector<Made>& other) {
  std::vector<std::size_t> positions;
  std::size_t at = 0;
  for (const Made& one : plain) {
    while (at < other.size() && other[at].bytes != one.bytes) ++at;
    if (at == other.size()) return {};
    positions.push_back(at++);
  }
  return positions;
}

void MemoryModel::learn_kept(const trace::Trace& trace, const Selection& selection) {
  const MadeBy made = made_in_forward(trace);
  for (auto& [key, plain] : plain_) {
    const auto here = made.find(key);
    if (!selection[static_cast<std::size_t>(key.second)] || here == made.end()) continue;
    const std::vector<std::size_t> twin = twins(plain, here->second);
    for (std::size_t i = 0; i < twin.size(); ++i) {
      if (here->second[twin[i]].held) plain[i].given_up = false;
    }
  }
}

std::int64_t MemoryModel::given_up(std::uint32_t step, std::uint32_t micro_batch, int module) const {
  const auto found = given_up_.find({step, micro_batch, module});
  return found == given_up_.end() ? 0 : found->second;
}

std::vector<MemoryModel::Role> MemoryModel::roles(const trace::Trace& trace, const Selection& selection) const {
  std::vector<Role> roles(trace.allocations().size(), Role::kOther);
  static const std::vector<Made> kNone;
  for (const auto& [key, list] : made_in_forward(trace)) {
    const bool checkpointed = selection[static_cast<std::size_t>(key.second)];
    const auto found = plain_.find(key);
    const std::vector<Made>& plain = found == plain_.end() ? kNone : found->second;
    const std::vector<std::size_t> twin = twins(plain, list);
    // Where nothing is known of an allocation, the answer that loosens the bound.
    for (const Made& one : list) {
      roles[static_cast<std::size_t>(one.id)] = checkpointed ? Role::kBrought : Role::kRemovable;
    }
    for (std::size_t i = 0; i < twin.size(); ++i) {
      const bool matters = checkpointed ? !plain[i].held : plain[i].given_up;
      if (!matters) roles[static_cast<std::size_t>(list[twin[i]].id)] = Role::kOther;
    }
  }
  for (std::size_t i = 0; i < roles.size(); ++i) {
    if (trace.allocations()[i].recompute) roles[i] = Role::kBrought;
  }
  return roles;
}

// The state of one pass over a trace: what is live, and what each module would take away or bring.
struct MemoryModel::Sweep {
  std::int64_t live = 0;
  std::vector<std::int64_t> removable;   // Live bytes that checkpointing the module would free.
  std::vector<std::int64_t> brought;     // Live bytes that keeping the module would not have here.
  std::vector<std::int64_t> missing;     // Bytes that keeping the module would have had live here.

  explicit Sweep(std::size_t modules) : removable(modules), brought(modules), missing(modules) {}

  Moment moment(const Selection& selection) const {
    Moment moment{live, std::vector<std::int64_t>(selection.size())};
    for (std::size_t k = 0; k < selection.size(); ++k) {
      moment.savings[k] = selection[k] ? missing[k] - brought[k] : removable[k];
      if (selection[k]) moment.level += moment.savings[k];
    }
    return moment;
  }
};

void MemoryModel::add(const trace::Trace& trace, const Selection& selection) {
  if (given_up_.empty()) {
    for (const auto& [key, list] : plain_) {
      for (const Made& one : list) {
        if (one.given_up) given_up_[{key.first, one.micro_batch, key.second}] += one.bytes;
      }
    }
  }
  const std::vector<Role> role = roles(trace, selection);
  const std::vector<std::size_t> highest = highest_of_each_run(trace);
  Roots roots(modules_, trace);
  Place place;
  Sweep sweep(modules_.size());
  int last = -1;
  std::size_t next = 0;
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const Event& event = trace.events()[i];
    place.move_to(event);
    const int root = roots(event.module);
    const auto expect = [&](int k) { sweep.missing[k] = given_up(event.step, place.micro_batch, k); };
    if (place.began_forward || (event.phase != Phase::kForward && event.phase != Phase::kBackward)) {
      std::ranges::fill(sweep.missing, 0);
    }
    if (event.phase == Phase::kForward && last >= 0 && root != last && selection[last] && !called_often_[last]) expect(last);
    if (place.began_backward) {
      for (int k = 0; k < static_cast<int>(selection.size()); ++k) {
        if (selection[k]) expect(k);
      }
    }
    if (event.phase == Phase::kBackward && root >= 0) sweep.missing[root] = 0;
    last = event.phase == Phase::kForward ? root : -1;

    if (event.action == Action::kAlloc || event.action == Action::kFreeCompleted) {
      const std::int64_t bytes = event.action == Action::kAlloc ? event.bytes.count() : -event.bytes.count();
      sweep.live += bytes;
      const trace::Allocation& allocation = trace.allocation(event.allocation);
      const int owner = roots(allocation.module);
      const Role means = role[static_cast<std::size_t>(event.allocation)];
      if (owner >= 0 && means == Role::kRemovable) sweep.removable[owner] += bytes;
      if (owner >= 0 && means == Role::kBrought) sweep.brought[owner] += bytes;
    }
    if (next < highest.size() && highest[next] == i) {
      ++next;
      Moment moment = sweep.moment(selection);
      const auto [known, fresh] = known_.try_emplace(moment.savings, moments_.size());
      if (fresh) {
        moments_.push_back(std::move(moment));
      } else {
        moments_[known->second].level = std::max(moments_[known->second].level, moment.level);
      }
    }
  }
}
}  // namespace cinch::plan::internal
