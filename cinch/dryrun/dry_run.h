#pragma once
// A dry run as events: the training code runs, its tensors have layouts and lifetimes but no bytes.
//
//   trace::Trace trace;
//   {
//     dryrun::DryRun dry(trace, device::find("cpu"));
//     auto net = Net();  auto loss = net->forward(torch::rand({32, 784}));  loss.backward();
//   }
//   trace::classify(trace);
//
// Includes no LibTorch header.

#include <memory>
#include <string>
#include <vector>

#include "cinch/device/device_spec.h"
#include "cinch/trace/sink.h"

namespace at {
class Tensor;
}

namespace cinch::dryrun {

/// While it lives, tensors made on the calling thread are fake: no bytes, no arithmetic. Every allocation is an event in
/// `sink`, at the size the real run asks for, scratch inside kernels included; every op an OpCall with its cost.
///  * Small tensors computed from small tensors (scalars, generator states) stay real and are events too.
///  * Tensors made before are never written: ops on them give fake results.
///  * An op without a rule is probed: its CPU kernel runs once on stand-ins. One that has no such kernel throws
///    UnsupportedError naming op and module.
///  * Where sizes depend on values that are not there, the largest result counts: every element is not zero
///    (nonzero, masks as indices, masked_select), no two are alike (unique); bounded() names the ops. Where there is no
///    largest (bincount, repeat_interleave, ctc_loss with lengths in tensors) it throws UnsupportedError. Small real
///    arguments, such as the lengths of sequences, keep their values: then the result is exact.
///    item() of a fake tensor gives 1: enough for logging; a program that branches on it is predicted on that branch.
/// One at a time in a process, never inside a Recorder (UsageError). Destroy all fake tensors before it.
/// Restores the default generator: a dry run leaves no trace in the real run's randomness.
class DryRun {
 public:
  DryRun(trace::Sink& sink, const device::DeviceSpec& device);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  /// Allocations of tensors that were made before and met in this run: each an event where it was first met.
  std::vector<trace::AllocationId> existing() const;

  /// Ops whose results were taken at their largest, since their sizes depend on values: "aten::nonzero in head".
  std::vector<std::string> bounded() const;
  /// Ops too large to run on stand-ins: their results count, what their kernels take inside does not.
  std::vector<std::string> by_shape_alone() const;

  /// Labels the gradients of the leaves that were used so far: for steps whose parameters nobody names.
  void label_gradients();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

bool is_fake(const at::Tensor& tensor) noexcept;
/// Of fake tensors of the whole process: more than 0 after a dry run means that something keeps its tensors.
Bytes fake_bytes_alive() noexcept;
}  // namespace cinch::dryrun
