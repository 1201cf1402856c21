#pragma once
// What must be known of a device to predict on it. In this version the one device is the machine's own CPU.

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/core/dtype.h"

namespace cinch::device {

/// A value. Rates are the roofline's: what the device reaches at best, guessed from what it says of itself, before any
/// calibration on the machine.
struct DeviceSpec {
  std::string name;  ///< "cpu".
  Bytes memory;      ///< Physical memory, or what a container's cgroup allows if that is less.
  struct Rate {
    DType dtype;
    double flops_per_second;
  };
  std::vector<Rate> peak_rates;            ///< Dense matrix products, all cores that `threads` uses.
  double bytes_per_second = 0;             ///< Of its memory.
  std::chrono::duration<double> launch{};  ///< Fixed cost of one op.
  int threads = 1;                         ///< Kernels' scratch and rates depend on it.
};

/// The device of that name ("cpu"), for `threads` threads (0: all cores the process may run on). Throws UsageError with
/// the nearest known device as a hint, or for a negative number of threads; Error if the system does not tell its
/// memory.
DeviceSpec find(std::string_view name, int threads = 0);

/// Names find() knows.
std::vector<std::string> known();
}  // namespace cinch::device
