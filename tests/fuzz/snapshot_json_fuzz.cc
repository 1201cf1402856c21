// Any bytes as a snapshot in JSON, plain or compressed: read or refused with an offset. What is read is consistent, and
// survives being written and read again.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cinch/snapshot/snapshot.h"
#include "tests/fuzz/snapshot_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  cinch::fuzz::check_snapshot(bytes, cinch::snapshot::Format::kJson);
  return 0;
}
