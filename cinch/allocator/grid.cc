#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "cinch/allocator/internal/source.h"

namespace cinch::allocator {
namespace {

using internal::Source;

constexpr double kFarBehind = 1.02, kWorthwhile = 0.99;
constexpr std::size_t kMostNear = 12;

/// Bytes asked for over a whole trace, by size in MiB, rounded up; of requests of a large segment's size or more.
class Sizes final : public trace::Sink {
 public:
  void on_event(const trace::Event& event) override {
    if (event.action != trace::Action::kAlloc || event.bytes < Settings{}.large_segment_size) return;
    bytes_[(event.bytes.count() - 1) / kMiB + 1] += static_cast<double>(event.bytes.count());
  }

  /// In MiB, ascending: those that most bytes are asked for in.
  std::vector<std::int64_t> most_used(std::size_t count) const {
    std::vector<std::pair<double, std::int64_t>> by_bytes;
    for (const auto& [size, bytes] : bytes_) by_bytes.emplace_back(bytes, size);
    std::sort(by_bytes.rbegin(), by_bytes.rend());
    by_bytes.resize(std::min(by_bytes.size(), count));
    std::vector<std::int64_t> sizes;
    sizes.reserve(by_bytes.size());
    for (const auto& [bytes, size] : by_bytes) sizes.push_back(size);
    std::sort(sizes.begin(), sizes.end());
    return sizes;
  }
  std::int64_t largest() const { return bytes_.empty() ? 0 : bytes_.rbegin()->first; }

 private:
  std::map<std::int64_t, double> bytes_;
};

/// One key at several values, as changes of given settings.
using Change = std::function<void(Settings&)>;
using Key = std::vector<Change>;

Key expandable() {
  return {[](Settings& s) { s.expandable_segments = true; }};
}

/// Below, at and above the sizes that matter: who may not be split, and who is split from whom.
Key max_split(const Sizes& sizes) {
  std::set<std::int64_t> mebibytes{20};
  for (const std::int64_t usual : {128, 512}) {
    if (usual <= sizes.largest()) mebibytes.insert(usual);
  }
  for (const std::int64_t size : sizes.most_used(4)) {
    mebibytes.insert(std::max<std::int64_t>(size, 20));
    mebibytes.insert(std::max<std::int64_t>(size + 1, 20));
  }
  Key key;
  for (const std::int64_t size : mebibytes) {
    key.emplace_back([size](Settings& s) { s.max_split_size = std::max(Bytes(size * kMiB), s.large_segment_size); });
  }
  return key;
}

Key roundup() {
  Key key;
  for (const std::uint64_t divisions : {2, 4, 8, 16}) {
    key.emplace_back([divisions](Settings& s) { s.roundup_power2_divisions.fill(divisions); });
  }
  return key;
}

Key large_segment(int pytorch_minor) {
  Key key;
  if (pytorch_minor < 11) return key;
  for (const std::int64_t size : {12, 32, 64, 128, 256}) {
    key.emplace_back([size](Settings& s) {
      s.large_segment_size = s.max_non_split_rounding = Bytes(size * kMiB);
      if (s.max_split_size) s.max_split_size = std::max(*s.max_split_size, s.large_segment_size);
    });
  }
  return key;
}

/// Works by a share of what is allowed: where the card's size is known.
Key collection(const Machine& machine) {
  Key key;
  if (machine.device_memory >= kUnlimitedMemory) return key;
  for (const double threshold : {0.6, 0.8, 0.9}) {
    key.emplace_back([threshold](Settings& s) {
      s.garbage_collection_threshold = threshold;
      s.memory_fraction = 0.99;  // PyTorch collects nothing without a fraction below 1.
    });
  }
  return key;
}

std::int64_t changes_of(const Settings& settings) {
  const std::string conf = settings.to_string();
  return conf.empty() ? 0 : 1 + std::count(conf.begin(), conf.end(), ',');
}

bool better(const WhatIf& a, const WhatIf& b) {
  const auto rank = [](const WhatIf& run) {
    const std::int64_t reached = run.failure ? static_cast<std::int64_t>(run.failure->event) : 0;
    return std::tuple(run.failure.has_value(), -reached, run.alloc_retries, run.peak_reserved.high,
                      changes_of(run.settings));
  };
  return rank(a) < rank(b);
}

/// Tries settings, each once, and keeps what came of them.
class Search {
 public:
  Search(const Source& source, const Machine& machine, const std::function<void(const WhatIf&)>& progress)
      : source_(source), machine_(machine), progress_(progress) {}

  /// The index of its result.
  std::size_t consider(const Settings& settings) {
    for (std::size_t i = 0; i < tried_.size(); ++i) {
      if (tried_[i].run.settings == settings) return i;
    }
    Tried& tried = tried_.emplace_back();
    Machine machine = machine_;
    machine.settings = settings;
    tried.run = internal::try_first(source_, machine, tried.mattered);
    if (progress_) progress_(tried.run);
    return tried_.size() - 1;
  }

