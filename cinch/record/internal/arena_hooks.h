#pragma once
// Where the CPU allocator meets the arena: each block it gives out passes here.

#include <cstddef>
#include <cstdint>

namespace cinch::record::internal {

class Region;

/// Travels with every block of cinch's CPU allocator.
struct Ticket {
  Region* region = nullptr;  ///< Whose memory it is; nullptr: the heap's.
  std::uint64_t step = 0;    ///< The step it was made in, and which of its requests it was; 0: none that was watched.
  std::uint32_t request = 0;
};

/// A tensor of `bytes` is made: block_size(bytes) at its planned place, or nullptr: take it from the heap. Fills
/// `ticket`.
void* serve(std::size_t bytes, Ticket& ticket) noexcept;
/// `block` is no longer used. False: the heap has to have it back. Reads nothing from `block`.
bool take_back(void* block, const Ticket& ticket) noexcept;

/// A tensor of `requested` bytes lies in a heap block of `held` bytes; negative: no longer.
void count_heap(std::int64_t requested, std::int64_t held) noexcept;
/// Bytes of tensors' heap blocks and of the arena; the most there were since the peak was reset to what is.
std::int64_t reserved_peak() noexcept;
void reset_reserved_peak() noexcept;
}  // namespace cinch::record::internal
