#include "cinch/record/internal/forward_ranges.h"

#include <ATen/SequenceNumber.h>

#include <algorithm>
#include <deque>

namespace cinch::record::internal {
namespace {
struct Change {
  std::uint64_t from;  ///< Nodes of this number and later.
  const std::string* path;
};
// Bounded: a graph that is still alive after this many changes loses module names, nothing else.
constexpr std::size_t kMost = 1u << 16;
thread_local std::deque<Change> t_changes;
}  // namespace

void note_forward_module(const std::string* path) {
  const auto next = at::sequence_number::peek();
  if (!t_changes.empty() && t_changes.back().from == next) {
    t_changes.back().path = path;
    return;
  }
  if (t_changes.size() == kMost) t_changes.pop_front();
  t_changes.push_back({next, path});
}

const std::string* forward_module(std::uint64_t sequence) noexcept {
  auto after = std::upper_bound(t_changes.begin(), t_changes.end(), sequence,
                                [](std::uint64_t number, const Change& change) { return number < change.from; });
  return after == t_changes.begin() ? nullptr : std::prev(after)->path;
}
}  // namespace cinch::record::internal
