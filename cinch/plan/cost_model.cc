#include "cinch/plan/cost_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>

namespace cinch::plan {
namespace {
using Points = std::vector<Calibration::Point>;

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

// What goes between the device and another place, while it may compute.
enum class Copy : std::uint8_t { kNone, kOut, kIn };

Copy copy_of(std::string_view name) {
  if (!name.starts_with("cinch::")) return Copy::kNone;
  if (name == "cinch::offload" || name == "cinch::offload_state" || name == "cinch::write_state") return Copy::kOut;
  if (name == "cinch::fetch" || name == "cinch::fetch_state" || name == "cinch::read_state") return Copy::kIn;
  return Copy::kNone;
}

bool goes_to_disk(std::string_view name) { return name == "cinch::write_state" || name == "cinch::read_state"; }

double bytes_moved(const trace::OpCall& call) {
  return static_cast<double>(call.read.count()) + static_cast<double>(call.written.count());
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

/// Of the ops of one trace: the curve of each is looked up once.
class CostModel::OpTimes {
 public:
  OpTimes(const CostModel& costs, const trace::Trace& trace) : costs_(costs), trace_(trace) {}

  Copy copy(const trace::OpCall& call) { return known(call).copy; }
  Seconds operator()(const trace::OpCall& call) {
    const Known& op = known(call);
    const Seconds once =
        op.copy == Copy::kNone ? costs_.time_on(call, op.curve, op.beside) : costs_.copy_time(call, trace_.name(call.name));
    return once * call.times;
  }

 private:
  struct Known {
    Copy copy = Copy::kNone;
    const Points* curve = nullptr;
    const Points* beside = nullptr;
  };
  const Known& known(const trace::OpCall& call) {
    const auto key = std::tuple(call.name, call.dtype, call.flops > 0);
    const auto [slot, fresh] = known_.try_emplace(key);
    if (fresh) {
      const std::string_view name = trace_.name(call.name);
      slot->second = {copy_of(name), curve_of(costs_.calibration_, name, call.dtype, call.flops > 0),
                      costs_.beside(name)};
    }
    return slot->second;
  }

  const CostModel& costs_;
  const trace::Trace& trace_;
  std::map<std::tuple<trace::NameId, DType, bool>, Known> known_;
};

Seconds CostModel::launch() const { return calibration_.launch > Seconds(0) ? calibration_.launch : device_.launch; }

const Points* CostModel::beside(std::string_view name) const {
  const auto found = calibration_.ops.find(std::string(name) + std::string(kBytesBeside));
  return found == calibration_.ops.end() || found->second.empty() ? nullptr : &found->second;
}

Seconds CostModel::time_on(const trace::OpCall& call, const Points* curve, const Points* beside) const {
  const double bytes = bytes_moved(call);
  const bool general = curve == &calibration_.matrix || curve == &calibration_.elementwise;
  if (curve != nullptr && !general) {
    const double size = call.flops > 0 ? call.flops : bytes;
    double seconds = size > 0 ? size / rate_at(*curve, size) : 0;
    if (beside != nullptr && bytes > 0) seconds += bytes / rate_at(*beside, bytes);
    return Seconds(seconds) + launch();
  }
  double compute = 0, memory = 0;
  if (call.flops > 0)
    compute = call.flops / (curve != nullptr ? rate_at(*curve, call.flops) : roofline_rate(device_, call.dtype));
  if (bytes > 0) {
    const double rate =
        calibration_.elementwise.empty() ? device_.bytes_per_second : rate_at(calibration_.elementwise, bytes);
    if (rate > 0) memory = bytes / rate;
  }
  // A card computes while the next op is launched: only what is shorter than a launch waits for it.
  if (device_.type == device::DeviceType::kCuda) return std::max(Seconds(std::max(compute, memory)), launch());
  return Seconds(std::max(compute, memory)) + launch();
}

Seconds CostModel::copy_time(const trace::OpCall& call, std::string_view name) const {
  const double bytes = bytes_moved(call);
  double rate = device_.type == device::DeviceType::kCuda ? device_.host_bytes_per_second : 0;
  if (rate <= 0) {
    const Points* curve = curve_of(calibration_, name, DType::kFloat32, false);
    rate = curve != nullptr ? rate_at(*curve, bytes) : device_.bytes_per_second;
  }
  Seconds time = rate > 0 ? Seconds(bytes / rate) : Seconds(0);
  const double disk =
      calibration_.disk_bytes_per_second > 0 ? calibration_.disk_bytes_per_second : device_.disk_bytes_per_second;
  if (goes_to_disk(name) && disk > 0) time = std::max(time, Seconds(bytes / disk));
  return time + launch();
}

Seconds CostModel::op_time(const trace::OpCall& call, std::string_view name) const {
  if (copy_of(name) != Copy::kNone) return copy_time(call, name);
  return time_on(call, curve_of(calibration_, name, call.dtype, call.flops > 0), beside(name));
}

Seconds CostModel::step_time(const trace::Trace& trace) const {
  OpTimes times(*this, trace);
  if (device_.type == device::DeviceType::kCpu) {
    Seconds sum{};
    for_each_op_of_last_step(trace, [&](const trace::OpCall& call) { sum += times(call); });
    return sum;
  }
  Seconds step{}, computing{}, copying{}, first_in{}, last_out{};
  auto phase = trace::Phase::kOther;
  const auto end_phase = [&] {
    step += std::max(computing, copying) + first_in;
    computing = copying = first_in = Seconds(0);
  };
  for_each_op_of_last_step(trace, [&](const trace::OpCall& call) {
    if (call.phase != phase) end_phase();
    phase = call.phase;
    const Copy copy = times.copy(call);
    const Seconds time = times(call);
    if (copy == Copy::kNone) {
      computing += time;
    } else if (copy == Copy::kIn && first_in == Seconds(0)) {
      first_in = time;
    } else {
      copying += time;
    }
    last_out = copy == Copy::kOut && call.phase == trace::Phase::kOptimizer ? time : last_out;
  });
  end_phase();
  return step + last_out;
}

void CostModel::for_each_op(const std::function<void(const trace::OpCall&, Seconds)>& visit,
                            const trace::Trace& trace) const {
  OpTimes times(*this, trace);
  for_each_op_of_last_step(trace, [&](const trace::OpCall& call) { visit(call, times(call)); });
}

Seconds CostModel::arithmetic_time(const trace::Trace& trace) const {
  const auto fastest = [](const Points& points) {
    return std::ranges::max(points, {}, &Calibration::Point::per_second).per_second;
  };
  Seconds sum{};
  for_each_op_of_last_step(trace, [&](const trace::OpCall& call) {
    if (call.flops <= 0 || call.recompute) return;
    const Points* curve = curve_of(calibration_, trace.name(call.name), call.dtype, true);
    sum += Seconds(call.flops / (curve == nullptr ? roofline_rate(device_, call.dtype) : fastest(*curve)));
  });
  return sum;
}
}  // namespace cinch::plan
