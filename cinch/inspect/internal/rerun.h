#pragma once
// A recording once more through the allocator's model, up to where it fails, with the allocations' places kept.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cinch/allocator/addresses.h"
#include "cinch/allocator/caching_allocator.h"
#include "cinch/snapshot/snapshot.h"

namespace cinch::inspect::internal {

/// Begins in the recorded state and makes the recording's requests. One that failed when it was recorded is made too,
/// and freed at once.
class Rerun final : public trace::Sink {
 public:
  Rerun(const allocator::Machine& machine, const snapshot::Device& device) : allocator_(machine, addresses_) {
    allocator_.restore(device.start);
    for (const trace::Segment& segment : device.start) {
      for (const trace::Block& block : segment.blocks) {
        if (block.state != trace::Block::State::kInactive) restored_[block.address] = block.state;
      }
    }
  }
  void on_event(const trace::Event& event) override;

  /// Among the events played, from 0.
  const std::optional<std::size_t>& failed_at() const { return failed_at_; }
  /// As it was when the run ended; of blocks, the allocation that they hold.
  std::vector<trace::Segment> segments() const { return allocator_.segments(); }
  std::unordered_map<std::uint64_t, trace::AllocationId> by_address() const;

 private:
  void adopt(const trace::Event& event);
  void allocate(const trace::Event& event, std::size_t at);

  allocator::FreshAddresses addresses_;
  allocator::CachingAllocator allocator_;
  std::unordered_map<std::uint32_t, std::uint64_t> live_;  ///< Address of each allocation.
  std::unordered_set<std::uint32_t> pending_;              ///< Allocations that were freed, not yet completed, before.
  /// Blocks in use at the start that no allocation has yet.
  std::unordered_map<std::uint64_t, trace::Block::State> restored_;
  std::optional<std::size_t> failed_at_;
  std::size_t events_ = 0;
};
}  // namespace cinch::inspect::internal
