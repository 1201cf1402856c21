#include "cinch/inspect/internal/live_builder.h"

#include <algorithm>
#include <array>
#include <utility>

namespace cinch::inspect::internal {
namespace {

constexpr std::array<Kind, kKindCount> kOrder = {
    Kind::kParameter,      Kind::kFrozen,          Kind::kGradient,       Kind::kGradientBucket,
    Kind::kOptimizerState, Kind::kActivation,      Kind::kRecomputed,     Kind::kAutocastCopy,
    Kind::kTemporary,      Kind::kCublasWorkspace, Kind::kCudnnWorkspace, Kind::kCommunication,
    Kind::kBuffer,         Kind::kInput,           Kind::kLeaked,         Kind::kUnknown};
}  // namespace

std::span<const Kind> kinds_in_order() { return kOrder; }

void LiveBuilder::Sum::add(const Sum& other) {
  bytes += other.bytes;
  largest = std::max(largest, other.largest);
  tensors += other.tensors;
}

void LiveBuilder::add(std::uint32_t place, Kind kind, Bytes bytes, bool before) {
  sums_[{place, kind, before}].add({bytes, bytes, 1});
}

Live LiveBuilder::take(const std::function<CallPath(std::uint32_t)>& path_of, std::size_t limit) const {
  Live live;
  std::map<Kind, Live::OfKind> kinds;
  std::map<std::tuple<CallPath, Kind, bool>, Sum> paths;
  for (const auto& [key, sum] : sums_) {
    const auto& [place, kind, before] = key;
    live.bytes += sum.bytes;
    live.tensors += sum.tensors;
    live.categories[category_of(kind)] += sum.bytes;
    Live::OfKind& of_kind = kinds.emplace(kind, Live::OfKind{kind, {}, {}, 0, 0, {}}).first->second;
    of_kind.bytes += sum.bytes;
    of_kind.tensors += sum.tensors;
    if (before) {
      of_kind.before += sum.bytes;
      of_kind.tensors_before += sum.tensors;
    }
    paths[{path_of(place), kind, before}].add(sum);
  }
  for (const Kind kind : kOrder) {
    if (const auto found = kinds.find(kind); found != kinds.end()) live.kinds.push_back(found->second);
  }
  for (const auto& [key, sum] : paths) {
    const auto& [path, kind, before] = key;
    live.paths.push_back({path, kind, sum.bytes, sum.largest, sum.tensors, before});
  }
  std::stable_sort(live.paths.begin(), live.paths.end(),
                   [](const Live::Path& left, const Live::Path& right) { return left.bytes > right.bytes; });
  while (live.paths.size() > limit) {
    live.more_bytes += live.paths.back().bytes;
    ++live.more_paths;
    live.paths.pop_back();
  }
  return live;
}
}  // namespace cinch::inspect::internal
