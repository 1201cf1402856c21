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

#include "cinch/allocator/settings.h"
#include "cinch/trace/segments.h"

namespace cinch::allocator {

using trace::PoolId;
using trace::StreamId;

/// As torch.cuda.memory_stats(). requested ≤ allocated ≤ active ≤ reserved (active adds pending frees).
struct Stats {
  Bytes requested, allocated, active, inactive_split, reserved;
  Bytes peak_requested, peak_allocated, peak_active, peak_reserved;
  std::int64_t segments = 0, allocations = 0, alloc_retries = 0, ooms = 0, device_allocs = 0, device_frees = 0;
};

/// Why an allocation failed. A value: replay asks "would it?" thousands of times.
struct OutOfMemory {
  Bytes asked;               ///< Rounded.
  Bytes free_on_device;      ///< Neither reserved nor taken by others.
  Bytes largest_free_block;  ///< Of the pool and stream that was asked.
};

/// What the driver is asked for. Recorded addresses make a replay exact; made-up ones, in several orders, an interval.
class AddressSource {
 public:
  virtual ~AddressSource() = default;
  /// Where the next segment (or the address range of an expandable one) of so many bytes begins. Not 0.
  virtual std::uint64_t reserve(Bytes bytes) = 0;
  virtual void release(std::uint64_t address, Bytes bytes) = 0;
};

/// Hears what the model does with the driver, in order.
class SegmentListener {
 public:
  virtual ~SegmentListener() = default;
  /// kSegmentAlloc, kSegmentFree, kSegmentMap, kSegmentUnmap.
  virtual void on_segment(trace::Action action, std::uint64_t address, Bytes bytes, StreamId stream) = 0;
};

struct Machine {
  Settings settings{};
  Bytes device_memory{};   ///< What there is for this process's segments: the card less contexts and other processes.
  int pytorch_minor = 11;  ///< 2.x: rules differ by version.
};

/// The state machine of c10::cuda::CUDACachingAllocator for one device (c10/cuda/CUDACachingAllocator.cpp): rounding,
/// best fit by (stream, size, address), splitting, merging, expandable segments, private pools, garbage collection,
/// release and retry. Not thread-safe. O(log free blocks) a call.
class CachingAllocator {
 public:
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
  /// Another stream uses the block: free() then leaves it pending until complete().
  void record_stream(std::uint64_t address, StreamId stream);
  void complete(std::uint64_t address);
  void empty_cache();
  void release_pool(PoolId pool);  ///< Its user is gone: what it caches may be given back.

  const Stats& stats() const;
  std::vector<trace::Segment> segments() const;  ///< By address. O(blocks).

 private:
  struct State;
  std::unique_ptr<State> state_;
};
}  // namespace cinch::allocator
