#include "cinch/allocator/internal/recorded_addresses.h"

namespace cinch::allocator::internal {

void RecordedAddresses::expect(const trace::Event& event) {
  expected_.push_back({event.address, event.bytes, event.action == trace::Action::kSegmentMap});
}

// A range of an expandable segment is larger than what is mapped of it first.
std::uint64_t RecordedAddresses::reserve(Bytes bytes) {
  if (!expected_.empty()) {
    const Answer answer = expected_.front();
    expected_.pop_front();
    if (answer.address != 0 && (answer.mapped ? answer.bytes <= bytes : answer.bytes == bytes)) return answer.address;
  }
  deviated_ = true;
  return otherwise_.reserve(bytes);
}
}  // namespace cinch::allocator::internal
