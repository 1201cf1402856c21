#include "cinch/allocator/internal/model.h"

#include <algorithm>
#include <limits>

namespace cinch::allocator::internal {
namespace {

constexpr int kExpandableSince = 1;         // PyTorch 2.1
constexpr int kNonSplitRoundingSince = 6;   // PyTorch 2.6
constexpr int kLargeSegmentSizeSince = 11;  // PyTorch 2.11
constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

/// What that version makes of the settings: keys it does not know it does not have.
Settings known_to(int pytorch_minor, Settings settings) {
  const Settings defaults;
  if (pytorch_minor < kExpandableSince) settings.expandable_segments = false;
  if (pytorch_minor < kNonSplitRoundingSince) settings.max_non_split_rounding = defaults.max_non_split_rounding;
  if (pytorch_minor < kLargeSegmentSizeSince) settings.large_segment_size = defaults.large_segment_size;
  return settings;
}

std::int64_t share_of(std::int64_t bytes, double share) {
  return share < 1 ? static_cast<std::int64_t>(share * static_cast<double>(bytes)) : bytes;
}

/// As large as the card and an eighth; no card is larger than what stands for no limit.
std::uint64_t range_for(std::int64_t card) {
  const auto bytes = static_cast<std::uint64_t>(std::min(card, kUnlimitedMemory.count()));
  return bytes + bytes / 8;
}
}  // namespace

Rules::Rules(const Machine& machine)
    : settings(known_to(machine.pytorch_minor, machine.settings)),
      expandable(settings.expandable_segments),
      limited(settings.memory_fraction < 1),
      collects(limited && settings.garbage_collection_threshold > 0),
      max_split(settings.max_split_size ? static_cast<std::uint64_t>(settings.max_split_size->count()) : kUnlimited),
      max_rounding(static_cast<std::uint64_t>(settings.max_non_split_rounding.count())),
      large_segment(static_cast<std::uint64_t>(settings.large_segment_size.count())),
      device(machine.device_memory.count()),
      card(machine.card.count() > 0 ? machine.card.count() : device),
      allowed(share_of(card, settings.memory_fraction)),
      collect_above(share_of(allowed, settings.garbage_collection_threshold)),
      range(range_for(card)) {}

Model::Model(const Machine& machine, AddressSource& addresses, SegmentListener* listener)
    : rules_(machine), addresses_(addresses), listener_(listener) {
  pool_of(PoolId{0});
}

Pool& Model::pool_of(PoolId id) {
  const auto [found, is_new] = pools_.try_emplace(id);
  if (is_new) {
    found->second.small = {.id = id, .large = false};
    found->second.large = {.id = id, .large = true};
  }
  return found->second;
}

Home& Model::home_of(PoolId pool, bool large, StreamId stream) {
  Home*& recent = recent_[large ? 1 : 0];
  if (recent != nullptr && recent->stream == stream && recent->pool->id == pool) return *recent;
  SizePool& half = large ? pool_of(pool).large : pool_of(pool).small;
  auto home = std::lower_bound(half.homes.begin(), half.homes.end(), stream,
                               [](const auto& each, StreamId wanted) { return each->stream < wanted; });
  if (home == half.homes.end() || (*home)->stream != stream) {
    home = half.homes.insert(home, std::make_unique<Home>(Home{.pool = &half, .stream = stream}));
  }
  recent = home->get();
  return *recent;
}

// A.
std::variant<Index, OutOfMemory> Model::allocate(std::uint64_t requested, StreamId stream, PoolId pool,
                                                 std::uint32_t owner) {
  const std::uint64_t size = rounded_size(requested, rules_.settings);
  Home& home = home_of(pool, size > kSmallSize, stream);
  Index block = take_free(home, size);
  if (block == kNone) block = get_more(home, size);
  if (block == kNone) return refuse(home, size);
  hand_out(block, size, requested, owner);
  return block;
}

// B.
Index Model::take_free(Home& home, std::uint64_t size) {
  if (rules_.collects) ++home.pool->searches;
  const FreeSet::Position found = best_fit(home, size);
  if (found == home.free.end()) return kNone;
  const FreeEntry entry = home.free[found];
  if (size < rules_.max_split && entry.size >= rules_.max_split) return kNone;
  if (size >= rules_.max_split && entry.size - size >= rules_.max_rounding) return kNone;
  if (!addresses_mattered_) notice_ties(home, found);
  home.free.erase(found);
  counters_.inactive_split -= inactive_split(nodes_[entry.block]);
  return entry.block;
}

// B2, B3: smallest, then lowest address; an expandable segment's last block counts as large as it can grow.
FreeSet::Position Model::best_fit(const Home& home, std::uint64_t size) const {
  FreeSet::Position found = home.free.lower_bound(size, 0);
  if (found == home.free.end() || !is_expandable(nodes_[home.free[found].block])) return found;
  if (!rules_.expandable) {
    while (found != home.free.end() && is_expandable(nodes_[home.free[found].block])) found = home.free.next(found);
    return found;
  }
  return past_growable(home, found);
}

FreeSet::Position Model::past_growable(const Home& home, FreeSet::Position position) const {
  for (;;) {
    const FreeEntry& current = home.free[position];
    const FreeSet::Position next = home.free.next(position);
    if (!is_expandable(nodes_[current.block]) || next == home.free.end()) return position;
    if (growable_size(home.free[next]) >= growable_size(current)) return position;
    position = next;
  }
}

std::uint64_t Model::growable_size(const FreeEntry& entry) const {
  const Index next = nodes_[entry.block].next;
  const bool grows = next != kNone && nodes_[next].state == Node::State::kUnmapped;
  return entry.size + (grows ? nodes_[next].size : 0);
}

// Equal blocks of one segment stand in an order of their own, and of two whole segments either will do.
void Model::notice_ties(const Home& home, FreeSet::Position position) {
  constexpr int kLooks = 64;
  const FreeEntry chosen = home.free[position];
  const Node& node = nodes_[chosen.block];
  if (is_expandable(node) && home.ranges == 1) return;
  for (int looks = 0; looks < kLooks; ++looks) {
    position = home.free.next(position);
    if (position == home.free.end() || home.free[position].size != chosen.size) return;
    const Node& other = nodes_[home.free[position].block];
    const bool alike = !is_split(node) && !is_split(other) && !rules_.collects;
    if (other.segment != node.segment && !alike) break;
  }
  addresses_mattered_ = true;
}

// A6 c to h. Nothing in a recording says that a graph is being captured, when nothing would be released.
Index Model::get_more(Home& home, std::uint64_t size) {
  if (rules_.collects) collect_garbage();
  Index block = alloc_block(home, size);
  if (block == kNone && rules_.max_split != kUnlimited && release_available(home, size))
    block = alloc_block(home, size);
  if (block != kNone) return block;
  release_cached();
  ++counters_.alloc_retries;
  return alloc_block(home, size);
}

OutOfMemory Model::refuse(const Home& home, std::uint64_t size) {
  ++counters_.ooms;
  std::uint64_t largest = 0;
  if (!home.free.empty()) largest = home.free[home.free.previous(home.free.end())].size;
  return {Bytes(static_cast<std::int64_t>(size)), Bytes(std::max<std::int64_t>(0, rules_.device - counters_.reserved)),
          Bytes(static_cast<std::int64_t>(largest))};
}

// C.
bool Model::should_split(const Node& block, std::uint64_t size) const {
  const std::uint64_t rest = block.size - size;
  if (!block.home->pool->large || rules_.expandable) return rest >= kMinBlockSize;
  return size < rules_.max_split && rest > kSmallSize;
}

void Model::hand_out(Index block, std::uint64_t size, std::uint64_t requested, std::uint32_t owner) {
  if (should_split(nodes_[block], size)) {
    const Index rest = split_off(block, size);
    nodes_[rest].state = Node::State::kFree;
    insert_free(rest);
  }
  Node& node = nodes_[block];
  node.state = Node::State::kAllocated;
  node.requested = requested;
  node.owner = owner;
  const auto bytes = static_cast<std::int64_t>(node.size);
  Counters& c = counters_;
  ++c.allocations;
  c.peak_requested = std::max(c.peak_requested, c.requested += static_cast<std::int64_t>(requested));
  c.peak_allocated = std::max(c.peak_allocated, c.allocated += bytes);
  c.peak_active = std::max(c.peak_active, c.active += bytes);
}

// F.
void Model::request_free(Index block) {
  Node& node = nodes_[block];
  --counters_.allocations;
  counters_.allocated -= static_cast<std::int64_t>(node.size);
  node.state = Node::State::kPending;
  node.pending_at = static_cast<Index>(pending_.size());
  pending_.push_back(block);
}

void Model::complete(Index block) {
  Node& node = nodes_[block];
  pending_[node.pending_at] = pending_.back();
  nodes_[pending_.back()].pending_at = node.pending_at;
  pending_.pop_back();
  node.pending_at = kNone;
  node.shared = false;
  counters_.active -= static_cast<std::int64_t>(node.size);
  counters_.requested -= static_cast<std::int64_t>(node.requested);
  node.requested = 0;
  node.owner = 0;
  make_free(block);
}

void Model::record_stream(Index block, StreamId stream) {
  if (nodes_[block].home->stream == stream) return;
  nodes_[block].shared = true;
}

void Model::make_free(Index block) {
  nodes_[block].state = Node::State::kFree;
  absorb(block, nodes_[block].previous);
  absorb(block, nodes_[block].next);
  insert_free(block);
}

// Only what is in the same state merges: free with free, unmapped with unmapped.
void Model::absorb(Index block, Index neighbour) {
  if (neighbour == kNone || nodes_[neighbour].state != nodes_[block].state) return;
  Node& node = nodes_[block];
  Node& other = nodes_[neighbour];
  if (other.state == Node::State::kFree) {
    erase_free(neighbour);
  } else {
    other.home->unmapped.erase(other.address);
  }
  if (neighbour == node.previous) {
    node.address = other.address;
    node.previous = other.previous;
    if (node.previous != kNone) {
      nodes_[node.previous].next = block;
    } else {
      segments_[node.segment].first = block;
    }
  } else {
    node.next = other.next;
    if (node.next != kNone) nodes_[node.next].previous = block;
  }
  node.size += other.size;
  other.state = Node::State::kUnused;
  unused_nodes_.push_back(neighbour);
}

// `block` keeps its first `size` bytes; the rest is a new node whose state the caller sets.
Index Model::split_off(Index block, std::uint64_t size) {
  const Index rest = new_node();
  Node& node = nodes_[block];
  Node& other = nodes_[rest];
  other = {.address = node.address + size,
           .size = node.size - size,
           .home = node.home,
           .previous = block,
           .next = node.next,
           .segment = node.segment};
  if (other.next != kNone) nodes_[other.next].previous = rest;
  node.next = rest;
  node.size = size;
  return rest;
}

Index Model::new_node() {
  if (unused_nodes_.empty()) {
    nodes_.emplace_back();
    return static_cast<Index>(nodes_.size() - 1);
  }
  const Index node = unused_nodes_.back();
  unused_nodes_.pop_back();
  return node;
}

void Model::insert_free(Index block) {
  Node& node = nodes_[block];
  node.freed_at = node.home->pool->searches;
  node.home->free.insert({node.size, node.address, block});
  counters_.inactive_split += inactive_split(node);
}

void Model::erase_free(Index block) {
  const Node& node = nodes_[block];
  node.home->free.erase(node.size, node.address);
  counters_.inactive_split -= inactive_split(node);
}

// Of a free block. Those of expandable segments do not count: their pages can be given back.
std::int64_t Model::inactive_split(const Node& node) const {
  return is_split(node) && !is_expandable(node) ? static_cast<std::int64_t>(node.size) : 0;
}

// J.
void Model::release_pool(PoolId pool) { pool_of(pool).released = true; }
}  // namespace cinch::allocator::internal
