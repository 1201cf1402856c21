#pragma once
// PyTorch's CUDA caching allocator without a device: which block serves a request, when segments are got and given
// back.
//
//   FreshAddresses addresses;
//   CachingAllocator allocator({.settings = settings, .device_memory = 24_GiB}, addresses);
//   auto block = allocator.allocate(100_MiB, StreamId{0});     // Block, or OutOfMemory
//   allocator.free(std::get<trace::Block>(block).address);

#include <cstdint>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "cinch/allocator/addresses.h"
#include "cinch/allocator/settings.h"
#include "cinch/trace/segments.h"

namespace cinch::allocator {

using trace::PoolId;
using trace::StreamId;

/// As torch.cuda.memory_stats(). allocated ≤ active ≤ reserved and requested ≤ active: active counts pending frees,
/// and so does requested.
struct Stats {
  Bytes requested, allocated, active, inactive_split, reserved;
  Bytes peak_requested, peak_allocated, peak_active, peak_reserved;
  std::int64_t segments = 0;     ///< From cudaMalloc; expandable ones are not counted.
  std::int64_t allocations = 0;  ///< Blocks in use now.
  std::int64_t alloc_retries = 0, ooms = 0, device_allocs = 0, device_frees = 0;
};

/// Why an allocation failed. A value: replay asks "would it?" thousands of times.
struct OutOfMemory {
  Bytes asked;               ///< Rounded.
  Bytes free_on_device;      ///< Neither reserved nor taken by others.
  Bytes largest_free_block;  ///< Of the pool and stream that was asked.
};

/// Hears what the model does with the driver, in order.
class SegmentListener {
 public:
  virtual ~SegmentListener() = default;
  /// kSegmentAlloc, kSegmentFree, kSegmentMap, kSegmentUnmap.
  virtual void on_segment(trace::Action action, std::uint64_t address, Bytes bytes, StreamId stream) = 0;
};

inline constexpr Bytes kUnlimitedMemory{std::int64_t{1} << 48};  ///< 256 TiB: more than any card has.

struct Machine {
  Settings settings{};
  /// What there is for this process's segments: the card less contexts and other processes.
  Bytes device_memory = kUnlimitedMemory;
  /// The whole card, of which the memory fraction and the address range of expandable segments are shares; 0:
  /// device_memory.
  Bytes card{};
  /// 2.x: rules differ by version. large_segment_size_mb came with 2.11, max_non_split_rounding_mb with 2.6,
  /// expandable segments with 2.1; before that the setting does nothing.
  int pytorch_minor = 11;
};

/// The state machine of c10::cuda::CUDACachingAllocator for one device (c10/cuda/CUDACachingAllocator.cpp): rounding,
/// best fit by (stream, size, address), splitting, merging, expandable segments, private pools, garbage collection,
/// release and retry. Not thread-safe. O(log free blocks) a call, but for what gives segments back.
/// Left out, since no recording shows them: captures under way, callbacks that free memory, pools with allocators of
/// their own, pools used on out-of-memory.
class CachingAllocator {
 public:
  /// `addresses` and `listener` must outlive it.
  CachingAllocator(Machine machine, AddressSource& addresses, SegmentListener* listener = nullptr);
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// Starts from a state that was recorded instead of from nothing. Before anything else. Throws UsageError if blocks
  /// do not tile their segments or segments overlap.
  void restore(std::span<const trace::Segment> segments);

  /// `requested` > 0, below 1 EiB; else throws UsageError.
  [[nodiscard]] std::variant<trace::Block, OutOfMemory> allocate(Bytes requested, StreamId stream,
                                                                 PoolId pool = PoolId{0});
  void free(std::uint64_t address);  ///< Throws UsageError for an address that is not allocated.
  /// Another stream uses the block: free() then leaves it pending until complete(). Throws UsageError for an address
  /// that is not allocated.
  void record_stream(std::uint64_t address, StreamId stream);
  void complete(std::uint64_t address);  ///< No effect unless a free is pending there: a retry completes them all.
  void empty_cache();
  void release_pool(PoolId pool);  ///< Its user is gone: what it caches may be given back.

  Stats stats() const;
  std::vector<trace::Segment> segments() const;  ///< By address. O(blocks).

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace cinch::allocator
