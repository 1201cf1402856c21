// Any bytes as a list of buffers: a DataError, or buffers that are placed, validly and not below their load.

#include <cstdlib>
#include <string_view>

#include "cinch/core/error.h"
#include "cinch/placement/placement.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace cinch::placement;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::vector<Buffer> buffers = parse_csv(text, "fuzz");
    for (const cinch::Bytes alignment : {cinch::Bytes(1), cinch::Bytes(64)}) {
      const Placement placement =
          place(buffers, {.alignment = alignment, .time_limit = std::chrono::hours(1), .step_limit = 500});
      if (validate(buffers, placement.offsets, placement.height)) std::abort();
      if (placement.height < placement.bound || placement.bound < live_load(buffers, alignment)) std::abort();
    }
  } catch (const cinch::DataError&) {
  } catch (const cinch::OverflowError&) {
  }
  return 0;
}
