// Any bytes as a device file: a device or a ConfigError, and what a device prints reads back the same.
#include <cstdlib>
#include <string_view>

#include "cinch/core/error.h"
#include "cinch/device/device_file.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  cinch::device::DeviceSpec device;
  try {
    device = cinch::device::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const cinch::ConfigError&) {
    return 0;
  }
  const auto text = to_toml(device);
  if (to_toml(cinch::device::parse(text, "printed")) != text) std::abort();
  if (usable(device) <= cinch::Bytes()) std::abort();
  return 0;
}
