#include "cinch/allocator/internal/free_set.h"

#include <algorithm>
#include <iterator>

namespace cinch::allocator::internal {
namespace {
std::ptrdiff_t offset(std::size_t index) { return static_cast<std::ptrdiff_t>(index); }
}  // namespace

FreeSet::Position FreeSet::next(Position position) const {
  if (position.at + 1 < runs_[position.run].size()) return {position.run, position.at + 1};
  return {position.run + 1, 0};
}

FreeSet::Position FreeSet::previous(Position position) const {
  if (position.at > 0) return {position.run, position.at - 1};
  return {position.run - 1, runs_[position.run - 1].size() - 1};
}

// The first run whose last entry is not before `key`.
std::size_t FreeSet::run_for(const FreeEntry& key) const {
  return static_cast<std::size_t>(std::lower_bound(last_.begin(), last_.end(), key) - last_.begin());
}

FreeSet::Position FreeSet::lower_bound(std::uint64_t size, std::uint64_t address) const {
  const FreeEntry key{size, address, 0};
  const std::size_t run = run_for(key);
  if (run == runs_.size()) return end();
  const auto& entries = runs_[run];
  return {run, static_cast<std::size_t>(std::lower_bound(entries.begin(), entries.end(), key) - entries.begin())};
}

void FreeSet::insert(const FreeEntry& entry) {
  ++size_;
  if (runs_.empty()) {
    runs_.emplace_back(1, entry).reserve(kLongest);
    last_.push_back(entry);
    return;
  }
  const std::size_t run = std::min(run_for(entry), runs_.size() - 1);
  auto& entries = runs_[run];
  entries.insert(std::lower_bound(entries.begin(), entries.end(), entry), entry);
  last_[run] = entries.back();
  if (entries.size() < kLongest) return;
  std::vector<FreeEntry> upper(entries.begin() + kLongest / 2, entries.end());
  upper.reserve(kLongest);
  entries.resize(kLongest / 2);
  last_.insert(last_.begin() + offset(run), entries.back());
  runs_.insert(runs_.begin() + offset(run) + 1, std::move(upper));
}

void FreeSet::erase(Position position) {
  --size_;
  auto& entries = runs_[position.run];
  entries.erase(entries.begin() + offset(position.at));
  if (entries.empty()) {
    runs_.erase(runs_.begin() + offset(position.run));
    last_.erase(last_.begin() + offset(position.run));
  } else {
    last_[position.run] = entries.back();
  }
}

void FreeSet::erase(std::uint64_t size, std::uint64_t address) { erase(lower_bound(size, address)); }
}  // namespace cinch::allocator::internal
