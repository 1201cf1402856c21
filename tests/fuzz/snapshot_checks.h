#pragma once
// What holds of every snapshot that is read, whatever was in the file.

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/snapshot/write.h"

namespace cinch::fuzz {

inline void require(bool condition) {
  if (!condition) std::abort();
}

/// The ids of allocations are in order; a free names one that lives, where it lies.
class Consistent final : public trace::Sink {
 public:
  explicit Consistent(const snapshot::Snapshot& snapshot, const snapshot::Device& device)
      : snapshot_(snapshot), device_(device) {}
  void on_event(const trace::Event& event) override {
    using trace::Action;
    ++events;
    require(static_cast<std::size_t>(event.stream) < device_.streams.size());
    require(static_cast<std::size_t>(event.pool) < device_.pools.size());
    require(static_cast<std::size_t>(event.stack) < snapshot_.stacks().size());
    require(event.bytes >= Bytes());
    if (event.action == Action::kAlloc) {
      require(static_cast<std::size_t>(event.allocation) == allocations_++);
      require(live_.emplace(event.address, event.allocation).second);
    } else if (event.action == Action::kFreeRequested || event.action == Action::kFreeCompleted) {
      const auto found = live_.find(event.address);
      require(found != live_.end() && found->second == event.allocation);
      if (event.action == Action::kFreeCompleted) live_.erase(found);
    }
  }
  std::size_t events = 0;

 private:
  const snapshot::Snapshot& snapshot_;
  const snapshot::Device& device_;
  std::unordered_map<std::uint64_t, trace::AllocationId> live_;
  std::size_t allocations_ = 0;
};

inline void check_tiled(const std::vector<trace::Segment>& segments) {
  std::uint64_t end = 0;
  for (const trace::Segment& segment : segments) {
    require(segment.address >= end);
    std::uint64_t at = segment.address;
    for (const trace::Block& block : segment.blocks) {
      require(block.address == at && block.size > Bytes() && block.requested <= block.size);
      at += static_cast<std::uint64_t>(block.size.count());
    }
    end = segment.address + static_cast<std::uint64_t>(segment.total.count());
    require(at == end);
  }
}

inline std::size_t check_consistent(const snapshot::Snapshot& snapshot) {
  std::size_t events = 0;
  for (const snapshot::Device& device : snapshot.devices()) {
    check_tiled(device.start);
    check_tiled(device.end);
    require(device.left_out <= device.events);
    Consistent consistent(snapshot, device);
    snapshot.play(device, consistent);
    events += consistent.events;
  }
  return events;
}

inline void check_snapshot(std::string_view bytes, snapshot::Format format) {
  try {
    const snapshot::Snapshot all = snapshot::Snapshot::parse(bytes, "fuzz");
    const std::size_t events = check_consistent(all);
    check_consistent(snapshot::Snapshot::parse(bytes, "fuzz", {.first = 1, .last = 4}));
    if (bytes.size() > 20'000 || bytes.size() % 4 != 0) return;  // Writing is slow.
    const std::filesystem::path file = "/dev/shm/cinch_fuzz_" + std::to_string(::getpid());
    snapshot::write(all, file, format);
    const std::string written = read_file(file);
    std::filesystem::remove(file);
    require(check_consistent(snapshot::Snapshot::parse(written, "again")) == events);
  } catch (const DataError&) {
  } catch (const OverflowError&) {  // Sums of sizes that no machine has.
  }
}
}  // namespace cinch::fuzz
