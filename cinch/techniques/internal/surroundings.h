#pragma once
// The thread's state that a second run must find as the first one did.

#include <array>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace cinch::techniques::internal {

/// State of generators, copied: one small tensor each.
class GeneratorStates {
 public:
  GeneratorStates() = default;
  /// The default generators of the CPU and of the devices of `tensors`, as they are now.
  explicit GeneratorStates(at::ArrayRef<at::Tensor> tensors);
  /// The same generators, as they are now.
  GeneratorStates now() const;
  void restore() const;

 private:
  void add(at::Generator generator);
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// Autocast on this thread, for the devices that have kernels here.
class AutocastState {
 public:
  AutocastState();  ///< As it is now.
  void restore() const;
  bool enabled() const;

 private:
  struct Device {
    bool enabled;
    at::ScalarType dtype;
  };
  static constexpr std::array kDevices{at::kCPU, at::kCUDA};
  std::array<Device, kDevices.size()> devices_;
  bool cache_;
};

/// Autocast as `state` says until destroyed. Weights cast meanwhile are forgotten at the end of the outermost one.
class [[nodiscard]] AutocastScope {
 public:
  explicit AutocastScope(const AutocastState& state);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  AutocastState before_;
  bool nests_;
};
}  // namespace cinch::techniques::internal
