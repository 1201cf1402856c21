#pragma once
// The ops that train::calibrate() times: those that take most of training steps, each as it stands for others alike.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace cinch::train::internal {

using Work = std::function<void()>;

/// Arguments for ops. What a step's op reads was either made just before, or long ago.
class Memory {
 public:
  Memory();
  /// Numbers that were not used for a while: in no cache, but where the processor's are larger than all of them.
  at::Tensor cold(std::int64_t numbers, at::ScalarType dtype = at::kFloat);
  /// The same ones at each call.
  at::Tensor warm(std::int64_t numbers, at::ScalarType dtype = at::kFloat) const;
  static constexpr std::int64_t kNumbers = 16 << 20;  ///< Of float32; as many bytes for other types.

 private:
  at::Tensor long_ago_, just_made_;
  std::int64_t begin_ = 0;  ///< In numbers of float32.
};

/// One point of a curve: works that stand for it together.
struct CalibratedPoint {
  std::string curve;  ///< As in plan::Calibration::ops, or "matrix", "elementwise".
  std::string op;     ///< Each work runs it once. Empty: `bytes` says what it moves.
  std::vector<Work> works;
  double bytes = 0;
};

/// Of a curve's points, sizes rise. The works use `memory`.
std::vector<CalibratedPoint> calibrated_points(Memory& memory);
}  // namespace cinch::train::internal
