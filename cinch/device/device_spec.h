#pragma once
// What must be known of a device to predict on it: the machine's own CPU, CUDA cards by name, or a file that describes
// one.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/core/dtype.h"

namespace cinch::device {

enum class DeviceType : std::uint8_t { kCpu, kCuda };

/// A value. Rates are the roofline's: what the device reaches at best, guessed from what it says of itself, before any
/// calibration on the machine.
struct DeviceSpec {
  std::string name;  ///< "cpu", "rtx4090-24gb".
  DeviceType type = DeviceType::kCpu;
  Bytes memory;  ///< CPU: physical memory, or what a container's cgroup allows. CUDA: what the driver reports as total.
  Bytes context;  ///< CUDA: what the driver takes before the first tensor. 0 on the CPU.
  /// CUDA: what cuBLAS takes for each thread and stream that multiplies matrices, through the caching allocator
  /// (aten/src/ATen/cuda/CublasHandlePool.cpp, getChosenWorkspaceSize). 0 on the CPU.
  Bytes cublas_workspace;
  int compute_capability = 0;  ///< CUDA: 80 for 8.0. Which attention kernels exist follows from it.
  struct Rate {
    DType dtype;
    double flops_per_second;
  };
  std::vector<Rate> peak_rates;            ///< Dense matrix products, all cores that `threads` uses.
  double bytes_per_second = 0;             ///< Of its memory.
  double host_bytes_per_second = 0;        ///< CUDA: one direction of the link to the host's memory.
  double disk_bytes_per_second = 0;        ///< Written or read of a file, where a plan keeps tensors on disk. 0: unknown.
  std::chrono::duration<double> launch{};  ///< Fixed cost of one op.
  int threads = 1;                         ///< CPU: kernels' scratch and rates depend on it.
};

/// What may be planned with: the memory less the context and 2 % of headroom, for what no model knows of.
Bytes usable(const DeviceSpec& device);

/// The device of that name: "cpu" (for `threads` threads; 0: all cores the process may run on) or a card, in any case,
/// without its size where that leaves one ("rtx4090"). Throws UsageError with the nearest known device as a hint, or
/// for a negative number of threads; Error if the system does not tell its memory.
DeviceSpec find(std::string_view name, int threads = 0);

/// Names find() knows: "cpu", then the cards by age.
std::vector<std::string> known();
}  // namespace cinch::device
