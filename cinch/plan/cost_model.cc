#include "cinch/plan/cost_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cinch::plan {
namespace {
using Points = std::vector<Calibration::Point>;

// The rate at `size`, linear in the logarithm of size; the nearest point's outside what was measured.
double interpolate(const Points& points, double size) {
  const auto above = std::ranges::lower_bound(points, size, {}, &Calibration::Point::size);
  if (above == points.begin()) return points.front().per_second;
  if (above == points.end()) return points.back().per_second;
  const Calibration::Point& low = *(above - 1);
  const double part = std::log(size / low.size) / std::log(above->size / low.size);
  return low.per_second + part * (above->per_second - low.per_second);
}

double roofline_rate(const device::DeviceSpec& device, DType dtype) {
  if (device.peak_rates.empty()) return std::numeric_limits<double>::infinity();
  for (const auto& rate : device.peak_rates) {
    if (rate.dtype == dtype) return rate.flops_per_second;
  }
  // A type that the device has no units for runs no faster than its slowest.
  return std::ranges::min(device.peak_rates, {}, &device::DeviceSpec::Rate::flops_per_second).flops_per_second;
}

bool trains(trace::Phase phase) {
  return phase == trace::Phase::kData || phase == trace::Phase::kForward || phase == trace::Phase::kBackward ||
         phase == trace::Phase::kOptimizer || phase == trace::Phase::kOther;
}

// Calls `visit` with each op of the last step that has a backward.
template <typename Visit>
void for_each_op_of_last_step(const trace::Trace& trace, Visit visit) {
  bool found = false;
  std::uint32_t last = 0;
  for (const trace::OpCall& call : trace.ops()) {
    if (call.phase != trace::Phase::kBackward) continue;
    last = found ? std::max(last, call.step) : call.step;
    found = true;
  }
  if (!found) return;
  for (const trace::OpCall& call : trace.ops()) {
    if (call.step == last && trains(call.phase)) visit(call);
  }
}
}  // namespace

CostModel::CostModel(device::DeviceSpec device, Calibration calibration)
    : device_(std::move(device)), calibration_(std::move(calibration)) {}

bool CostModel::calibrated() const { return !calibration_.matrix.empty() || !calibration_.elementwise.empty(); }

Seconds CostModel::op_time(const trace::OpCall& call, std::string_view name) const {
  const double bytes = static_cast<double>(call.read.count()) + static_cast<double>(call.written.count());
  const Seconds launch = calibration_.launch > Seconds(0) ? calibration_.launch : device_.launch;
  if (const auto own = calibration_.ops.find(name); own != calibration_.ops.end() && !own->second.empty()) {
    const double size = call.flops > 0 ? call.flops : bytes;
    return (size > 0 ? Seconds(size / interpolate(own->second, size)) : Seconds(0)) + launch;
  }
  double compute = 0, memory = 0;
  if (call.flops > 0) {
    const double rate =
        calibration_.matrix.empty() ? roofline_rate(device_, call.dtype) : interpolate(calibration_.matrix, call.flops);
    compute = call.flops / rate;
  }
  if (bytes > 0) {
    const double rate =
        calibration_.elementwise.empty() ? device_.bytes_per_second : interpolate(calibration_.elementwise, bytes);
    if (rate > 0) memory = bytes / rate;
  }
  // A card computes while the next op is launched: only what is shorter than a launch waits for it.
  if (device_.type == device::DeviceType::kCuda) return std::max(Seconds(std::max(compute, memory)), launch);
  return Seconds(std::max(compute, memory)) + launch;
}

Seconds CostModel::step_time(const trace::Trace& trace) const {
  Seconds sum{};
  for_each_op_of_last_step(trace, [&](const trace::OpCall& call) { sum += op_time(call, trace.name(call.name)); });
  return sum;
}

std::vector<std::pair<trace::NameId, Seconds>> CostModel::recompute_times(const trace::Trace& trace) const {
  std::map<trace::NameId, Seconds> sums;
  for_each_op_of_last_step(trace, [&](const trace::OpCall& call) {
    if (call.recompute) sums[call.module] += op_time(call, trace.name(call.name));
  });
  return {sums.begin(), sums.end()};
}

Seconds CostModel::arithmetic_time(const trace::Trace& trace) const {
  const auto fastest = [](const Points& points) {
    return std::ranges::max(points, {}, &Calibration::Point::per_second).per_second;
  };
  Seconds sum{};
  for_each_op_of_last_step(trace, [&](const trace::OpCall& call) {
    if (call.flops <= 0 || call.recompute) return;
    const auto own = calibration_.ops.find(trace.name(call.name));
    const Points& points = own == calibration_.ops.end() ? calibration_.matrix : own->second;
    sum += Seconds(call.flops / (points.empty() ? roofline_rate(device_, call.dtype) : fastest(points)));
  });
  return sum;
}
}  // namespace cinch::plan
