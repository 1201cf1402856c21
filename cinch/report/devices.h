#pragma once
// The devices there are, as a table.

#include <string>
#include <vector>

#include "cinch/device/device_spec.h"
#include "cinch/plan/calibration.h"

namespace cinch::report {

std::string text(const std::vector<device::DeviceSpec>& devices, bool colour);
/// {schema: "cinch.devices/1", devices: [{name, type, memory_bytes, usable_bytes, …}]}. `libtorch`: "2.11.0", or "".
std::string json(const std::vector<device::DeviceSpec>& devices, const std::string& libtorch);

/// What was measured of this machine's CPU with so many threads: rates of each curve at small, middle and large size.
std::string text(const plan::Calibration& calibration, int threads, bool colour);
/// {schema: "cinch.calibration/1", launch_seconds, disk_bytes_per_second, curves: [{name, unit: "flops" or "bytes",
/// points: [[size, per second]]}]}
std::string json(const plan::Calibration& calibration, int threads, const std::string& libtorch);
}  // namespace cinch::report
