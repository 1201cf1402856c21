// The optimizers but for the one with 8-bit state: each a Rule.
#include <utility>

#include <ATen/ATen.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/adafactor_kernel.h"
#include "cinch/optim/internal/ops.h"
#include "cinch/optim/internal/rule_optimizer.h"
#include "cinch/optim/optimizer.h"

namespace cinch::optim {
namespace {
using internal::Rule;
using internal::StateKey;
using internal::Tensors;

std::unique_ptr<Optimizer> make(std::vector<ParameterGroup> groups, std::unique_ptr<Rule> rule) {
  return std::make_unique<internal::RuleOptimizer>(std::move(groups), std::move(rule));
}

/// Rules whose state is the same for every parameter.
class UniformRule : public Rule {
 public:
  explicit UniformRule(std::vector<StateKey> keys) : keys_(std::move(keys)) {}
  const std::vector<StateKey>& keys(int /*kind*/) const override { return keys_; }

 private:
  const std::vector<StateKey> keys_;
};

/// Adam and AdamW differ in what weight decay is added to.
class FusedAdam final : public UniformRule {
 public:
  FusedAdam(AdamWOptions options, bool decoupled)
      : UniformRule({{"exp_avg", &internal::zeros_like_parameter},
                     {"exp_avg_sq", &internal::zeros_like_parameter},
                     {"step", &internal::zero_scalar}}),
        options_(options),
        decoupled_(decoupled) {
    internal::check_beta(options_.beta1, "beta1");
    internal::check_beta(options_.beta2, "beta2");
    internal::check_number(options_.eps, "eps");
  }

  void prepare(Tensors& tensors) const override {
    for (const auto& step : tensors.state[2]) tensors.advanced_steps.push_back(step + 1);
  }
  void update(const ParameterGroup& group, Tensors& tensors) const override {
    const auto run = decoupled_ ? &call<&at::_fused_adamw_> : &call<&at::_fused_adam_>;
    run(group, tensors, options_);
    for (std::size_t i = 0; i < tensors.advanced_steps.size(); ++i)
      tensors.state[2][i].copy_(tensors.advanced_steps[i]);
  }

 private:
  using Fused = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                         double, double, double, double, double, bool, bool, const std::optional<at::Tensor>&,
                         const std::optional<at::Tensor>&);
  template <Fused op>
  static void call(const ParameterGroup& group, Tensors& tensors, const AdamWOptions& options) {
    op(tensors.parameters, tensors.gradients, tensors.state[0], tensors.state[1], /*max_exp_avg_sqs=*/{},
       tensors.advanced_steps, group.learning_rate, options.beta1, options.beta2, group.weight_decay, options.eps,
       /*amsgrad=*/false, /*maximize=*/false, {}, {});
  }

  const AdamWOptions options_;
  const bool decoupled_;
};

class Sgd final : public UniformRule {
 public:
  explicit Sgd(SgdOptions options)
      : UniformRule(options.momentum == 0
                        ? std::vector<StateKey>()
                        : std::vector<StateKey>{{"momentum_buffer", &internal::zeros_like_parameter}}),
        options_(options) {
    internal::check_number(options_.momentum, "momentum");
  }
  void update(const ParameterGroup& group, Tensors& tensors) const override {
    const auto buffers = tensors.state.empty() ? std::vector<at::Tensor>() : tensors.state[0];
    // Without dampening, a first step is like any other over a buffer of zeros.
    at::_fused_sgd_(tensors.parameters, tensors.gradients, buffers, group.weight_decay, options_.momentum,
                    group.learning_rate, /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false);
  }

 private:
  const SgdOptions options_;
};

class Lion final : public UniformRule {
 public:
  explicit Lion(LionOptions options) : UniformRule({{"exp_avg", &internal::zeros_like_parameter}}), options_(options) {
    internal::check_beta(options_.beta1, "beta1");
    internal::check_beta(options_.beta2, "beta2");
  }
  void check(const NamedParameter& parameter) const override { internal::check_dense(parameter, "Lion"); }
  void update(const ParameterGroup& group, Tensors& tensors) const override {
    internal::lion(tensors.parameters, tensors.gradients, tensors.state[0],
                   {group.learning_rate, options_.beta1, options_.beta2, group.weight_decay});
  }

