#include "cinch/inspect/internal/remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "cinch/inspect/words.h"

namespace cinch::inspect::internal {
namespace {

using trace::Action;
using trace::Category;

constexpr std::int64_t kWorthAWord = 50;
constexpr std::size_t kMostSets = 4;  // That one piece of advice names.

/// One measure for the optimizer's state at most.
bool consistent(std::uint32_t set) { return std::popcount(set & (kOffloadState | kEightBitState | kLora)) <= 1; }

/// "offloaded state with bf16 parameters and gradients".
std::string name_of_set(std::uint32_t set, const Inspection& seen, bool trains) {
  std::string name;
  const auto with = [&](const std::string& words) { name += (name.empty() ? "" : " with ") + words; };
  if ((set & kNoLeak) != 0) with("the leak mended");
  if ((set & kOffloadState) != 0) with("offloaded state");
  if ((set & kEightBitState) != 0) with("8-bit state");
  if ((set & kLora) != 0) with("LoRA");
  if ((set & kHalfPrecision) != 0) {
    const bool frozen = !trains || (set & kLora) != 0;
    const bool state = seen.optimizer_steps > 0 && (set & (kOffloadState | kEightBitState)) == 0;
    with(frozen ? "bf16 parameters" : state ? "bf16 parameters, gradients and state" : "bf16 parameters and gradients");
  }
  if ((set & kFewerActivations) != 0) with(trains ? "activation checkpointing or a smaller batch" : "a smaller batch");
  return name;
}

std::string optimizer_name(const Inspection& seen) { return seen.optimizer.empty() ? "the optimizer" : seen.optimizer; }

std::string joined(const std::vector<Remedy>& remedies) {
  std::string text;
  for (std::size_t i = 0; i < remedies.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == remedies.size() ? ", or " : ", ") + remedies[i].name;
  }
  return text;
}

/// In a loop without backward: what would live at most if nothing but one repetition's part of what grows did. Nothing
/// if nothing grows, or that is not enough.
std::optional<Remedy> without_growth(const Inspection& seen, const Reductions& reductions, Bytes target) {
  if (seen.growing.empty()) return std::nullopt;
  Bytes leaves = reductions.highest(0);
  for (const Leak& leak : seen.growing) leaves -= leak.held - std::min(leak.bytes_per_step, leak.held);
  if (leaves > target) return std::nullopt;
  return Remedy{"ending that growth", leaves, true, false};
}
}  // namespace

Reductions::Reductions(std::function<Kind(trace::AllocationId)> kind_of, std::size_t last, bool trains, Bytes once)
    : kind_of_(std::move(kind_of)), last_(last), trains_(trains), once_(once) {
  for (int kind = 0; kind < kKindCount; ++kind) {
    for (std::uint32_t set = 0; set < kMeasureSets; ++set) {
      quarters_[static_cast<std::size_t>(kind)][set] = quarters(static_cast<Kind>(kind), set);
    }
  }
}

/// What is left of four quarters. Half precision counts on single precision now; 8-bit state is a quarter of that.
std::int64_t Reductions::quarters(Kind kind, std::uint32_t set) const {
  const auto has = [&](Measure measure) { return (set & measure) != 0; };
  const std::int64_t halved = has(kHalfPrecision) ? kWhole / 2 : kWhole;
  if (kind == Kind::kLeaked) return has(kNoLeak) ? 0 : kWhole;
  if (kind == Kind::kParameter || kind == Kind::kFrozen) return halved;
  if (kind == Kind::kGradient || kind == Kind::kGradientBucket) return has(kLora) ? 0 : halved;
  if (kind == Kind::kOptimizerState) {
    return has(kLora) || has(kOffloadState) ? 0 : has(kEightBitState) ? kWhole / 4 : halved;
  }
  if (kind == Kind::kAutocastCopy) return has(kHalfPrecision) ? 0 : kWhole;
  const bool by_batch = kind == Kind::kActivation || kind == Kind::kRecomputed ||
                        (!trains_ && (kind == Kind::kTemporary || kind == Kind::kInput));
  return by_batch && has(kFewerActivations) ? 0 : kWhole;
}

void Reductions::add(Kind kind, std::int64_t bytes) {
  const auto& left = quarters_[static_cast<std::size_t>(kind)];
  for (std::uint32_t set = 0; set < kMeasureSets; ++set) live_[set] += left[set] * bytes;
}

void Reductions::raise(std::int64_t asked) {
  for (std::uint32_t set = 0; set < kMeasureSets; ++set) {
    highest_[set] = std::max(highest_[set], live_[set] + kWhole * asked);
    most_removed_[set] = std::max(most_removed_[set], live_[0] - live_[set]);
  }
}

