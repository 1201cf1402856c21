#include "cinch/placement/internal/search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

namespace cinch::placement::internal {
namespace {
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kPlaced = -1;
constexpr std::size_t kMostRemembered = std::size_t{1} << 17;
constexpr std::size_t kRememberedPerItem = 512;

std::uint64_t mixed(std::uint64_t word) {  // The finalizer of splitmix64.
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return word ^ (word >> 31);
}

/// Insertion sort: one pass where little has changed.
template <typename Key>
void sort_again(std::vector<std::int32_t>& items, Key key) {
  for (std::size_t i = 1; i < items.size(); ++i) {
    const std::int32_t item = items[i];
    const std::int64_t value = key(item);
    std::size_t j = i;
    for (; j > 0 && key(items[j - 1]) > value; --j) items[j] = items[j - 1];
    items[j] = item;
  }
}
}  // namespace

Strategy nth_strategy(std::int64_t n) {
  using enum Strategy::ItemRule;
  using enum Strategy::SectionRule;
  // Those that solved most of a hundred instances come first, and far from one another.
  static constexpr std::array<Strategy, 14> kStrategies = {{{kSize, kFewest, false},
                                                            {kWidth, kFewest, true},
                                                            {kWidth, kBands, true},
                                                            {kSize, kBands, false},
                                                            {kArea, kFewest, false},
                                                            {kWidth, kFewest, false},
                                                            {kSize, kFewest, true},
                                                            {kLoad, kFewest, false},
                                                            {kSize, kFailing, true},
                                                            {kWidth, kBands, false},
                                                            {kLoad, kBands, false},
                                                            {kArea, kBands, true},
                                                            {kWidth, kFailing, true},
                                                            {kLoad, kFewest, true}}};
  const auto count = static_cast<std::int64_t>(kStrategies.size());
  Strategy strategy = kStrategies[n % count];
  strategy.noise = n < count ? 0 : (n / count) % 2 == 1 ? 0.15 : 0.6;
  strategy.seed = static_cast<std::uint64_t>(n);
  return strategy;
}

Search::Search(const Problem& problem)
    : items_(problem.items),
      next_equal_(items_.size(), -1),
      members_(problem.sections),
      by_end_(problem.sections),
      unplaced_(problem.sections, 0),
      bound_(items_.size(), 0),
      placed_(items_.size(), 0),
      words_((items_.size() + 63) / 64),
      reasons_(items_.size() * words_, 0),
      conflict_(words_, 0),
      scratch_(words_, 0),
      queued_(problem.sections, 0),
      views_(problem.sections),
      failures_(problem.sections, 1),
      failed_(std::min(kMostRemembered, kRememberedPerItem * items_.size() + 1), Fingerprint{0, 0}),
      rank_(items_.size()) {
  std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t>, std::int32_t> last_equal;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(items_.size()); ++i) {
    const Item& item = items_[i];
    for (std::int32_t section = item.first; section < item.last; ++section) {
      members_[section].push_back(i);
      by_end_[section].push_back(i);
      unplaced_[section] += item.size;
    }
    const auto [last, is_first] = last_equal.try_emplace({item.first, item.last, item.size}, i);
    if (is_first) continue;
    next_equal_[last->second] = i;
    last->second = i;
  }
}

Search::Outcome Search::run(std::int64_t capacity, const Strategy& strategy, std::int64_t nodes, Budget& budget,
                            std::vector<std::int64_t>& offsets) {
  capacity_ = capacity;
  strategy_ = strategy;
  nodes_left_ = nodes;
  budget_ = &budget;
  rank_items(strategy);
  const auto sections = static_cast<std::int32_t>(members_.size());
  for (std::int32_t section = 0; section < sections; ++section) queue(section);
  bool possible = true;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    possible = possible && items_[i].size <= capacity &&
               (next_equal_[i] < 0 ||
                raise(next_equal_[i], bound_[i] + items_[i].size, reason_of(static_cast<std::int32_t>(i))));
  }
  possible = propagate() && possible;
  const Outcome outcome = possible ? solve({0, sections}) : Outcome::kRefuted;
  if (outcome == Outcome::kFound) offsets = bound_;
  undo(0);
  return outcome;
}

