#pragma once
// Loss scaling for fp16: small gradients are lifted out of fp16's underflow, and a step whose gradients overflowed is
// left out. Follows torch.amp.GradScaler.
//
//   optim::GradScaler scaler;
//   for (...) {
//     {
//       const techniques::Autocast autocast(at::kCUDA, at::kHalf);
//       loss = model.loss_sum(batch);
//     }
//     scaler.scale(loss).backward();                       // once for each micro-batch
//     scaler.step(*optimizer, {.max_grad_norm = 1.0});     // unscales, clips, steps; or drops gradients that
//     overflowed scaler.update(); optimizer->zero_grad();
//   }

#include <cstdint>
#include <map>
#include <optional>

#include <ATen/core/Tensor.h>

#include "cinch/optim/optimizer.h"

namespace cinch::optim {

struct GradScalerOptions {
  double initial_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;  ///< Updates without an overflow before the scale grows.
  double min_scale = 1;                 ///< An overflow here is an error: no smaller scale would help.
};

/// What a checkpoint keeps.
struct GradScalerState {
  double scale = 0;
  std::int64_t clean_updates = 0;  ///< Since the scale last changed, or an overflow.
  friend bool operator==(const GradScalerState&, const GradScalerState&) = default;
};

/// One for all optimizers of a training. Between two update()s each optimizer goes from ready by unscale() to unscaled
/// and by step() to stepped; what does not follow this order throws UsageError and changes nothing.
///
/// Whether gradients are finite is found by one fused op over all of them, in the pass that unscales. step() reads the
/// answer: the one synchronisation with the device. In a dry run, where values are not there, they count as finite: the
/// step is not left out, which is the larger of the two.
class GradScaler {
 public:
  /// UsageError: factors, interval or scales that make no sense.
  explicit GradScaler(const GradScalerOptions& options = {});

  /// `loss` times the scale, in its own dtype; differentiable. The scale stays the same until update(): micro-batches
  /// add up.
  at::Tensor scale(const at::Tensor& loss) const;
  /// Divides the optimizer's gradients by the scale, in place: for whoever looks at them before step(). UsageError for
  /// the second time before update(), for fp16 gradients (they overflow before they are unscaled: weights must be
  /// float32 or bfloat16) and sparse ones.
  void unscale(Optimizer& optimizer);
  /// Unscales if that is not done yet, and steps. Nothing if a gradient is not finite: this optimizer's step is left
  /// out, and its gradients are dropped. UsageError for the second time before update(). An exception of the
  /// optimizer's passes; the gradients are unscaled then.
  std::optional<StepResult> step(Optimizer& optimizer, const StepOptions& options = {});
  /// After all optimizers. An overflow in any of them backs the scale off; growth_interval updates without one let it
  /// grow, never beyond what float32 can divide by. UsageError if no optimizer was unscaled since the last update.
  /// Error if there was an overflow at the smallest scale: gradients are not finite for another reason. The scaler can
  /// be used on after that.
  void update();
  /// A step is given up: what was unscaled counts as never been. For use after an exception, with zero_grad().
  void abandon();

  double scale() const { return state_.scale; }
  GradScalerState state() const { return state_; }
  /// DataError for a state that this scaler cannot have.
  void load_state(const GradScalerState& state);

 private:
  struct Progress {
    std::vector<at::Tensor> found_inf;  ///< One a device: above 0 if a gradient is not finite.
    std::optional<bool> finite;         ///< As read.
    bool stepped = false;
  };
  bool is_finite(Progress& progress) const;

  GradScalerOptions options_;
  GradScalerState state_;
  std::map<const Optimizer*, Progress> progress_;  ///< Since the last update; ready: not in it.
};
}  // namespace cinch::optim