  void keep(std::size_t index) { tried_[index].kept = true; }
  const WhatIf& operator[](std::size_t index) const { return tried_[index].run; }

  /// What is kept, and of what is near the best the first few, by all orders, best first.
  std::vector<WhatIf> finish() {
    std::stable_sort(tried_.begin(), tried_.end(), [](const Tried& a, const Tried& b) { return better(a.run, b.run); });
    const WhatIf& best = tried_.front().run;
    const double limit = kFarBehind * static_cast<double>(best.peak_reserved.high.count());
    std::vector<WhatIf> runs;
    for (Tried& tried : tried_) {
      const bool near = tried.run.failure.has_value() == best.failure.has_value() &&
                        static_cast<double>(tried.run.peak_reserved.high.count()) <= limit;
      if (!tried.kept && (!near || runs.size() >= kMostNear)) continue;
      Machine machine = machine_;
      machine.settings = tried.run.settings;
      if (tried.mattered) internal::try_others(source_, machine, tried.run);
      runs.push_back(tried.run);
    }
    std::stable_sort(runs.begin(), runs.end(), better);
    return runs;
  }

 private:
  struct Tried {
    WhatIf run;
    bool mattered = false, kept = false;
  };
  const Source& source_;
  Machine machine_;
  const std::function<void(const WhatIf&)>& progress_;
  std::vector<Tried> tried_;
};

/// The best value of one key, and whether it is better than without.
struct BestOf {
  const Change* change = nullptr;
  bool helps = false;
};

BestOf best_of(Search& search, const Key& key, std::size_t plain) {
  BestOf best;
  std::size_t best_index = plain;
  for (const Change& change : key) {
    Settings settings;
    change(settings);
    const std::size_t index = search.consider(settings);
    if (best.change != nullptr && !better(search[index], search[best_index])) continue;
    best = {&change, better(search[index], search[plain])};
    best_index = index;
  }
  if (best.change != nullptr) search.keep(best_index);
  return best;
}

std::vector<WhatIf> grid_of(const Source& source, const Machine& machine,
                            const std::function<void(const WhatIf&)>& progress) {
  Sizes sizes;
  source.play(sizes);
  Search search(source, machine, progress);
  if (source.settings) search.keep(search.consider(*source.settings));
  const std::size_t plain = search.consider({});
  search.keep(plain);
  const std::vector<Key> keys{expandable(), max_split(sizes), roundup(), large_segment(machine.pytorch_minor),
                              collection(machine)};
  std::vector<const Change*> helpful;
  for (const Key& key : keys) {
    const BestOf best = best_of(search, key, plain);
    if (best.helps) helpful.push_back(best.change);
  }
  for (std::size_t i = 0; i < helpful.size(); ++i) {
    for (std::size_t j = i + 1; j < helpful.size(); ++j) {
      Settings settings;
      (*helpful[i])(settings);
      (*helpful[j])(settings);
      search.consider(settings);
    }
  }
  return search.finish();
}
}  // namespace

std::vector<WhatIf> grid(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Machine& machine,
                         const std::function<void(const WhatIf&)>& progress) {
  return grid_of(internal::source_of(snapshot, device), machine, progress);
}

std::vector<WhatIf> grid(const trace::Trace& trace, const Machine& machine,
                         const std::function<void(const WhatIf&)>& progress) {
  return grid_of(internal::source_of(trace), machine, progress);
}

const WhatIf* recommend(std::span<const WhatIf> runs, const WhatIf& now) {
  const auto helps = [&](const WhatIf& run) {
    if (run.failure) return false;
    if (now.failure || run.alloc_retries < now.alloc_retries) return true;
    return run.alloc_retries == now.alloc_retries && run.peak_reserved.high < now.peak_reserved.low &&
           static_cast<double>(run.peak_reserved.high.count()) <=
               kWorthwhile * static_cast<double>(now.peak_reserved.low.count());
  };
  const WhatIf* best = nullptr;
  for (const WhatIf& run : runs) {
    if (helps(run) && (best == nullptr || better(run, *best))) best = &run;
  }
  if (best == nullptr) return nullptr;
  const WhatIf* simplest = best;
  for (const WhatIf& run : runs) {
    const bool as_good = helps(run) && run.alloc_retries == best->alloc_retries &&
                         kWorthwhile * static_cast<double>(run.peak_reserved.high.count()) <=
                             static_cast<double>(best->peak_reserved.high.count());
    if (as_good && changes_of(run.settings) < changes_of(simplest->settings)) simplest = &run;
  }
  return simplest;
}
}  // namespace cinch::allocator