void Search::rank_items(const Strategy& strategy) {
  std::mt19937_64 random(strategy.seed);
  std::vector<std::array<double, 2>> keys(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const Item& item = items_[i];
    const double draw = static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    const double factor = 1 + strategy.noise * draw;
    const double width = factor * (item.last - item.first);
    const double size = factor * static_cast<double>(item.size);
    const double load =
        factor * static_cast<double>(*std::max_element(unplaced_.begin() + item.first, unplaced_.begin() + item.last));
    switch (strategy.item) {
      case Strategy::ItemRule::kWidth:
        keys[i] = {width, size};
        break;
      case Strategy::ItemRule::kLoad:
        keys[i] = {load, width * size};
        break;
      case Strategy::ItemRule::kSize:
        keys[i] = {size, width};
        break;
      case Strategy::ItemRule::kArea:
        keys[i] = {width * size, width};
        break;
    }
  }
  std::vector<std::int32_t> order(items_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return keys[a] > keys[b]; });
  for (std::size_t i = 0; i < order.size(); ++i) rank_[order[i]] = static_cast<std::int32_t>(i);
}

/// Places all that is unplaced in a range, or leaves everything as it was; where refuted, with why in conflict_.
Search::Outcome Search::solve(Range range) {
  const std::size_t entry = trail_.size();
  Fingerprint state{};
  std::vector<Fingerprint> states;  // All refuted, if the last is.
  const auto leave = [&](Outcome outcome) {
    if (outcome != Outcome::kFound) undo(entry);
    return outcome;
  };
  while (true) {
    survey(range);
    const std::vector<Range> parts = split(range, state);
    if (parts.empty()) return Outcome::kFound;
    if (parts.size() > 1) {
      for (const Range part : parts) {
        if (const Outcome outcome = solve(part); outcome != Outcome::kFound) return leave(outcome);
      }
      return Outcome::kFound;
    }
    range = parts.front();
    if (failed_before(state)) {
      blame_bounds(range);
      break;
    }
    states.push_back(state);
    budget_->spend(1);
    if (--nodes_left_ < 0 || budget_->spent()) return leave(Outcome::kLimit);

    const std::int32_t item = choose(range);
    const std::size_t mark = trail_.size();
    if (place(item) && propagate()) {
      if (const Outcome outcome = solve(range); outcome != Outcome::kRefuted) return leave(outcome);
    }
    undo(mark);
    if (!take(conflict_, item) || !raise_to_support(item) || !propagate()) break;
  }
  for (const Fingerprint& refuted : states) remember_failure(refuted);
  return leave(Outcome::kRefuted);
}

void Search::blame_bounds(Range range) {
  std::fill(conflict_.begin(), conflict_.end(), 0);
  for (std::int32_t section = range.first; section < range.last; ++section) {
    for (const std::int32_t i : members_[section]) {
      if (!placed_[i] && items_[i].first == section) unite(conflict_, reason_of(i));
    }
  }
}

void Search::unite(std::vector<Word>& set, const Word* other) const {
  for (std::size_t word = 0; word < words_; ++word) set[word] |= other[word];
}

/// Whether the item was in the set.
bool Search::take(std::vector<Word>& set, std::int32_t item) {
  const Word bit = Word{1} << (item % 64);
  const bool was = (set[item / 64] & bit) != 0;
  set[item / 64] &= ~bit;
  return was;
}

bool Search::failed_before(const Fingerprint& state) const { return failed_[state.low % failed_.size()] == state; }

void Search::remember_failure(const Fingerprint& state) { failed_[state.low % failed_.size()] = state; }

void Search::survey(Range range) {
  for (std::int32_t section = range.first; section < range.last; ++section) {
    View view{kNever, kNever, 0};
    for (const std::int32_t i : members_[section]) {
      if (placed_[i]) continue;
      const std::int64_t bound = bound_[i];
      if (bound < view.floor) view.floor = bound, view.lowest = 0;
      if (bound == view.floor) ++view.lowest;
      view.first_end = std::min(view.first_end, bound + items_[i].size);
    }
    views_[section] = view;
  }
}

