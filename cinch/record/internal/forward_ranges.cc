#include "cinch/record/internal/forward_ranges.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace cinch::record::internal {
namespace {
struct Change {
  std::uint64_t from;  ///< Nodes of this number and later.
  const std::string* path;
};
// Bounded: a graph that is still alive after this many changes loses module names, nothing else.
constexpr std::size_t kMost = 1u << 16;

std::mutex g_lock;

/// By the number that autograd knows a thread by. Never destroyed: threads of devices outlive statics.
std::unordered_map<std::uint64_t, std::deque<Change>>& all_changes() {
  static auto* all = new std::unordered_map<std::uint64_t, std::deque<Change>>;
  return *all;
}
}  // namespace

void note_forward_module(const std::string* path) {
  const auto next = at::sequence_number::peek();
  const std::lock_guard guard(g_lock);
  auto& changes = all_changes()[at::RecordFunction::currentThreadId()];
  if (!changes.empty() && changes.back().from == next) {
    changes.back().path = path;
    return;
  }
  if (changes.size() == kMost) changes.pop_front();
  changes.push_back({next, path});
}

const std::string* forward_module(std::uint64_t thread, std::uint64_t sequence) noexcept {
  const std::lock_guard guard(g_lock);
  const auto found = all_changes().find(thread);
  if (found == all_changes().end()) return nullptr;
  const auto& changes = found->second;
  const auto after =
      std::upper_bound(changes.begin(), changes.end(), sequence,
                       [](std::uint64_t number, const Change& change) { return number < change.from; });
  return after == changes.begin() ? nullptr : std::prev(after)->path;
}
}  // namespace cinch::record::internal