 private:
  const LionOptions options_;
};

at::Tensor zeros_of(const at::Tensor& parameter, at::IntArrayRef sizes) {
  const auto wide = at::promote_types(parameter.scalar_type(), at::kFloat);
  return at::zeros(sizes, parameter.options().dtype(wide).requires_grad(false));
}

class Adafactor final : public Rule {
 public:
  explicit Adafactor(AdafactorOptions options) : options_(options) {
    internal::check_number(options_.eps_square, "eps_square");
    internal::check_number(options_.eps_scale, "eps_scale");
    internal::check_number(options_.clip_threshold, "clip_threshold");
    if (options_.clip_threshold == 0) throw UsageError("The clip_threshold must be above 0.");
    if (!(options_.decay_rate < 0)) {
      throw UsageError("The decay_rate must be below 0, not " + std::to_string(options_.decay_rate) + ".",
                       "It is an exponent: -0.8 is the paper's.");
    }
  }
  void check(const NamedParameter& parameter) const override {
    internal::check_dense(parameter, "Adafactor");
    if (parameter.tensor.is_contiguous()) return;
    throw UnsupportedError("The parameter \"" + parameter.name + "\" is not contiguous, which Adafactor needs.");
  }
  int kind_of(const NamedParameter& parameter) const override {
    return parameter.tensor.dim() >= 2 ? kFactored : kWhole;
  }
  const std::vector<StateKey>& keys(int kind) const override {
    static const std::vector<StateKey> whole{{"exp_avg_sq", [](const at::Tensor& p) { return zeros_of(p, p.sizes()); }},
                                             {"step", &internal::zero_on_host}};
    static const std::vector<StateKey> factored{
        {"exp_avg_sq_row",
         [](const at::Tensor& p) { return zeros_of(p, p.sizes().slice(0, static_cast<std::size_t>(p.dim() - 1))); }},
        {"exp_avg_sq_col",
         [](const at::Tensor& p) {
           auto sizes = p.sizes().vec();
           sizes.erase(sizes.end() - 2);
           return zeros_of(p, sizes);
         }},
        {"step", &internal::zero_on_host}};
    return kind == kFactored ? factored : whole;
  }
  void prepare(Tensors& tensors) const override {
    for (const auto& step : tensors.state.back()) tensors.advanced_steps.push_back(step + 1);
    std::int64_t elements = 0;
    for (const auto& parameter : tensors.parameters) {
      if (!parameter.is_cpu()) {
        elements = std::max(elements, internal::adafactor_scratch(parameter));
      } else if (tensors.kind == kFactored) {
        elements = std::max(elements, internal::matrix_shape(parameter.sizes()).scratch());
      }
    }
    tensors.scratch = at::empty({elements}, tensors.state.front().front().options());
  }
  void update(const ParameterGroup& group, Tensors& tensors) const override {
    const auto columns = tensors.kind == kFactored ? tensors.state[1] : std::vector<at::Tensor>();
    const auto run = tensors.parameters.front().is_cpu() ? &internal::adafactor : &internal::adafactor_of_ops;
    run(tensors.parameters, tensors.gradients, tensors.state[0], columns, tensors.advanced_steps, tensors.scratch,
        {group.learning_rate, group.weight_decay, options_.eps_square, options_.eps_scale, options_.clip_threshold,
         options_.decay_rate, options_.scale_parameter, options_.relative_step});
    for (std::size_t i = 0; i < tensors.advanced_steps.size(); ++i)
      tensors.state.back()[i].copy_(tensors.advanced_steps[i]);
  }

 private:
  static constexpr int kWhole = 0, kFactored = 1;
  const AdafactorOptions options_;
};
}  // namespace

std::unique_ptr<Optimizer> adamw(std::vector<ParameterGroup> groups, AdamWOptions options) {
  return make(std::move(groups), std::make_unique<FusedAdam>(options, /*decoupled=*/true));
}

std::unique_ptr<Optimizer> adam(std::vector<ParameterGroup> groups, AdamWOptions options) {
  return make(std::move(groups), std::make_unique<FusedAdam>(options, /*decoupled=*/false));
}

std::unique_ptr<Optimizer> sgd(std::vector<ParameterGroup> groups, SgdOptions options) {
  return make(std::move(groups), std::make_unique<Sgd>(options));
}

std::unique_ptr<Optimizer> lion(std::vector<ParameterGroup> groups, LionOptions options) {
  return make(std::move(groups), std::make_unique<Lion>(options));
}

std::unique_ptr<Optimizer> adafactor(std::vector<ParameterGroup> groups, AdafactorOptions options) {
  return make(std::move(groups), std::make_unique<Adafactor>(options));
}
}  // namespace cinch::optim
