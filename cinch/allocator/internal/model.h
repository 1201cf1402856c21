#pragma once
// The state machine itself. Blocks are named by index, not by address: CachingAllocator adds addresses, Replay needs
// none. The letters A to J in the sources are the steps of the allocator as this file's readers know them:
//   A malloc, B get_free_block, C should_split, D alloc_block, E expandable segments, F free, G garbage collection,
//   H release_available_cached_blocks, I release_cached_blocks, J private pools   (c10/cuda/CUDACachingAllocator.cpp).

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "cinch/allocator/caching_allocator.h"
#include "cinch/allocator/internal/free_set.h"

namespace cinch::allocator::internal {

using Index = std::uint32_t;
inline constexpr Index kNone = 0xffffffffu;

struct Home;

/// A block, or of an expandable segment a range that is not mapped. Those of one segment form a list by address.
struct Node {
  enum class State : std::uint8_t { kFree, kAllocated, kPending, kUnmapped, kUnused };
  std::uint64_t address = 0, size = 0, requested = 0;
  std::uint64_t freed_at = 0;  ///< Of SizePool::searches: its age, for garbage collection.
  Home* home = nullptr;
  Index previous = kNone, next = kNone;
  Index segment = kNone;
  Index pending_at = kNone;  ///< Its place among the pending ones.
  std::uint32_t owner = 0;   ///< Whom it was given to: the caller's number.
  State state = State::kUnused;
  bool shared = false;  ///< Another stream uses it: a free waits for complete().
};

/// What was got from the driver in one call: cudaMalloc, or a range of addresses that is mapped page by page.
struct SegmentNode {
  std::uint64_t address = 0, size = 0;  ///< `size`: of the range, mapped or not.
  Home* home = nullptr;
  Index first = kNone;
  bool expandable = false;
};

struct SizePool;

/// What one pool keeps for one stream and size class.
struct Home {
  SizePool* pool = nullptr;
  StreamId stream{};
  FreeSet free{};
  std::map<std::uint64_t, Index> unmapped{};  ///< By address.
  std::size_t ranges = 0;                     ///< Expandable segments.
};

/// The small or the large half of a pool: PyTorch's BlockPool.
struct SizePool {
  PoolId id{};
  bool large = false;
  std::uint64_t searches = 0;                  ///< The clock of ages.
  std::vector<std::unique_ptr<Home>> homes{};  ///< By stream.
};

struct Pool {
  SizePool small{}, large{};
  bool released = false;  ///< J: nobody uses it any more.
};

/// Settings and constants as the steps need them.
struct Rules {
  explicit Rules(const Machine& machine);
  Settings settings;
  bool expandable = false, limited = false, collects = false;
  std::uint64_t max_split = 0, max_rounding = 0, large_segment = 0;
  std::int64_t device = 0, card = 0, allowed = 0;  ///< `allowed`: by the memory fraction.
  std::int64_t collect_above = 0;
  std::uint64_t range = 0;  ///< Address range of an expandable segment, before rounding to pages.
};

/// As Stats, plain numbers.
struct Counters {
  std::int64_t requested = 0, allocated = 0, active = 0, inactive_split = 0, reserved = 0;
  std::int64_t peak_requested = 0, peak_allocated = 0, peak_active = 0, peak_reserved = 0;
  std::int64_t segments = 0, allocations = 0, alloc_retries = 0, ooms = 0, device_allocs = 0, device_frees = 0;
};

Stats stats_of(const Counters& counters);

class Model {
 public:
  Model(const Machine& machine, AddressSource& addresses, SegmentListener* listener);

  /// Blocks in use get the owners 1, 2, … by address.
  void restore(std::span<const trace::Segment> segments);
  std::variant<Index, OutOfMemory> allocate(std::uint64_t requested, StreamId stream, PoolId pool, std::uint32_t owner);
  /// F, first half: of an allocated block. It can be given out again only after complete().
  void request_free(Index block);
  void complete(Index block);  ///< Of a pending one.
  void record_stream(Index block, StreamId stream);
  void release_pool(PoolId pool);
  void release_cached();  ///< I.