/// The parts of a range that no unplaced item connects, without sections that have none; and what there is to solve.
std::vector<Search::Range> Search::split(Range range, Fingerprint& state) const {
  std::vector<Range> parts;
  state = {mixed(static_cast<std::uint64_t>(capacity_)), 1};
  for (std::int32_t section = range.first; section < range.last; ++section) {
    for (const std::int32_t i : members_[section]) {
      if (placed_[i] || items_[i].first != section) continue;
      const std::uint64_t item = mixed(static_cast<std::uint64_t>(i) + 0x9e3779b97f4a7c15ull);
      state.low += mixed(item ^ static_cast<std::uint64_t>(bound_[i]));
      state.high += mixed(item + static_cast<std::uint64_t>(bound_[i]) * 0xff51afd7ed558ccdull);
      if (parts.empty() || section >= parts.back().last) parts.push_back({section, section});
      parts.back().last = std::max(parts.back().last, items_[i].last);
    }
  }
  return parts;
}

std::int32_t Search::choose(Range range) const {
  std::int32_t best = -1;
  std::pair<std::int64_t, double> best_key;
  for (std::int32_t section = range.first; section < range.last; ++section) {
    const View& view = views_[section];
    if (view.lowest == 0) continue;
    const bool bands = strategy_.section == Strategy::SectionRule::kBands;
    const std::int64_t band = bands ? view.floor / (capacity_ / 16 + 1) : view.floor;
    double ways =
        view.lowest + (view.floor + unplaced_[section] < capacity_ ? 1 : 0);  // Or waste, where there is room.
    if (strategy_.section == Strategy::SectionRule::kFailing) ways /= failures_[section];
    const std::pair<std::int64_t, double> key(band, ways);
    if (best >= 0 && key >= best_key) continue;
    if (const std::int32_t item = best_at_bottom(section); item >= 0) {
      best = item;
      best_key = key;
    }
  }
  return best;  // Never -1: nothing fits under the item of the lowest bound.
}

std::int32_t Search::best_at_bottom(std::int32_t section) const {
  std::int32_t best = -1;
  for (const std::int32_t i : members_[section]) {
    if (placed_[i] || bound_[i] != views_[section].floor || (best >= 0 && rank_[i] > rank_[best])) continue;
    if (nothing_fits_under(i)) best = i;
  }
  return best;
}

bool Search::nothing_fits_under(std::int32_t item) const {
  for (std::int32_t section = items_[item].first; section < items_[item].last; ++section) {
    if (views_[section].first_end <= bound_[item]) return false;
  }
  return true;
}

/// At its bound, and all that is unplaced goes above. Whether that is within the capacity.
bool Search::place(std::int32_t item) {
  placed_[item] = 1;
  trail_.push_back({item, kPlaced});
  const std::int64_t top = bound_[item] + items_[item].size;
  bool possible = true;
  for (std::int32_t section = items_[item].first; section < items_[item].last; ++section) {
    unplaced_[section] -= items_[item].size;
    queue(section);
    for (const std::int32_t i : members_[section]) {
      if (placed_[i] || bound_[i] >= top || !possible) continue;
      scratch_.assign(reason_of(i), reason_of(i) + words_);
      add(scratch_, item);
      possible = raise(i, top, scratch_.data());
    }
  }
  return possible;
}

/// False with a conflict: over the capacity.
bool Search::raise(std::int32_t item, std::int64_t bound, const Word* reason) {
  for (; item >= 0 && bound > bound_[item]; item = next_equal_[item]) {
    trail_.push_back({item, bound_[item]});
    trail_reasons_.insert(trail_reasons_.end(), reason_of(item), reason_of(item) + words_);
    bound_[item] = bound;
    if (reason != reason_of(item)) std::copy(reason, reason + words_, reason_of(item));
    for (std::int32_t section = items_[item].first; section < items_[item].last; ++section) queue(section);
    bound += items_[item].size;
    if (bound > capacity_) {
      conflict_.assign(reason, reason + words_);
      return false;
    }
  }
  return true;
}

