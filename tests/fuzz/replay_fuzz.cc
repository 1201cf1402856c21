// A recording that says anything at all, through the allocator's model: as it was recorded, under other settings and on
// a small card.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cinch/allocator/replay.h"
#include "cinch/core/error.h"
#include "cinch/snapshot/snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cinch;
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto snapshot = snapshot::Snapshot::parse(bytes, "fuzzed.json");
    for (const snapshot::Device& device : snapshot.devices()) {
      static_cast<void>(allocator::verify(snapshot, device));
      allocator::Machine machine{.settings = allocator::recorded_settings(snapshot.settings())};
      static_cast<void>(allocator::what_if(snapshot, device, machine));
      machine.settings.expandable_segments = !machine.settings.expandable_segments;
      machine.device_memory = Bytes(64 << 20);
      static_cast<void>(allocator::what_if(snapshot, device, machine));
    }
  } catch (const Error&) {
  }
  return 0;
}
