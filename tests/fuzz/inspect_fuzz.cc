// Whatever the reader of snapshots lets through is inspected without a fault, and its sums are exact.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cinch/core/error.h"
#include "cinch/inspect/inspect.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cinch;
  try {
    const auto snapshot = snapshot::Snapshot::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const snapshot::Device& device : snapshot.devices()) {
      const inspect::Inspection seen = inspect::inspect(snapshot, device, {.capacity = Bytes(100 << 20)});
      if (seen.peak.categories.sum() != seen.peak.bytes) std::abort();
      for (const auto* parts : {&seen.at_peak, &seen.at_end}) {
        if (parts->requested + parts->wasted() != parts->reserved) std::abort();
      }
    }
  } catch (const Error&) {  // No snapshot, or sizes that do not sum up in 64 bits.
  }
  return 0;
}
