#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "cinch/placement/placement.h"

namespace cinch::placement {
namespace {

std::string named(std::size_t index, const Buffer& buffer, Bytes offset) {
  return "buffer " + std::to_string(index) + " (" + std::to_string(buffer.size.count()) + " bytes at " +
         std::to_string(offset.count()) + ", live " + std::to_string(buffer.lower) + " to " +
         std::to_string(buffer.upper) + ")";
}

/// Sizes and offsets may be anything: the sum is compared, not formed.
std::optional<std::string> outside(std::size_t index, const Buffer& buffer, Bytes offset, Bytes capacity) {
  const std::string name = named(index, buffer, offset);
  if (buffer.size.count() < 0) return name + " has a negative size";
  if (buffer.upper < buffer.lower) return name + " ends before it begins";
  if (buffer.upper == buffer.lower) return std::nullopt;  // Never live: needs no byte.
  if (offset.count() < 0) return name + " begins below the arena";
  if (buffer.size > capacity || offset > capacity - buffer.size) {
    return name + " ends above the capacity of " + std::to_string(capacity.count()) + " bytes";
  }
  return std::nullopt;
}
}  // namespace

std::optional<std::string> validate(std::span<const Buffer> buffers, std::span<const Bytes> offsets, Bytes capacity) {
  if (offsets.size() != buffers.size()) {
    return std::to_string(offsets.size()) + " offsets for " + std::to_string(buffers.size()) + " buffers";
  }
  std::vector<std::size_t> begins, ends;  // Buffers by when they do.
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (auto fault = outside(i, buffers[i], offsets[i], capacity)) return fault;
    if (buffers[i].size.count() > 0 && buffers[i].lower < buffers[i].upper) begins.push_back(i);
  }
  ends = begins;
  std::sort(begins.begin(), begins.end(), [&](auto a, auto b) { return buffers[a].lower < buffers[b].lower; });
  std::sort(ends.begin(), ends.end(), [&](auto a, auto b) { return buffers[a].upper < buffers[b].upper; });

  std::map<Bytes, std::size_t> live;  // By offset. As none overlap, a new one can only meet its neighbours.
  std::size_t ended = 0;
  for (const std::size_t i : begins) {
    for (; buffers[ends[ended]].upper <= buffers[i].lower; ++ended) live.erase(offsets[ends[ended]]);
    const auto above = live.lower_bound(offsets[i]);
    const auto meets = [&](std::size_t other) {
      return named(i, buffers[i], offsets[i]) + " overlaps " + named(other, buffers[other], offsets[other]);
    };
    if (above != live.end() && above->first - offsets[i] < buffers[i].size) return meets(above->second);
    if (above != live.begin()) {
      const std::size_t below = std::prev(above)->second;
      if (offsets[i] - offsets[below] < buffers[below].size) return meets(below);
    }
    live.emplace(offsets[i], i);
  }
  return std::nullopt;
}
}  // namespace cinch::placement
