#include "cinch/plan/internal/memory_model.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

#include "cinch/plan/internal/walk.h"

namespace cinch::plan::internal {
using trace::Action;
using trace::Event;
using trace::Phase;

MemoryModel::MemoryModel(const Items& items, const ModuleIndex& modules, const trace::Trace& plain,
                         const SharedFacts& shared)
    : items_(items), modules_(modules), shared_(shared), plain_(made_in_forward(plain)), called_often_(modules.size()) {
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
  std::vector<std::pair<Key, std::size_t>> open;  // Made since the last backward began.
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const Event& event = trace.events()[i];
    place.move_to(event);
    if (place.began_backward) {
      for (const auto& [key, position] : open) {
        Made& one = made[key][position];
        one.held = trace.allocation(one.id).freed_at >= i;
        one.given_up = one.held ? static_cast<Mask>(~1u) : Mask{0};
      }
      open.clear();
    }
    if (event.action != Action::kAlloc || event.phase != Phase::kForward || event.recompute) continue;
    const int root = roots(event.module);
    if (root < 0) continue;
    const Key key{event.step, place.micro_batch, root};
    auto& list = made[key];
    open.emplace_back(key, list.size());
    list.push_back({event.bytes.count(), false, 0, event.allocation});
  }
  return made;
}

std::vector<std::size_t> MemoryModel::forward_order() const {
  std::vector<trace::AllocationId> first(modules_.size(), trace::kNoAllocation);
  for (const auto& [key, list] : plain_) {
    trace::AllocationId& of_module = first[static_cast<std::size_t>(key.module)];
    of_module = std::min(of_module, list.front().id);
  }
  std::vector<std::size_t> order(modules_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::less(), [&](std::size_t k) { return first[k]; });
  return order;
}

// For each of `plain` the position of the same allocation in `other`; empty if they do not agree. A checkpointed
// forward makes what the plain one makes, in that order, and may make more in between (a generator's state).
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

void MemoryModel::learn_kept(const trace::Trace& trace, const Choice& choice) {
  const MadeBy made = made_in_forward(trace);
  for (auto& [key, plain] : plain_) {
    const auto here = made.find(key);
    const std::size_t policy = choice[static_cast<std::size_t>(key.module)];
    if (policy == 0 || here == made.end()) continue;
    const std::vector<std::size_t> twin = twins(plain, here->second);
    for (std::size_t i = 0; i < twin.size(); ++i)
      if (here->second[twin[i]].held) plain[i].given_up &= static_cast<Mask>(~(1u << policy));
  }
}

bool MemoryModel::learn_kept(const MemoryModel& other) {
  for (auto& [key, plain] : plain_) {
    const auto there = other.plain_.find({key.step, 0, key.module});
    if (there == other.plain_.end()) return false;
    if (!std::ranges::equal(plain, there->second, std::equal_to(), &Made::held, &Made::held)) return false;
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i].given_up = there->second[i].given_up;
  }
  return true;
}

void MemoryModel::sum_given_up() {
  const std::size_t policies = items_.policies();
  for (const auto& [key, list] : plain_) {
    std::vector<std::int64_t>& sums = given_up_[key];
    sums.resize(policies * policies);
    for (const Made& one : list)
      for (std::size_t from = 1; from < policies; ++from)
        for (std::size_t to = 0; to < policies; ++to)
          if ((one.given_up >> from & 1) != 0 && (one.given_up >> to & 1) == 0) sums[from * policies + to] += one.bytes;
  }
}

std::int64_t MemoryModel::lost(const Key& key, std::size_t from, std::size_t to) const {
  const auto found = given_up_.find(key);
  return found == given_up_.end() ? 0 : found->second[from * items_.policies() + to];
}

