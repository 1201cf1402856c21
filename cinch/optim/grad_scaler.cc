#include "cinch/optim/grad_scaler.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "cinch/core/error.h"
#include "cinch/optim/in_backward.h"

namespace cinch::optim {
namespace {

/// The scale and its reciprocal are both normal float32 numbers.
constexpr double kLargestScale = 0x1p126, kSmallestScale = 0x1p-126;

void require(bool holds, const char* problem) {
  if (!holds) throw UsageError(std::string("a GradScaler's ") + problem);
}

std::string plain(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

/// Gradients that one call of the fused op may take: it wants one device and dtype.
struct Alike {
  at::Device device;
  at::ScalarType dtype;
  std::vector<at::Tensor> gradients;
};

std::vector<Alike> gradients_of(Optimizer& optimizer) {
  std::vector<Alike> kinds;
  for (const auto& group : optimizer.groups()) {
    for (const auto& parameter : group.parameters) {
      const auto& gradient = parameter.tensor.grad();
      if (!gradient.defined()) continue;
      if (gradient.scalar_type() == at::kHalf) {
        throw UsageError("the gradient of \"" + parameter.name + "\" is fp16: it overflows before it is unscaled",
                         "Keep weights in float32 and run the forward pass under Autocast to fp16.");
      }
      if (gradient.layout() != at::kStrided) {
        throw UsageError("the gradient of \"" + parameter.name + "\" is sparse: it cannot be unscaled");
      }
      auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const Alike& alike) {
        return alike.device == gradient.device() && alike.dtype == gradient.scalar_type();
      });
      if (kind == kinds.end()) kind = kinds.insert(kind, {gradient.device(), gradient.scalar_type(), {}});
      kind->gradients.push_back(gradient);
    }
  }
  return kinds;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options) : options_(options), state_{options.initial_scale, 0} {
  require(std::isfinite(options.growth_factor) && options.growth_factor > 1, "growth_factor must be above 1");
  require(options.backoff_factor > 0 && options.backoff_factor < 1, "backoff_factor must lie between 0 and 1");
  require(options.growth_interval > 0, "growth_interval must be at least 1");
  require(options.min_scale >= kSmallestScale && options.min_scale <= kLargestScale,
          "min_scale must lie between 2^-126 and 2^126");
  require(options.initial_scale >= options.min_scale && options.initial_scale <= kLargestScale,
          "initial_scale must lie between min_scale and 2^126");
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const { return loss.mul(state_.scale); }

void GradScaler::unscale(Optimizer& optimizer) {
  if (dynamic_cast<const BackwardOptimizer*>(&optimizer) != nullptr) {
    throw UsageError("a GradScaler cannot unscale for an optimizer in backward: it stepped by scaled gradients already",
                     "Train in bf16, which needs no scale, or use the optimizer as it is.");
  }
  const auto found = progress_.find(&optimizer);
  if (found != progress_.end()) {
    throw UsageError(found->second.stepped ? "unscale() after step() of the same optimizer"
                                           : "unscale() of the same optimizer for the second time",
                     "Call update() once after each step, and unscale() at most once before it.");
  }
  auto kinds = gradients_of(optimizer);
  const at::NoGradGuard no_grad;
  Progress progress;
  for (auto& [device, dtype, gradients] : kinds) {
    const auto number = at::TensorOptions(device).dtype(at::kFloat);
    progress.found_inf.push_back(at::zeros({}, number));
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, progress.found_inf.back(),
                                                   at::full({}, 1 / state_.scale, number));
  }
  progress_.emplace(&optimizer, std::move(progress));
}

bool GradScaler::is_finite(Progress& progress) const {
  if (!progress.finite) {
    // Asked this way round: a dry run, which has no values, takes a comparison to hold.
    progress.finite = std::all_of(progress.found_inf.begin(), progress.found_inf.end(),
                                  [](const at::Tensor& found) { return found.eq(0).item<bool>(); });
    progress.found_inf.clear();
  }
  return *progress.finite;
}

std::optional<StepResult> GradScaler::step(Optimizer& optimizer, const StepOptions& options) {
  const auto found = progress_.find(&optimizer);
  if (found == progress_.end()) {
    unscale(optimizer);
  } else if (found->second.stepped) {
    throw UsageError("step() of the same optimizer for the second time", "Call update() once after each step.");
  }
  Progress& progress = progress_.at(&optimizer);
  if (!is_finite(progress)) {
    progress.stepped = true;
    optimizer.zero_grad();  // Infinities that stayed would be added to by every backward pass from here on.
    return std::nullopt;
  }
  auto result = optimizer.step(options);
  progress.stepped = true;
  return result;
}

void GradScaler::update() {
  if (progress_.empty()) {
    throw UsageError("update() of a GradScaler before any step()",
                     "Call step() of each optimizer, then update() once.");
  }
  bool finite = true;
  for (auto& [optimizer, progress] : progress_) finite = is_finite(progress) && finite;
  progress_.clear();
  if (finite) {
    if (++state_.clean_updates < options_.growth_interval) return;
    state_.clean_updates = 0;
    if (state_.scale * options_.growth_factor <= kLargestScale) state_.scale *= options_.growth_factor;
    return;
  }
  state_.clean_updates = 0;
  if (state_.scale <= options_.min_scale) {
    throw Error("gradients are not finite though the loss scale has fallen to its floor, " + plain(state_.scale) +
                    "; the step was left out",
                "No scale helps here: look for a loss that is infinite or NaN, a learning rate that is too high, or an "
                "activation above 65504, the largest fp16 number; bf16 has no such limit.");
  }
  state_.scale = std::max(state_.scale * options_.backoff_factor, options_.min_scale);
}

void GradScaler::abandon() { progress_.clear(); }

void GradScaler::load_state(const GradScalerState& state) {
  const bool right = state.scale >= options_.min_scale && state.scale <= kLargestScale && state.clean_updates >= 0;
  if (!right) {
    throw DataError("loss scaler state", 0,
                    "scale " + plain(state.scale) + " after " + std::to_string(state.clean_updates) +
                        " clean updates is no state of this loss scaler");
  }
  state_ = state;
  progress_.clear();
}
}  // namespace cinch::optim
