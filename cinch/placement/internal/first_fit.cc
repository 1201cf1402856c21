#include "cinch/placement/internal/first_fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace cinch::placement::internal {

Shelves::Shelves(std::size_t items, std::int32_t sections)
    : sections_(sections), buckets_(std::clamp<std::size_t>(items / 1024, 1, 256)), cursors_(buckets_.size(), 0) {}

std::int64_t Shelves::lowest(const Item& item) {
  const std::size_t begin = bucket_of(item.first), end = bucket_of(item.last - 1) + 1;
  std::fill(cursors_.begin() + begin, cursors_.begin() + end, 0);
  std::int64_t offset = 0;
  // Each bucket pushes the offset up past what it holds; done when all agree. Cursors never go back: what they passed
  // lies under the offset.
  for (std::size_t agreed = 0, bucket = begin; agreed < end - begin; bucket = bucket + 1 == end ? begin : bucket + 1) {
    const auto& placed = buckets_[bucket];
    std::size_t& cursor = cursors_[bucket];
    const std::int64_t before = offset;
    for (; cursor < placed.size() && placed[cursor].offset < offset + item.size; ++cursor) {
      const Placed& other = placed[cursor];
      if (other.first < item.last && item.first < other.last) offset = std::max(offset, other.top);
    }
    agreed = offset == before ? agreed + 1 : 1;
  }
  return offset;
}

void Shelves::insert(const Item& item, std::int64_t offset) {
  const Placed placed{offset, offset + item.size, item.first, item.last};
  for (std::size_t bucket = bucket_of(item.first); bucket <= bucket_of(item.last - 1); ++bucket) {
    auto& shelf = buckets_[bucket];
    shelf.insert(std::upper_bound(shelf.begin(), shelf.end(), offset,
                                  [](std::int64_t value, const Placed& other) { return value < other.offset; }),
                 placed);
  }
}

namespace {
/// The order in which keys grow, those equal as before.
std::vector<std::int32_t> ascending(std::span<const std::int32_t> order, const std::vector<double>& keys) {
  std::vector<std::size_t> positions(order.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::stable_sort(positions.begin(), positions.end(), [&](std::size_t a, std::size_t b) { return keys[a] < keys[b]; });
  std::vector<std::int32_t> sorted;
  sorted.reserve(order.size());
  for (const std::size_t position : positions) sorted.push_back(order[position]);
  return sorted;
}
}  // namespace

std::vector<std::int32_t> ordered_by(const Problem& problem, Priority priority) {
  std::vector<std::int32_t> order(problem.items.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<double> keys;
  keys.reserve(order.size());
  for (const Item& item : problem.items) {
    keys.push_back(-priority.size * std::log(static_cast<double>(item.size)) -
                   priority.lifetime * std::log(static_cast<double>(item.last - item.first)));
  }
  return ascending(order, keys);
}

std::int64_t first_fit(const Problem& problem, std::span<const std::int32_t> order,
                       std::vector<std::int64_t>& offsets) {
  Shelves shelves(problem.items.size(), problem.sections);
  std::int64_t height = 0;
  for (const std::int32_t i : order) {
    const Item& item = problem.items[i];
    offsets[i] = shelves.lowest(item);
    shelves.insert(item, offsets[i]);
    height = std::max(height, offsets[i] + item.size);
  }
  return height;
}
Repacker::Repacker(const Problem& problem, std::vector<std::int32_t> order)
    : problem_(problem), order_(std::move(order)) {}

std::int64_t Repacker::repack(std::int64_t target, std::vector<std::int64_t>& offsets) {
  std::vector<double> keys(order_.size());
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const bool too_high = offsets[order_[i]] + problem_.items[order_[i]].size > target;
    const double part = too_high ? 0.2 + 0.75 * static_cast<double>(random_() >> 11) * 0x1p-53 : 1;
    keys[i] = part * static_cast<double>(i);
  }
  order_ = ascending(order_, keys);
  return first_fit(problem_, order_, offsets);
}
}  // namespace cinch::placement::internal