/// An item that does not lie at its bound, for the reasons in conflict_, rests on an unplaced one: so say the bounds of
/// these, and the places of the others, at the same time.
bool Search::raise_to_support(std::int32_t item) {
  unite(conflict_, reason_of(item));
  std::int64_t support = kNever;
  for (std::int32_t section = items_[item].first; section < items_[item].last; ++section) {
    for (const std::int32_t i : members_[section]) {
      if (i == item || (items_[i].first != section && section != items_[item].first)) continue;
      if (placed_[i]) {
        add(conflict_, i);
      } else {
        unite(conflict_, reason_of(i));
        support = std::min(support, bound_[i] + items_[i].size);
      }
    }
  }
  if (support == kNever) return false;
  scratch_ = conflict_;
  return raise(item, support, scratch_.data());
}

void Search::undo(std::size_t mark) {
  for (; trail_.size() > mark; trail_.pop_back()) {
    const auto [item, bound] = trail_.back();
    if (bound != kPlaced) {
      bound_[item] = bound;
      std::copy(trail_reasons_.end() - static_cast<std::ptrdiff_t>(words_), trail_reasons_.end(), reason_of(item));
      trail_reasons_.resize(trail_reasons_.size() - words_);
      continue;
    }
    placed_[item] = 0;
    for (std::int32_t section = items_[item].first; section < items_[item].last; ++section) {
      unplaced_[section] += items_[item].size;
    }
  }
}

void Search::queue(std::int32_t section) {
  if (queued_[section]) return;
  queued_[section] = 1;
  queue_.push_back(section);
}

/// Works the queue off, whatever happens. False: what is unplaced does not fit.
bool Search::propagate() {
  bool possible = true;
  for (; !queue_.empty();) {
    const std::int32_t section = queue_.back();
    queue_.pop_back();
    queued_[section] = 0;
    if (!possible || fits(section)) continue;
    possible = false;
    failures_[section] += 1;
  }
  return possible;
}

bool Search::fits(std::int32_t section) {
  sort_again(members_[section], [&](std::int32_t i) { return bound_[i]; });
  std::int64_t end = 0, highest = 0;
  std::size_t busy = 0;  // The first member since which there is no gap.
  for (std::size_t k = 0; k < members_[section].size(); ++k) {
    const std::int32_t i = members_[section][k];
    if (placed_[i]) continue;
    highest = bound_[i];
    if (highest > end) busy = k;
    end = std::max(end, highest) + items_[i].size;
    if (end <= capacity_) continue;
    std::fill(conflict_.begin(), conflict_.end(), 0);
    for (; busy <= k; ++busy) {
      if (const std::int32_t cause = members_[section][busy]; !placed_[cause]) unite(conflict_, reason_of(cause));
    }
    return false;
  }
  if (!strategy_.not_first || highest + unplaced_[section] <= capacity_) return true;
  return raise_not_first(section);
}

/// An item whose bound leaves no room for itself and a set of others above lies on one of these: on the lowest end of
/// the fewest items, those of the highest ends, that overflow with it.
bool Search::raise_not_first(std::int32_t section) {
  const auto end_of = [&](std::int32_t i) { return bound_[i] + items_[i].size; };
  sort_again(by_end_[section], [&](std::int32_t i) { return -end_of(i); });
  ends_.clear();
  enders_.clear();
  sums_.clear();
  for (const std::int32_t i : by_end_[section]) {
    if (placed_[i]) continue;
    ends_.push_back(end_of(i));
    enders_.push_back(i);
    sums_.push_back(items_[i].size + (sums_.empty() ? 0 : sums_.back()));
  }
  for (auto member = members_[section].rbegin(); member != members_[section].rend(); ++member) {
    const std::int32_t i = *member;
    if (placed_[i]) continue;
    const std::int64_t room = capacity_ - bound_[i];
    if (unplaced_[section] <= room) break;  // The bounds of the rest are lower still.
    // A sum of items that end above this one lacks it; a longer sum contains it.
    auto overflow = std::upper_bound(sums_.begin(), sums_.end(), room - items_[i].size);
    if (ends_[overflow - sums_.begin()] <= end_of(i)) overflow = std::upper_bound(overflow, sums_.end(), room);
    const auto last = overflow - sums_.begin();
    const std::int64_t end = ends_[last];
    if (end <= bound_[i]) continue;
    scratch_.assign(reason_of(i), reason_of(i) + words_);
    for (auto k = 0; k <= last; ++k) unite(scratch_, reason_of(enders_[k]));
    if (!raise(i, end, scratch_.data())) return false;
  }
  return true;
}
}  // namespace cinch::placement::internal
