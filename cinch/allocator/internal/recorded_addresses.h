#pragma once
// What the driver answered in a recording.

#include <cstdint>
#include <deque>

#include "cinch/allocator/addresses.h"
#include "cinch/trace/event.h"

namespace cinch::allocator::internal {

/// Gives out the addresses of the segment events that precede an allocation; where the model asks for what was not
/// recorded, or asks again because the answer is taken (a damaged recording), addresses of `otherwise`.
class RecordedAddresses final : public AddressSource {
 public:
  explicit RecordedAddresses(AddressSource& otherwise) : otherwise_(otherwise) {}
  /// kSegmentAlloc or kSegmentMap: the driver's answer to the next allocation.
  void expect(const trace::Event& event);
  void forget() { expected_.clear(); }
  std::uint64_t reserve(Bytes bytes) override;
  void release(std::uint64_t address, Bytes bytes) override { otherwise_.release(address, bytes); }
  /// Whether an address was asked for that was not recorded.
  bool deviated() const { return deviated_; }

 private:
  struct Answer {
    std::uint64_t address = 0;
    Bytes bytes;
    bool mapped = false;
  };

  AddressSource& otherwise_;
  std::deque<Answer> expected_;
  bool deviated_ = false;
};
}  // namespace cinch::allocator::internal
