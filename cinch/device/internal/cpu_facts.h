#pragma once
// What Linux tells of the processor and its memory, read from the text of its files.

#include <optional>
#include <string_view>

#include "cinch/core/bytes.h"

namespace cinch::device::internal {

/// MemTotal of /proc/meminfo; nothing if it is not there.
std::optional<Bytes> total_memory(std::string_view meminfo);

/// Of a cgroup's memory.max; nothing for "max" or what is no number.
std::optional<Bytes> cgroup_limit(std::string_view memory_max);

/// Of one core, from the first entry of /proc/cpuinfo and cpufreq's cpuinfo_max_freq, which unlike the MHz of cpuinfo
/// is the same at every run. Where neither says anything (a virtual machine may hide it), a modest x86-64 core.
struct Core {
  double hertz = 2e9;
  double float32_per_cycle = 8;   ///< Multiply-adds count 2.
  double bfloat16_per_cycle = 8;  ///< As float32 where the core has no instruction of its own.
};
Core core_from(std::string_view cpuinfo, std::string_view max_kilohertz = {});
}  // namespace cinch::device::internal