  /// What a recording says was given back, though nothing here asks for it: an unsplit free block, or the whole pages
  /// [address, address + size) of a free block of an expandable segment. False if there is none such.
  bool release_segment(std::uint64_t address, std::uint64_t size);
  bool unmap(std::uint64_t address, std::uint64_t size);
  /// What a recording says was mapped for a request that failed.
  bool map_at(std::uint64_t address, std::uint64_t size);

  const Node& node(Index block) const { return nodes_[block]; }
  /// That `owner` still has the block, or has asked to free it: an early completion may have given it to another.
  bool owns(std::uint32_t owner, Index block) const { return nodes_[block].owner == owner; }
  const Counters& counters() const { return counters_; }
  std::vector<trace::Segment> segments() const;
  /// Indexes of allocated and pending blocks, by address.
  std::vector<Index> active_blocks() const;
  /// Whether some choice so far would have been another if the driver had given other addresses.
  bool addresses_mattered() const { return addresses_mattered_; }

 private:
  // model.cc
  Pool& pool_of(PoolId id);
  Home& home_of(PoolId pool, bool large, StreamId stream);
  Index take_free(Home& home, std::uint64_t size);
  FreeSet::Position best_fit(const Home& home, std::uint64_t size) const;
  FreeSet::Position past_growable(const Home& home, FreeSet::Position position) const;
  std::uint64_t growable_size(const FreeEntry& entry) const;
  void notice_ties(const Home& home, FreeSet::Position position);
  Index get_more(Home& home, std::uint64_t size);
  void hand_out(Index block, std::uint64_t size, std::uint64_t requested, std::uint32_t owner);
  bool should_split(const Node& block, std::uint64_t size) const;
  OutOfMemory refuse(const Home& home, std::uint64_t size);
  void make_free(Index block);
  void absorb(Index block, Index neighbour);
  Index split_off(Index block, std::uint64_t size);
  Index new_node();
  void insert_free(Index block);
  void erase_free(Index block);
  bool is_split(const Node& node) const { return node.previous != kNone || node.next != kNone; }
  bool is_expandable(const Node& node) const { return segments_[node.segment].expandable; }
  std::int64_t inactive_split(const Node& node) const;

  // model_segments.cc
  Index alloc_block(Home& home, std::uint64_t size);
  Index alloc_expandable(Home& home, std::uint64_t size);
  Index find_growable(Home& home, std::uint64_t size);
  Index new_range(Home& home);
  bool map(Index block, std::uint64_t size);
  std::uint64_t page_of(const Home& home) const;
  bool fits(std::uint64_t bytes) const;
  void reserve(std::int64_t bytes);
  Index new_segment(Home& home, std::uint64_t size, bool expandable);
  std::uint64_t ask_driver(std::uint64_t size);
  bool overlaps(std::uint64_t address, std::uint64_t size) const;
  void release_block(Index block);
  void drop_segment(Index segment);
  void unmap_pages(Index block);
  void tell(trace::Action action, std::uint64_t address, std::uint64_t size, const Home& home);
  void release_blocks(SizePool& pool);
  void complete_all();
  bool release_available(Home& home, std::uint64_t size);
  void collect_garbage();

  // model_state.cc
  Index restore_segment(const trace::Segment& segment);
  void restore_blocks(const trace::Segment& segment, Index into);
  void append_unmapped(Index segment, std::uint64_t end);
  Index append_node(Index segment, std::uint64_t size);
  void append_segments(const SegmentNode& segment, std::vector<trace::Segment>& result) const;

  Rules rules_;
  AddressSource& addresses_;
  SegmentListener* listener_;
  Counters counters_;
  std::vector<Node> nodes_;
  std::vector<Index> unused_nodes_, unused_segments_, pending_;
  std::vector<SegmentNode> segments_;
  std::map<std::uint64_t, Index> by_address_;  ///< Of segments.
  std::map<PoolId, Pool> pools_;
  std::array<Home*, 2> recent_{};  ///< Small and large: the next request mostly goes where the last one went.
  std::uint32_t restored_ = 0;     ///< Blocks in use that restore() brought: their owners are 1, 2, … by address.
  bool addresses_mattered_ = false;
};
}  // namespace cinch::allocator::internal
