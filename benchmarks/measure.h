#pragma once
// What the benchmarks share: time, medians, and the line that says under which conditions figures were taken.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "cinch/device/device_spec.h"
#include "cinch/train/train.h"

namespace cinch::benchmarks {

/// Wall clock; with CINCH_BENCH_CLOCK=cpu the processor time of this process, which other programs lengthen less: sound
/// for one thread only, as threads that wait for one another spin.
inline double now() {
  static const bool cpu = [] {
    const char* clock = std::getenv("CINCH_BENCH_CLOCK");
    return clock != nullptr && std::string_view(clock) == "cpu";
  }();
  timespec time{};
  ::clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <class Work>
double seconds_of(const Work& work) {
  const double begin = now();
  work();
  return now() - begin;
}

/// Of samples, sorted: `share` 0.5 is the median.
inline double quantile(std::vector<double> samples, double share) {
  std::sort(samples.begin(), samples.end());
  const double position = share * static_cast<double>(samples.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto above = std::min(below + 1, samples.size() - 1);
  return samples[below] + (position - static_cast<double>(below)) * (samples[above] - samples[below]);
}
inline double median(const std::vector<double>& samples) { return quantile(samples, 0.5); }

/// Quotients of samples taken side by side: what disturbs both cancels.
inline std::vector<double> ratios(const std::vector<double>& above, const std::vector<double>& below) {
  std::vector<double> result;
  for (std::size_t i = 0; i < above.size(); ++i) result.push_back(above[i] / below[i]);
  return result;
}

inline void print_conditions(std::string_view program) {
  double load = 0;
  if (::getloadavg(&load, 1) != 1) load = -1;
  const device::DeviceSpec cpu = device::find("cpu");
  std::printf("%.*s: LibTorch %s, %d threads, %s, load before %.2f\n", static_cast<int>(program.size()), program.data(),
              train::libtorch_version().c_str(), train::set_threads(0), to_string(cpu.memory).c_str(), load);
  std::fflush(stdout);
}

/// Beside a ratio.
inline const char* verdict(double ratio, double demand) { return ratio <= demand ? "held" : "MISSED"; }
}  // namespace cinch::benchmarks
