#include "cinch/report/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cinch/core/version.h"
#include "cinch/report/internal/format.h"

namespace cinch::report {
namespace {

using device::DeviceSpec;
using device::DeviceType;
using nlohmann::ordered_json;

double rate_of(const DeviceSpec& device, DType dtype) {
  const auto found = std::ranges::find(device.peak_rates, dtype, &DeviceSpec::Rate::dtype);
  return found == device.peak_rates.end() ? 0 : found->flops_per_second;
}

/// In 10^12 or 10^9 a second; "-" for what is not there.
std::string rate(double value, double unit) {
  if (value <= 0) return "-";
  return fmt::format("{:.{}f}", value / unit, value / unit < 100 ? 1 : 0);
}

std::string gib(Bytes bytes) { return fmt::format("{:.2f}", static_cast<double>(bytes.count()) / (1 << 30)); }

ordered_json object(const DeviceSpec& device) {
  ordered_json rates = ordered_json::object();
  for (const auto& rate : device.peak_rates) rates[std::string(name_of(rate.dtype))] = rate.flops_per_second;
  return {{"name", device.name},
          {"type", device.type == DeviceType::kCuda ? "cuda" : "cpu"},
          {"memory_bytes", device.memory.count()},
          {"usable_bytes", device::usable(device).count()},
          {"context_bytes", device.context.count()},
          {"cublas_workspace_bytes", device.cublas_workspace.count()},
          {"compute_capability", device.compute_capability},
          {"flops_per_second", rates},
          {"bytes_per_second", device.bytes_per_second},
          {"host_bytes_per_second", device.host_bytes_per_second},
          {"disk_bytes_per_second", device.disk_bytes_per_second},
          {"launch_seconds", device.launch.count()},
          {"threads", device.threads}};
}
}  // namespace

std::string text(const std::vector<DeviceSpec>& devices, bool colour) {
  const std::string first = fmt::format("{:<14}{:>9}{:>9}{:>9}{:>11}{:>7}{:>9}{:>9}{:>9}{:>9}{:>8}", "", "memory",
                                        "usable", "context", "workspace", "", "fp32", "bf16", "fp16", "memory", "host");
  const std::string second = fmt::format("{:<14}{:>9}{:>9}{:>9}{:>11}{:>7}{:>9}{:>9}{:>9}{:>9}{:>8}", "device", "GiB",
                                         "GiB", "MiB", "MiB", "sm", "TFLOPS", "TFLOPS", "TFLOPS", "GB/s", "GB/s");
  std::string out;
  for (const std::string& line : {first, second}) out += colour ? "\x1b[1m" + line + "\x1b[0m\n" : line + "\n";
  for (const DeviceSpec& device : devices) {
    const bool cuda = device.type == DeviceType::kCuda;
    const auto mib = [&](Bytes bytes, int decimals) {
      return cuda ? fmt::format("{:.{}f}", static_cast<double>(bytes.count()) / (1 << 20), decimals) : "-";
    };
    out += fmt::format(
        "{:<14}{:>9}{:>9}{:>9}{:>11}{:>7}{:>9}{:>9}{:>9}{:>9}{:>8}\n", internal::one_line(device.name, 32),
        gib(device.memory), gib(device::usable(device)), mib(device.context, 0), mib(device.cublas_workspace, 1),
        cuda ? fmt::format("{}.{}", device.compute_capability / 10, device.compute_capability % 10) : "-",
        rate(rate_of(device, DType::kFloat32), 1e12), rate(rate_of(device, DType::kBFloat16), 1e12),
        rate(rate_of(device, DType::kFloat16), 1e12), rate(device.bytes_per_second, 1e9),
        rate(device.host_bytes_per_second, 1e9));
  }
  out +=
      "\nusable = memory - context - 2 %. memory: what the driver reports. workspace: cuBLAS's, for each thread and\n"
      "stream, in the allocator. Rates are the data sheets', dense; cinch devices NAME shows one as a file to edit.\n";
  return out;
}

std::string json(const std::vector<DeviceSpec>& devices, const std::string& libtorch) {
  ordered_json list = ordered_json::array();
  for (const DeviceSpec& device : devices) list.push_back(object(device));
  const ordered_json document{{"schema", "cinch.devices/1"}, {"cinch", kVersion},  {"libtorch", libtorch},
                              {"device", nullptr},           {"threads", nullptr}, {"devices", list}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string text(const plan::Calibration& calibration, int threads, bool colour) {
  const std::string head = fmt::format("{:<58}{:>10}{:>10}{:>10}", "G a second, by size", "small", "middle", "large");
  std::string out = colour ? "\x1b[1m" + head + "\x1b[0m\n" : head + "\n";
  for (const plan::CurveSummary& row : plan::summarize(calibration)) {
    const auto giga = [](const plan::Calibration::Point& point) { return rate(point.per_second, 1e9); };
    out += fmt::format("{:<58}{:>10}{:>10}{:>10}  {}\n", internal::one_line(row.name, 57), giga(row.small),
                       giga(row.middle), giga(row.large), row.computes ? "flop" : "B");
  }
  out += fmt::format("\nlaunch of an op {:.2f} us; disk {} GB/s; {} thread{}\n", calibration.launch.count() * 1e6,
                     rate(calibration.disk_bytes_per_second, 1e9), threads, threads == 1 ? "" : "s");
  return out;
}

std::string json(const plan::Calibration& calibration, int threads, const std::string& libtorch) {
  ordered_json curves = ordered_json::array();
  for (const plan::CurveSummary& row : plan::summarize(calibration)) {
    ordered_json points = ordered_json::array();
    for (const auto& point : row.points) points.push_back({point.size, point.per_second});
    curves.push_back({{"name", row.name}, {"unit", row.computes ? "flops" : "bytes"}, {"points", points}});
  }
  const ordered_json document{{"schema", "cinch.calibration/1"},
                              {"cinch", kVersion},
                              {"libtorch", libtorch},
                              {"device", "cpu"},
                              {"threads", threads},
                              {"launch_seconds", calibration.launch.count()},
                              {"disk_bytes_per_second", calibration.disk_bytes_per_second},
                              {"curves", curves}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}
}  // namespace cinch::report
