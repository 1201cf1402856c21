#pragma once
// The devices there are, as a table.

#include <string>
#include <vector>

#include "cinch/device/device_spec.h"

namespace cinch::report {

std::string text(const std::vector<device::DeviceSpec>& devices, bool colour);
/// {schema: "cinch.devices/1", devices: [{name, type, memory_bytes, usable_bytes, …}]}. `libtorch`: "2.11.0", or "".
std::string json(const std::vector<device::DeviceSpec>& devices, const std::string& libtorch);
}  // namespace cinch::report