void Reductions::on_event(const trace::Event& event) {
  const bool late = !event.before && events_ > last_;
  if (!event.before) ++events_;
  if (late) return;
  const bool known = event.allocation != trace::kNoAllocation;
  if (event.action == Action::kAlloc) add(kind_of_(event.allocation), event.bytes.count());
  if (event.action == Action::kFreeCompleted && known) add(kind_of_(event.allocation), -event.bytes.count());
  raise(event.action == Action::kOom ? event.bytes.count() : 0);
}

bool Reductions::matters(Measure measure) const { return most_removed_[measure] >= highest_[0] / kWorthAWord; }

std::vector<std::uint32_t> Reductions::enough(Bytes target) const {
  std::vector<std::uint32_t> found, sets;
  for (std::uint32_t set = 1; set < kMeasureSets; ++set) sets.push_back(set);
  std::stable_sort(sets.begin(), sets.end(),
                   [](std::uint32_t left, std::uint32_t right) { return std::popcount(left) < std::popcount(right); });
  for (const std::uint32_t set : sets) {
    bool useful = consistent(set) && highest(set) <= target;
    for (std::uint32_t bit = 1; bit < kMeasureSets; bit *= 2) {
      if ((set & bit) != 0 && !matters(static_cast<Measure>(bit))) useful = false;
    }
    const auto within = [&](std::uint32_t smaller) { return (smaller & set) == smaller; };
    if (useful && std::none_of(found.begin(), found.end(), within)) found.push_back(set);
  }
  return found;
}

void advise(const Inspection& seen, OutOfMemory& oom, const Reductions& reductions) {
  const auto& live = (oom.recorded ? oom.live : seen.peak).categories;
  const Bytes parameters = live[Category::kParameter], state = live[Category::kOptimizerState],
              stays = parameters + live[Category::kGradient] + state;
  // Where tensors alone would have fitted, what lies beside them stays wasted.
  const Bytes target =
      oom.short_by > Bytes(0) ? oom.capacity : oom.capacity - (oom.waste.wasted() - oom.waste.cached_segments);
  const auto remedy = [&](std::uint32_t set) {
    const Bytes leaves = reductions.highest(set);
    return Remedy{name_of_set(set, seen, reductions.trains()), leaves, leaves <= target,
                  (set & kFewerActivations) != 0};
  };
  const std::string begin = "To fit " + size_words(oom.capacity) + ": ";
  oom.remedies.clear();
  std::vector<std::uint32_t> enough = reductions.enough(target);
  if (!enough.empty() && enough.front() == kNoLeak) {
    oom.remedies.push_back(remedy(kNoLeak));
    const std::string where = seen.leaks.found.empty() ? "" : " (" + seen.leaks.found.front().path + ")";
    oom.to_fit = begin + "the leak must go" + where + ".";
    return;
  }
  if (const auto remedy_of_growth = without_growth(seen, reductions, target)) {
    oom.remedies.push_back(*remedy_of_growth);
    oom.to_fit = begin + "what grows must go, if it is a leak (" + seen.growing.front().path + ").";
    return;
  }
  const bool optimizer = state > Bytes(0) && parameters <= oom.capacity && stays > oom.capacity;
  if (reductions.matters(kNoLeak)) oom.remedies.push_back(remedy(kNoLeak));
  if (optimizer) {
    for (const Measure measure : {kOffloadState, kEightBitState, kHalfPrecision, kLora}) {
      if (reductions.matters(measure)) oom.remedies.push_back(remedy(measure));
    }
    std::erase_if(enough, [](std::uint32_t set) { return std::popcount(set) == 1 && (set & kFewerActivations) == 0; });
  }
  std::vector<Remedy> suffices;
  const int fewest = enough.empty() ? 0 : std::popcount(enough.front());
  for (const std::uint32_t set : enough) {
    if (suffices.size() < kMostSets && std::popcount(set) == fewest) suffices.push_back(remedy(set));
  }
  oom.remedies.insert(oom.remedies.end(), suffices.begin(), suffices.end());
  if (optimizer) {
    oom.to_fit =
        begin + optimizer_name(seen) + " itself must go (offload or 8-bit state, parameters in bf16, or LoRA).";
  } else if (!suffices.empty()) {
    oom.to_fit = begin + joined(suffices) + ".";
  } else if (parameters > oom.capacity) {
    oom.to_fit = begin + "the parameters alone are too much: lower precision, sharding or offload.";
  } else {
    oom.to_fit =
        begin + size_words(std::max(reductions.highest(0) - target, Bytes(1))) + " less must live at the peak.";
  }
}
}  // namespace cinch::inspect::internal