std::vector<MemoryModel::Role> MemoryModel::roles(const trace::Trace& trace, const Choice& choice) const {
  std::vector<Role> roles(trace.allocations().size());
  static const std::vector<Made> kNone;
  for (const auto& [key, list] : made_in_forward(trace)) {
    const std::size_t policy = choice[static_cast<std::size_t>(key.module)];
    const auto found = plain_.find(key);
    const std::vector<Made>& plain = found == plain_.end() ? kNone : found->second;
    const std::vector<std::size_t> twin = twins(plain, list);
    // Where nothing is known of an allocation, the answer that loosens the bound.
    for (const Made& one : list)
      roles[static_cast<std::size_t>(one.id)] = policy != 0 ? Role{.brought = true} : Role{.removed_by = Mask(~1u)};
    for (std::size_t i = 0; i < twin.size(); ++i) {
      Role& role = roles[static_cast<std::size_t>(list[twin[i]].id)];
      // What leaves for the host is on its way for a while, and counts as lost already.
      if (policy != 0 && (!plain[i].held || moves_away(items_.policy(policy)))) continue;
      role = {.brought = false,
              .removed_by = static_cast<Mask>(plain[i].given_up & ~(policy == 0 ? 0u : 1u << policy))};
    }
  }
  for (std::size_t i = 0; i < roles.size(); ++i)
    if (trace.allocations()[i].recompute) roles[i] = {.brought = true};
  return roles;
}

namespace {
bool of_optimizer(const trace::Allocation& allocation) {
  return allocation.phase == Phase::kOptimizer || allocation.category == trace::Category::kOptimizerState;
}

/// Takes what the other options of an item change into a moment: `change(option)` bytes against the option chosen.
template <typename Change>
void put(Moment& moment, const Items& items, std::size_t item, std::size_t chosen, const Change& change) {
  const std::int64_t plain = chosen == 0 ? 0 : change(0);
  moment.level += plain;
  for (std::size_t option = 1; option < items.options(item); ++option)
    moment.savings[items.at(item, option)] = plain - (option == chosen ? 0 : change(option));
}
}  // namespace

// One pass over a trace: what is live, and what another option of each item would take away or bring.
class MemoryModel::Sweep {
 public:
  Sweep(const MemoryModel& model, const trace::Trace& trace, const Choice& choice)
      : model_(model),
        trace_(trace),
        choice_(choice),
        items_(model.items_),
        policies_(items_.policies()),
        roots_(model.modules_, trace),
        roles_(model.roles(trace, choice)),
        brought_(items_.modules()),
        removable_(items_.modules() * policies_),
        missing_(items_.modules() * policies_) {
    for (const trace::Allocation& allocation : trace.allocations()) {
      const bool works = allocation.phase == Phase::kForward || allocation.phase == Phase::kBackward;
      of_loss_.push_back(works && model.shared_.loss_modules.contains(trace.name(allocation.module)));
    }
  }

  void move_to(const Event& event) {
    place_.move_to(event);
    expect_what_is_missing(event);
    if (event.action == Action::kAlloc) count(event, event.bytes.count());
    if (event.action == Action::kFreeCompleted) count(event, -event.bytes.count());
  }

  Moment moment(std::uint32_t step) const {
    Moment moment{live_, PerOption<std::int64_t>(items_.flat_size())};
    for (std::size_t k = 0; k < items_.modules(); ++k) {
      const std::int64_t away = moves_away(items_.policy(choice_[k])) ? brought_back_ : 0;
      put(moment, items_, k, choice_[k], [&](std::size_t policy) {
        const std::size_t at = k * policies_ + policy;
        return missing_[at] - brought_[k] - removable_[at] - away;
      });
    }
    put(moment, items_, items_.loss(), choice_[items_.loss()], [&](std::size_t) { return -loss_; });
    put(moment, items_, items_.gradients(), choice_[items_.gradients()],
        [&](std::size_t stepping) { return stepping != 0 ? -gradients_ : dropped_ - visiting_; });
    put(moment, items_, items_.state(), choice_[items_.state()],
        [&](std::size_t option) { return (step >= 2 ? model_.shared_.state_bytes[option] : 0) - state_; });
    return moment;
  }

 private:
  void forget(std::size_t k) {
    std::fill_n(missing_.begin() + static_cast<std::ptrdiff_t>(k * policies_), policies_, 0);
  }

