#include "cinch/device/device_spec.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/device/internal/cards.h"
#include "cinch/device/internal/cpu_facts.h"

namespace cinch::device {
namespace {
// The uncalibrated guess of what one thread, and all together, move to and from memory: desktop to server DDR4. Ranking
// plans needs no better; a calibration replaces it.
constexpr double kBytesPerSecondOfThread = 8e9;
constexpr double kBytesPerSecondMost = 40e9;
// Dispatch and allocation of one LibTorch op on a CPU of these years.
constexpr std::chrono::duration<double> kLaunch{2e-6};

// "" if the file cannot be read: no cgroup, no /proc.
std::string text_of(const std::filesystem::path& file) {
  try {
    return read_file(file);
  } catch (const IoError&) {
    return {};
  }
}

// What this process may use: the machine's, or less inside a container.
Bytes memory() {
  const std::optional<Bytes> physical = internal::total_memory(text_of("/proc/meminfo"));
  const std::optional<Bytes> limit = internal::cgroup_limit(text_of("/sys/fs/cgroup/memory.max"));
  if (!physical && !limit) {
    throw Error("cannot tell the machine's memory: neither /proc/meminfo nor /sys/fs/cgroup/memory.max says it",
                "cinch runs on Linux with /proc mounted.");
  }
  if (physical && limit) return std::min(*physical, *limit);
  return physical ? *physical : *limit;
}

int cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return std::max(1, CPU_COUNT(&allowed));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

DeviceSpec cpu(int threads) {
  const int available = cores();
  const internal::Core core =
      internal::core_from(text_of("/proc/cpuinfo"), text_of("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"));
  DeviceSpec spec;
  spec.name = "cpu";
  spec.memory = memory();
  spec.threads = threads == 0 ? available : threads;
  const int busy = std::min(spec.threads, available);  // More threads than cores compute no faster.
  spec.peak_rates = {{DType::kFloat32, busy * core.hertz * core.float32_per_cycle},
                     {DType::kFloat64, busy * core.hertz * core.float32_per_cycle / 2},
                     {DType::kBFloat16, busy * core.hertz * core.bfloat16_per_cycle}};
  spec.bytes_per_second = std::min(busy * kBytesPerSecondOfThread, kBytesPerSecondMost);
  spec.launch = kLaunch;
  return spec;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

[[noreturn]] void refuse(std::string_view name) {
  std::vector<std::string> candidates = known();
  std::string near = nearest(lower(name), candidates);
  if (near.empty()) {  // Perhaps meant without the size.
    for (std::string& candidate : candidates) candidate = candidate.substr(0, candidate.find('-'));
    near = nearest(lower(name), candidates);
  }
  throw UsageError("unknown device \"" + printable(name) + "\"",
                   near.empty() ? "cinch devices lists those there are; a file of one's own ends in .toml."
                                : "Did you mean " + near + "?");
}
}  // namespace

Bytes usable(const DeviceSpec& device) { return Bytes(device.memory.count() / 50 * 49) - device.context; }

DeviceSpec find(std::string_view name, int threads) {
  if (threads < 0) throw UsageError("the number of threads is " + std::to_string(threads), "Use 0 for all cores.");
  const std::string wanted = lower(name);
  if (wanted == "cpu") return cpu(threads);
  std::vector<const DeviceSpec*> matches;
  for (const DeviceSpec& card : internal::cards()) {
    if (card.name == wanted) return card;
    if (card.name.starts_with(wanted + "-")) matches.push_back(&card);
  }
  if (matches.size() == 1) return *matches.front();
  if (matches.empty()) refuse(name);
  throw UsageError("device \"" + wanted + "\" comes in more than one size",
                   "Say " + matches.front()->name + " or " + matches.back()->name + ".");
}

std::vector<std::string> known() {
  std::vector<std::string> names{"cpu"};
  for (const DeviceSpec& card : internal::cards()) names.push_back(card.name);
  return names;
}
}  // namespace cinch::device
