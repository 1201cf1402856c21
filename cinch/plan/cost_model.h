#pragma once
// Time of a step from its trace: the roofline of a device, corrected by what was measured on this machine.
// Counts come from the trace (the dry run fills OpCall), rates from DeviceSpec: nothing here knows a layer.

#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "cinch/device/device_spec.h"
#include "cinch/plan/calibration.h"
#include "cinch/trace/trace.h"

namespace cinch::plan {
/// Time of ops: max(flops/rate, bytes/bandwidth) + launch, or what was measured of an op that has a curve of its own;
/// the rates interpolated in the logarithm of size. On a card work hides the launch of the next op: the larger counts.
///
/// What offloading moves ("cinch::offload", "cinch::fetch", "cinch::offload_state", "cinch::fetch_state"; to and from a
/// disk "cinch::write_state", "cinch::read_state") goes over the link to the host on a card, beside the computation: a
/// phase takes the longer of the two, and what has to be there before anything can be computed, or when all has been.
/// On the CPU copies take turns with the computation on the same cores.
class CostModel {
 public:
  explicit CostModel(device::DeviceSpec device, Calibration calibration = {});
  /// `name`: the op's, "aten::addmm"; without it the op has no curve of its own.
  Seconds op_time(const trace::OpCall& call, std::string_view name = {}) const;
  /// One training step: the last step of the trace that trains; evaluation and saving are left out.
  Seconds step_time(const trace::Trace& trace) const;
  /// Each op that step_time() counts, with its time.
  void for_each_op(const std::function<void(const trace::OpCall&, Seconds)>& visit, const trace::Trace& trace) const;
  /// The step's arithmetic without recomputation at the best rate there is: no division of the batch makes it faster.
  Seconds arithmetic_time(const trace::Trace& trace) const;
  bool calibrated() const;
  const device::DeviceSpec& device() const { return device_; }

 private:
  device::DeviceSpec device_;
  Calibration calibration_;

  class OpTimes;
  Seconds launch() const;
  const std::vector<Calibration::Point>* beside(std::string_view name) const;  ///< Of its bytes; nullptr if there is none.
  /// `curve`: of curve_of(); `beside`: of beside().
  Seconds time_on(const trace::OpCall& call, const std::vector<Calibration::Point>* curve,
                  const std::vector<Calibration::Point>* beside) const;
  Seconds copy_time(const trace::OpCall& call, std::string_view name) const;
};
}  // namespace cinch::plan
