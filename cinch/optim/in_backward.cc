#include "cinch/optim/in_backward.h"

#include <utility>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/rule_optimizer.h"
#include "cinch/record/recorder.h"

namespace cinch::optim {
namespace {

void check(const InBackwardOptions& options) {
  if (!options.max_grad_norm) {
    if (!options.two_passes) return;
    throw UsageError("two_passes without max_grad_norm would run backward twice for nothing.");
  }
  internal::check_number(*options.max_grad_norm, "max_grad_norm");
  if (!options.two_passes) {
    throw UsageError(
        "Clipping by the global norm needs all gradients, and an optimizer in backward drops each before the next is "
        "whole.",
        "Set two_passes: backward runs twice, once to measure. Or use the optimizer as it is.");
  }
}

class InBackward final : public BackwardOptimizer {
 public:
  InBackward(std::unique_ptr<Optimizer> optimizer, std::vector<ParameterGroup> groups, InBackwardOptions options)
      : BackwardOptimizer(std::move(groups)),
        optimizer_(std::move(optimizer)),
        inside_(internal::wrapped(optimizer_, "in_backward")),
        options_(options) {
    attach();
  }
  ~InBackward() override { detach(); }
  InBackward(const InBackward&) = delete;
  InBackward& operator=(const InBackward&) = delete;

  StepResult backward(const at::Tensor& loss, bool last) override {
    if (!last && options_.two_passes) {
      throw UsageError(
          "Clipping over micro-batches keeps all gradients until the last one is whole: an optimizer in backward saves "
          "nothing.",
          "Use the optimizer as it is, or one micro-batch.");
    }
    StepResult result;
    const ModeScope scope(mode_);  // Idle again at the end, exceptions included.
    if (options_.two_passes) {
      result.grad_norm = measure(loss);
      factor_ = internal::clip_factor(result.grad_norm, *options_.max_grad_norm);
    }
    if (last) mode_ = Mode::kStep;
    loss.backward();
    return result;
  }

  StepResult step(const StepOptions& options) override {
    if (options.max_grad_norm) {
      throw UsageError("An optimizer in backward clips as it was made to, not in step().",
                       "Give InBackwardOptions a max_grad_norm.");
    }
    return inside_.step({});
  }
  std::map<std::string, at::Tensor> state() const override { return inside_.state(); }
  void load_state(const std::map<std::string, at::Tensor>& state) override { inside_.load_state(state); }

 private:
  enum class Mode : std::uint8_t { kIdle, kMeasure, kStep };
  class ModeScope {
   public:
    explicit ModeScope(Mode& mode) : mode_(mode) {}
    ~ModeScope() { mode_ = Mode::kIdle; }
    ModeScope(const ModeScope&) = delete;
    ModeScope& operator=(const ModeScope&) = delete;

   private:
    Mode& mode_;
  };
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(InBackward& owner, std::size_t group, std::size_t position, std::size_t index)
        : owner(owner), group(group), position(position), index(index) {}
    void operator()(const at::Tensor& /*parameter*/) override { owner.on_gradient(group, position, index); }
    InBackward& owner;
    std::size_t group, position, index;
  };

  void attach() {
    std::size_t index = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      for (std::size_t i = 0; i < groups_[g].parameters.size(); ++i) {
        const auto& parameter = groups_[g].parameters[i];
        if (!parameter.tensor.requires_grad()) {
          detach();
          throw UsageError("The parameter \"" + parameter.name + "\" requires no gradient.", "Leave it out.");
        }
        if (torch::autograd::impl::post_acc_grad_hooks(parameter.tensor) != nullptr) {
          detach();
          throw UsageError("The parameter \"" + parameter.name + "\" has a post-accumulate-grad hook already.",
                           "Another optimizer in backward? Only one can be.");
        }
        torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, std::make_unique<Hook>(*this, g, i, index++));
      }
    }
    norms_.resize(index);
  }

  void detach() noexcept {
    for (const auto& group : groups_) {
      for (const auto& parameter : group.parameters) {
        if (!parameter.tensor.requires_grad()) continue;
        auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter.tensor);
        const auto* ours = dynamic_cast<const Hook*>(hook.get());
        if (ours != nullptr && &ours->owner == this) hook.reset();
      }
    }
  }

  /// Runs in backward, one gradient at a time.
  void on_gradient(std::size_t group, std::size_t position, std::size_t index) {
    if (mode_ == Mode::kIdle) return;
    const at::NoGradGuard no_grad;
    const auto& parameter = groups_[group].parameters[position];
    auto& gradient = parameter.tensor.mutable_grad();
    record::label(gradient, trace::Category::kGradient, parameter.name);
    if (mode_ == Mode::kMeasure) {
      norms_[index] = internal::norm_of(gradient, groups_.front().parameters.front().tensor.device());
    } else {
      if (factor_.defined()) gradient.mul_(factor_.to(gradient.device()));
      inside_.step_parameter(groups_[group], parameter, index);
    }
    gradient.reset();
  }

  at::Tensor measure(const at::Tensor& loss) {
    for (const auto& group : groups_) {
      for (const auto& parameter : group.parameters) {
        if (!parameter.tensor.grad().defined()) continue;
        throw UsageError(
            "The parameter \"" + parameter.name + "\" has a gradient before backward.",
            "zero_grad() drops what was left; micro-batches and clipping in backward exclude one another.");
      }
    }
    mode_ = Mode::kMeasure;
    loss.backward(/*gradient=*/{}, /*retain_graph=*/true);
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> norms;
    for (auto& norm : norms_) {
      if (norm.defined()) norms.push_back(std::exchange(norm, {}));
    }
    return internal::norm_of_all(norms);
  }

  std::unique_ptr<Optimizer> optimizer_;
  internal::RuleOptimizer& inside_;  ///< In optimizer_.
  const InBackwardOptions options_;
  Mode mode_ = Mode::kIdle;
  std::vector<at::Tensor> norms_;  ///< By parameter, while they are measured.
  at::Tensor factor_;              ///< What gradients are multiplied by, if they are clipped.
};
}  // namespace

std::unique_ptr<BackwardOptimizer> in_backward(std::unique_ptr<Optimizer> optimizer, InBackwardOptions options) {
  check(options);
  internal::wrapped(optimizer, "in_backward");
  std::vector<ParameterGroup> groups(optimizer->groups().begin(), optimizer->groups().end());
  return std::make_unique<InBackward>(std::move(optimizer), std::move(groups), options);
}
}  // namespace cinch::optim
