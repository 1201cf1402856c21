#pragma once
// Time of a step from its trace: the roofline of a device, corrected by what was measured on this machine.
// Counts come from the trace (the dry run fills OpCall), rates from DeviceSpec: nothing here knows a layer.

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cinch/device/device_spec.h"
#include "cinch/trace/trace.h"

namespace cinch::plan {
using Seconds = std::chrono::duration<double>;

/// Measured rates, each at several sizes, since a processor's caches and the system's fresh pages make small and large
/// ops differ by more than any plan does. Made by train::calibrate(). Empty: the roofline alone speaks.
struct Calibration {
  struct Point {
    double size;        ///< Flops, or bytes read and written.
    double per_second;  ///< Of the same.
  };
  std::vector<Point> matrix;       ///< Ops with flops, by flops; rising sizes.
  std::vector<Point> elementwise;  ///< Ops without, by bytes moved; rising sizes.
  /// Ops that neither curve fits, by name ("aten::bernoulli_"): by flops where they have any, else by bytes.
  std::map<std::string, std::vector<Point>, std::less<>> ops{};
  /// Of any op, beyond all that: dispatch, views, autograd's nodes. 0: the device's.
  Seconds launch{};
};

/// Time of ops: max(flops/rate, bytes/bandwidth) + launch, or what was measured of an op that has a curve of its own;
/// the rates interpolated in the logarithm of size. On a card work hides the launch of the next op: the larger counts.
class CostModel {
 public:
  explicit CostModel(device::DeviceSpec device, Calibration calibration = {});
  /// `name`: the op's, "aten::addmm"; without it the op has no curve of its own.
  Seconds op_time(const trace::OpCall& call, std::string_view name = {}) const;
  /// One training step: the last step of the trace that trains; evaluation and saving are left out.
  Seconds step_time(const trace::Trace& trace) const;
  /// What of step_time() is recomputation, by the module of the op.
  std::vector<std::pair<trace::NameId, Seconds>> recompute_times(const trace::Trace& trace) const;
  /// The step's arithmetic without recomputation at the best rate there is: no division of the batch makes it faster.
  Seconds arithmetic_time(const trace::Trace& trace) const;
  bool calibrated() const;
  const device::DeviceSpec& device() const { return device_; }

 private:
  device::DeviceSpec device_;
  Calibration calibration_;
};
}  // namespace cinch::plan
