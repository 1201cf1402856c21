#pragma once
// A recording once more through the allocator's model, up to where it fails.

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cinch/allocator/addresses.h"
#include "cinch/allocator/caching_allocator.h"
#include "cinch/snapshot/snapshot.h"

namespace cinch::inspect::internal {

/// What lived at the start is allocated first, in order of address; then the recording's requests are made. A request
/// that failed when it was recorded is made too, and ends the run.
class Rerun final : public trace::Sink {
 public:
  explicit Rerun(const allocator::Machine& machine) : allocator_(machine, addresses_) {}
  void on_event(const trace::Event& event) override;

  struct Failure {
    std::size_t event = 0;  ///< Among the events played, from 0; 0 also for what lived before.
    Bytes asked;
    allocator::OutOfMemory why;
  };
  const std::optional<Failure>& failure() const { return failure_; }
  /// The request that had failed was served.
  bool served() const { return served_; }
  allocator::Stats stats() const { return allocator_.stats(); }
  /// As it was when the run ended; of blocks, the allocation that they hold.
  std::vector<trace::Segment> segments() const { return allocator_.segments(); }
  std::unordered_map<std::uint64_t, trace::AllocationId> by_address() const;

 private:
  bool allocate(const trace::Event& event);

  allocator::FreshAddresses addresses_;
  allocator::CachingAllocator allocator_;
  std::unordered_map<std::uint32_t, std::uint64_t> live_;  ///< Address of each allocation.
  std::optional<Failure> failure_;
  std::size_t events_ = 0;
  bool served_ = false;
};
}  // namespace cinch::inspect::internal