  void expect(std::size_t k, std::uint32_t step) {
    if (choice_[k] == 0) return;
    for (std::size_t policy = 0; policy < policies_; ++policy)
      missing_[k * policies_ + policy] =
          model_.lost({step, place_.micro_batch, static_cast<int>(k)}, choice_[k], policy);
  }

  void expect_what_is_missing(const Event& event) {
    const int root = roots_(event.module);
    const bool forward = event.phase == Phase::kForward, backward = event.phase == Phase::kBackward;
    if (place_.began_forward || (!forward && !backward)) std::ranges::fill(missing_, 0);
    if (forward && last_ >= 0 && root != last_ && !model_.called_often_[static_cast<std::size_t>(last_)])
      expect(static_cast<std::size_t>(last_), event.step);
    for (std::size_t k = 0; place_.began_backward && k < items_.modules(); ++k) {
      expect(k, event.step);
      // What was away comes back whenever it likes: then both would count.
      if (moves_away(items_.policy(choice_[k]))) forget(k);
    }
    if (backward && root >= 0) forget(static_cast<std::size_t>(root));
    if (!backward || place_.began_backward) dropped_ = 0;
    last_ = forward ? root : -1;
  }

  void count(const Event& event, std::int64_t bytes) {
    const auto id = static_cast<std::size_t>(event.allocation);
    const trace::Allocation& allocation = trace_.allocation(event.allocation);
    live_ += bytes;
    if (allocation.category == trace::Category::kGradient) {
      gradients_ += bytes;
      // Where gradients are clipped a backward without steps comes first, and its own are dropped too.
      if (bytes < 0 && event.phase == Phase::kBackward && !items_.clips()) dropped_ -= bytes;
    } else if (of_optimizer(allocation)) {
      state_ += bytes;
      if (allocation.phase == Phase::kBackward && allocation.freed_at != trace::kAfterTrace) visiting_ += bytes;
    } else if (of_loss_[id]) {
      loss_ += bytes;
    }
    if (trace_.name(allocation.name) == trace::kBroughtBack) brought_back_ += bytes;
    const int owner = roots_(allocation.module);
    if (owner < 0) return;
    const auto k = static_cast<std::size_t>(owner);
    if (roles_[id].brought) brought_[k] += bytes;
    for (std::size_t policy = 1; policy < policies_; ++policy)
      if ((roles_[id].removed_by >> policy & 1) != 0) removable_[k * policies_ + policy] += bytes;
  }

  const MemoryModel& model_;
  const trace::Trace& trace_;
  const Choice& choice_;
  const Items& items_;
  std::size_t policies_;
  Roots roots_;
  Place place_;
  std::vector<Role> roles_;
  std::vector<bool> of_loss_;
  int last_ = -1;  // Module of the last event, in forward.
  std::int64_t live_ = 0;
  std::int64_t loss_ = 0, gradients_ = 0, state_ = 0;  // Live bytes of these.
  std::int64_t brought_back_ = 0;                      // Live bytes that were away.
  std::int64_t visiting_ = 0;                          // State that a step in backward brought in for a parameter.
  std::int64_t dropped_ = 0;                           // Gradients that would be live without a step in backward.
  std::vector<std::int64_t> brought_;                  // By module: live bytes that no other policy would have here.
  std::vector<std::int64_t> removable_, missing_;      // By module and policy: what it would free, or would have.
};

void MemoryModel::take(Moment moment) {
  const auto [known, fresh] = known_.try_emplace(moment.savings, moments_.size());
  if (fresh) {
    moments_.push_back(std::move(moment));
  } else {
    moments_[known->second].level = std::max(moments_[known->second].level, moment.level);
  }
}

void MemoryModel::add(const trace::Trace& trace, const Choice& choice) {
  if (given_up_.empty()) sum_given_up();
  const std::vector<std::size_t> highest = highest_of_each_run(trace);
  Sweep sweep(*this, trace, choice);
  std::size_t next = 0;
  for (std::size_t i = 0; i < trace.events().size() && next < highest.size(); ++i) {
    sweep.move_to(trace.events()[i]);
    if (highest[next] != i) continue;
    take(sweep.moment(trace.events()[i].step));
    ++next;
  }
}
}  // namespace cinch::plan::internal
