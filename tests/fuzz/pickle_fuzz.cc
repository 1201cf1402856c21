// Any bytes as a snapshot in a pickle: read or refused with an offset. What is read is consistent, and survives being
// written and read again.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cinch/snapshot/snapshot.h"
#include "tests/fuzz/snapshot_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // What the first bytes are does not matter: a pickle is begun, unless the input begins one.
  std::string bytes(reinterpret_cast<const char*>(data), size);
  if (size == 0 || std::string_view("\x80()]}").find(bytes[0]) == std::string_view::npos) bytes.insert(0, "\x80\x04");
  cinch::fuzz::check_snapshot(bytes, cinch::snapshot::Format::kPickle);
  return 0;
}
