// What the model asks of the driver and gives back.

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>

#include "cinch/allocator/internal/model.h"
#include "cinch/core/error.h"

namespace cinch::allocator::internal {
namespace {

std::uint64_t round_up(std::uint64_t size, std::uint64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

std::uint64_t segment_size(std::uint64_t size, const Rules& rules) {
  if (size <= kSmallSize) return kSmallSegment;
  return size < kMinLargeAlloc ? rules.large_segment : round_up(size, kRoundLarge);
}
}  // namespace

std::uint64_t Model::page_of(const Home& home) const {
  return home.pool->large ? rules_.large_segment : static_cast<std::uint64_t>(kSmallSegment);
}

bool Model::fits(std::uint64_t bytes) const {
  return bytes <= static_cast<std::uint64_t>(std::max<std::int64_t>(0, rules_.device - counters_.reserved));
}

void Model::reserve(std::int64_t bytes) {
  counters_.peak_reserved = std::max(counters_.peak_reserved, counters_.reserved += bytes);
  ++counters_.device_allocs;
}

void Model::tell(trace::Action action, std::uint64_t address, std::uint64_t size, const Home& home) {
  if (listener_ == nullptr) return;
  listener_->on_segment(action, address, Bytes(static_cast<std::int64_t>(size)), home.stream);
}

bool Model::overlaps(std::uint64_t address, std::uint64_t size) const {
  if (address == 0 || address > std::numeric_limits<std::uint64_t>::max() - size) return true;
  const auto after = by_address_.lower_bound(address);
  if (after != by_address_.end() && after->first < address + size) return true;
  if (after == by_address_.begin()) return false;
  const auto& [start, segment] = *std::prev(after);
  return start + segments_[segment].size > address;
}

// Recorded addresses may be damaged: what they overlap is asked for again.
std::uint64_t Model::ask_driver(std::uint64_t size) {
  constexpr int kTries = 1000;
  for (int tries = 0; tries < kTries; ++tries) {
    const std::uint64_t address = addresses_.reserve(Bytes(static_cast<std::int64_t>(size)));
    if (!overlaps(address, size)) return address;
  }
  throw UsageError("no room among the addresses for a segment of " + std::to_string(size) + " bytes",
                   "The recording's segments lie where no device has memory: is the file damaged?");
}

Index Model::new_segment(Home& home, std::uint64_t size, bool expandable) {
  const std::uint64_t address = ask_driver(size);
  Index segment = static_cast<Index>(segments_.size());
  if (unused_segments_.empty()) {
    segments_.emplace_back();
  } else {
    segment = unused_segments_.back();
    unused_segments_.pop_back();
  }
  const Index node = new_node();
  nodes_[node] = {.address = address, .size = size, .home = &home, .segment = segment};
  segments_[segment] = {.address = address, .size = size, .home = &home, .first = node, .expandable = expandable};
  by_address_.emplace(address, segment);
  return node;
}

// D. The block is in no set.
Index Model::alloc_block(Home& home, std::uint64_t size) {
  const std::uint64_t bytes = segment_size(size, rules_);
  if (rules_.limited &&
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, rules_.allowed - counters_.reserved)) < bytes) {
    return kNone;
  }
  if (rules_.expandable) return alloc_expandable(home, size);
  if (!fits(bytes)) return kNone;
  const Index block = new_segment(home, bytes, false);
  nodes_[block].state = Node::State::kFree;
  reserve(static_cast<std::int64_t>(bytes));
  ++counters_.segments;
  tell(trace::Action::kSegmentAlloc, nodes_[block].address, bytes, home);
  return block;
}

// E. Maps pages behind a free block, or anew, until `size` bytes lie together. What was mapped stays so on failure.
Index Model::alloc_expandable(Home& home, std::uint64_t size) {
  if (size > rules_.range || page_of(home) > rules_.range) return kNone;
  Index block = find_growable(home, size);
  if (nodes_[block].state == Node::State::kUnmapped && !map(block, size)) return kNone;
  while (nodes_[block].size < size) {
    const Index next = nodes_[block].next;  // Unmapped: free neighbours have merged.
    if (!map(next, size - nodes_[block].size)) return kNone;
    block = next;
  }
  erase_free(block);
  return block;
}

