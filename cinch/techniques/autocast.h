#pragma once
// Mixed precision: while an Autocast lives, LibTorch's autocast runs matrix products and convolutions in a smaller type
// and casts their float32 inputs; weights stay float32.
//
//   at::Tensor loss;
//   {
//     const techniques::Autocast autocast(at::kCPU, at::kBFloat16);
//     loss = model.loss_sum(batch);
//   }
//   loss.backward();                  // outside: the graph knows what was cast
//
// A weight is cast once while the outermost Autocast lives, and the cast kept: 2 bytes a parameter on top. Small
// batches need more memory with it than without (docs/mixed-precision.md).

#include <ATen/core/Tensor.h>

namespace cinch::techniques {

/// Autocast of one device type on this thread; the settings there were come back at the end, exceptions included. May
/// be nested: casts of weights are kept until the outermost ends, and freed there (but for what a graph holds). One of
/// another type than the one around it begins and ends without casts: LibTorch would take those of the wrong type.
class [[nodiscard]] Autocast {
 public:
  /// `device`: CPU or CUDA. `dtype`: bfloat16 or half; float32 switches autocast off within an outer one. Throws
  /// UsageError for any other.
  Autocast(at::DeviceType device, at::ScalarType dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType device_;
  at::ScalarType dtype_before_;
  bool enabled_before_;
  bool fresh_casts_;
};
}  // namespace cinch::techniques