// The first unmapped range, by address, with room for `size` together with what is free around it.
Index Model::find_growable(Home& home, std::uint64_t size) {
  const auto usable = [&](Index node) {
    return node != kNone && (nodes_[node].state == Node::State::kFree || nodes_[node].state == Node::State::kUnmapped);
  };
  for (const auto& [address, unmapped] : home.unmapped) {
    const Index start = usable(nodes_[unmapped].previous) ? nodes_[unmapped].previous : unmapped;
    std::uint64_t room = 0;
    for (Index node = start; room < size && usable(node); node = nodes_[node].next) room += nodes_[node].size;
    if (room >= size) return start;
  }
  if (home.ranges > 0) addresses_mattered_ = true;  // From now on two ranges stand in an order.
  return new_range(home);
}

Index Model::new_range(Home& home) {
  const std::uint64_t range = round_up(std::max(rules_.range, page_of(home)), page_of(home));
  const Index block = new_segment(home, range, true);
  ++home.ranges;
  nodes_[block].state = Node::State::kUnmapped;
  home.unmapped.emplace(nodes_[block].address, block);
  return block;
}

// Maps the first pages of an unmapped block, as many as `size` bytes take, and merges them with what is free around.
bool Model::map(Index block, std::uint64_t size) {
  Home& home = *nodes_[block].home;
  const std::uint64_t bytes = std::min(round_up(std::min(size, nodes_[block].size), page_of(home)), nodes_[block].size);
  if (!fits(bytes)) return false;
  const std::uint64_t address = nodes_[block].address;
  home.unmapped.erase(address);
  if (bytes < nodes_[block].size) {
    const Index rest = split_off(block, bytes);
    nodes_[rest].state = Node::State::kUnmapped;
    home.unmapped.emplace(nodes_[rest].address, rest);
  }
  make_free(block);
  reserve(static_cast<std::int64_t>(bytes));
  tell(trace::Action::kSegmentMap, address, bytes, home);
  return true;
}

void Model::release_block(Index block) {
  erase_free(block);
  const Index segment = nodes_[block].segment;
  counters_.reserved -= static_cast<std::int64_t>(nodes_[block].size);
  --counters_.segments;
  ++counters_.device_frees;
  tell(trace::Action::kSegmentFree, nodes_[block].address, nodes_[block].size, *nodes_[block].home);
  drop_segment(segment);
}

// Of one node, which is in no set any more.
void Model::drop_segment(Index segment) {
  const SegmentNode gone = segments_[segment];
  if (gone.expandable) --gone.home->ranges;
  nodes_[gone.first].state = Node::State::kUnused;
  unused_nodes_.push_back(gone.first);
  unused_segments_.push_back(segment);
  by_address_.erase(gone.address);
  addresses_.release(gone.address, Bytes(static_cast<std::int64_t>(gone.size)));
}

// E. The pages that lie wholly in a free block; what is left of it at both ends stays mapped. A range without a mapped
// page is given back.
void Model::unmap_pages(Index block) {
  const Node& node = nodes_[block];
  const std::uint64_t page = page_of(*node.home), start = segments_[node.segment].address;
  const std::uint64_t first = start + round_up(node.address - start, page),
                      last = start + (node.address + node.size - start) / page * page;
  if (first >= last) return;
  erase_free(block);
  if (nodes_[block].address < first) {
    const Index front = block;
    block = split_off(front, first - nodes_[front].address);
    insert_free(front);
  }
  if (nodes_[block].address + nodes_[block].size > last) {
    const Index rest = split_off(block, last - first);
    nodes_[rest].state = Node::State::kFree;
    insert_free(rest);
  }
  nodes_[block].state = Node::State::kUnmapped;
  absorb(block, nodes_[block].previous);
  absorb(block, nodes_[block].next);
  Home& home = *nodes_[block].home;
  counters_.reserved -= static_cast<std::int64_t>(last - first);
  ++counters_.device_frees;
  tell(trace::Action::kSegmentUnmap, first, last - first, home);
  if (is_split(nodes_[block])) {
    home.unmapped.emplace(nodes_[block].address, block);
  } else {
    drop_segment(nodes_[block].segment);
  }
}

// I.
void Model::release_cached() {
  complete_all();
  Pool& common = pool_of(PoolId{0});
  release_blocks(common.large);
  release_blocks(common.small);
  for (auto& [id, pool] : pools_) {
    if (!pool.released) continue;
    release_blocks(pool.small);
    release_blocks(pool.large);
  }
}

void Model::complete_all() {
  while (!pending_.empty()) complete(pending_.back());
}

void Model::release_blocks(SizePool& pool) {
  std::vector<Index> whole, expandable;
  for (const auto& home : pool.homes) {
    for (auto at = home->free.begin(); at != home->free.end(); at = home->free.next(at)) {
      const Index block = home->free[at].block;
      if (is_expandable(nodes_[block])) {
        expandable.push_back(block);
      } else if (!is_split(nodes_[block])) {
        whole.push_back(block);
      }
    }
  }
  for (const Index block : whole) release_block(block);
  for (const Index block : expandable) unmap_pages(block);
}

// H. One block that is large enough, else the largest that may not be split until they are enough.
bool Model::release_available(Home& home, std::uint64_t size) {
  const std::uint64_t wanted = std::max(size, rules_.max_split);
  auto at = home.free.lower_bound(wanted, 0);
  if (at != home.free.end() && !is_expandable(nodes_[home.free[at].block])) {
    if (is_split(nodes_[home.free[at].block])) return false;
    release_block(home.free[at].block);
    return true;
  }
  std::vector<Index> released;
  std::uint64_t total = 0;
  while (total < wanted && at != home.free.begin()) {
    at = home.free.previous(at);
    const FreeEntry& entry = home.free[at];
    if (entry.size < rules_.max_split) break;
    if (is_expandable(nodes_[entry.block]) || is_split(nodes_[entry.block])) continue;
    released.push_back(entry.block);
    total += entry.size;
  }
  for (const Index block : released) release_block(block);
  return total >= wanted;
}

// G. Sweeps over whole segments that have been free for the average time or longer, until enough is reclaimed.
void Model::collect_garbage() {
  if (counters_.reserved <= rules_.collect_above) return;
  const std::int64_t target = counters_.reserved - rules_.collect_above;
  SizePool& pool = pool_of(PoolId{0}).large;
  std::vector<Index> cached;
  double total_age = 0;
  std::size_t counted = 0;
  for (const auto& home : pool.homes) {
    for (auto at = home->free.begin(); at != home->free.end(); at = home->free.next(at)) {
      const Node& node = nodes_[home->free[at].block];
      if (is_split(node)) continue;
      total_age += static_cast<double>(pool.searches - node.freed_at);
      ++counted;  // Expandable ones too, though they are not freed here: so does PyTorch.
      if (!is_expandable(node)) cached.push_back(home->free[at].block);
    }
  }
  std::int64_t reclaimed = 0;
  bool freed = true;
  while (reclaimed < target && freed && counted > 0) {
    const double average = total_age / static_cast<double>(counted);
    freed = false;
    std::vector<Index> younger;
    for (const Index block : cached) {
      const auto age = static_cast<double>(pool.searches - nodes_[block].freed_at);
      if (age < average) {
        younger.push_back(block);
        continue;
      }
      freed = true;
      reclaimed += static_cast<std::int64_t>(nodes_[block].size);
      total_age -= age;
      --counted;
      release_block(block);
    }
    cached = std::move(younger);
  }
}

bool Model::release_segment(std::uint64_t address, std::uint64_t size) {
  const auto found = by_address_.find(address);
  if (found == by_address_.end() || segments_[found->second].expandable) return false;
  const Node& node = nodes_[segments_[found->second].first];
  if (node.state != Node::State::kFree || is_split(node) || node.size != size) return false;
  release_block(segments_[found->second].first);
  return true;
}

bool Model::map_at(std::uint64_t address, std::uint64_t size) {
  for (auto& [id, pool] : pools_) {
    for (const SizePool* half : {&pool.small, &pool.large}) {
      for (const auto& home : half->homes) {
        const auto found = home->unmapped.find(address);
        if (found == home->unmapped.end()) continue;
        const Index block = found->second;
        return size % page_of(*home) == 0 && size <= nodes_[block].size && map(block, size);
      }
    }
  }
  return false;
}

bool Model::unmap(std::uint64_t address, std::uint64_t size) {
  const auto found = by_address_.upper_bound(address);
  if (found == by_address_.begin()) return false;
  const SegmentNode& segment = segments_[std::prev(found)->second];
  if (!segment.expandable) return false;
  const std::uint64_t page = page_of(*segment.home);
  for (Index block = segment.first; block != kNone; block = nodes_[block].next) {
    const Node& node = nodes_[block];
    if (node.state != Node::State::kFree || node.address > address || node.address + node.size <= address) continue;
    const bool pages_are_these = address - node.address < page && node.address + node.size >= address + size &&
                                 node.address + node.size - address - size < page;
    if (pages_are_these) unmap_pages(block);
    return pages_are_these;
  }
  return false;
}
}  // namespace cinch::allocator::internal
