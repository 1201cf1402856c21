#include "cinch/optim/master_weights.h"

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include <ATen/ATen.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/rule_optimizer.h"

namespace cinch::optim {
namespace {
using internal::Rule;
using internal::StateKey;
using internal::Tensors;

bool is_narrow(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; }

/// The numbers from `offset` of `scratch` on, laid out as `parameter`.
at::Tensor part_of(const at::Tensor& scratch, const at::Tensor& parameter, std::int64_t offset) {
  return scratch.as_strided(parameter.sizes(), parameter.strides(), offset);
}

/// Another rule in float32, over parameters in bfloat16. Its kinds are the other's, each for wide and narrow ones.
class WideRule : public Rule {
 public:
  explicit WideRule(std::unique_ptr<Rule> inner) : inner_(std::move(inner)) {}

  void check(const NamedParameter& parameter) const override {
    const auto& tensor = parameter.tensor;
    if (!is_narrow(tensor) && tensor.scalar_type() != at::kFloat) {
      throw UnsupportedError("The parameter \"" + parameter.name + "\" is " + c10::toString(tensor.scalar_type()) +
                             ": neither float32 nor bfloat16.");
    }
    if (is_narrow(tensor) && !tensor.is_non_overlapping_and_dense()) {
      throw UnsupportedError("The parameter \"" + parameter.name + "\" has gaps in memory.", "Make it contiguous().");
    }
    inner_->check(parameter);
  }
  int kind_of(const NamedParameter& parameter) const override {
    return 2 * inner_->kind_of(parameter) + (is_narrow(parameter.tensor) ? 1 : 0);
  }
  const std::vector<StateKey>& keys(int kind) const override {
    if (kind % 2 == 0) return inner_->keys(kind / 2);
    const auto [found, fresh] = keys_.try_emplace(kind);
    if (fresh) {
      for (const auto& key : inner_->keys(kind / 2)) {
        const auto make = [make = key.make](const at::Tensor& parameter) { return make(parameter.to(at::kFloat)); };
        found->second.push_back({key.name, make});
      }
      found->second.push_back(own_key());
    }
    return found->second;
  }
  void prepare(Tensors& tensors) const override {
    auto inner = inner_part(tensors);
    inner_->prepare(inner);
    tensors.advanced_steps = std::move(inner.advanced_steps);
    tensors.scratch = std::move(inner.scratch);
    if (tensors.kind % 2 == 0) return;
    std::int64_t largest = 0;
    for (const auto& parameter : tensors.parameters) largest = std::max(largest, parameter.numel());
    const auto options = tensors.parameters.front().options().dtype(at::kFloat).requires_grad(false);
    tensors.wide_scratch = at::empty({copies() * largest}, options);
  }
  void update(const ParameterGroup& group, Tensors& tensors) const override {
    auto inner = inner_part(tensors);
    if (tensors.kind % 2 == 0) return inner_->update(group, inner);
    for (std::size_t i = 0; i < tensors.parameters.size(); ++i) {
      const auto& parameter = tensors.parameters[i];
      Tensors one;
      one.kind = inner.kind;
      one.scratch = inner.scratch;
      one.parameters = {wide(tensors, i)};
      one.gradients = {part_of(tensors.wide_scratch, parameter, 0).copy_(tensors.gradients[i])};
      for (const auto& state : inner.state) one.state.push_back({state[i]});
      if (!inner.advanced_steps.empty()) one.advanced_steps = {inner.advanced_steps[i]};
      inner_->update(group, one);
      round(tensors, i, one);
    }
  }
  std::string load_hint() const override { return inner_->load_hint(); }

 protected:
  virtual StateKey own_key() const = 0;
  virtual std::int64_t copies() const = 0;                                   ///< Of the largest parameter, as scratch.
  virtual at::Tensor wide(const Tensors& tensors, std::size_t i) const = 0;  ///< What is stepped.
  virtual void round(const Tensors& tensors, std::size_t i, const Tensors& stepped) const = 0;

 private:
  /// What the other rule sees of all of them.
  static Tensors inner_part(const Tensors& tensors) {
    Tensors inner = tensors;
    inner.kind = tensors.kind / 2;
    if (tensors.kind % 2 == 1) inner.state.pop_back();
    return inner;
  }

  const std::unique_ptr<Rule> inner_;
  mutable std::map<int, std::vector<StateKey>> keys_;  ///< Of narrow ones.
};

class MasterRule final : public WideRule {
 public:
  using WideRule::WideRule;

 private:
  StateKey own_key() const override {
    return {"master", [](const at::Tensor& parameter) { return parameter.detach().to(at::kFloat); }};
  }
  std::int64_t copies() const override { return 1; }
  at::Tensor wide(const Tensors& tensors, std::size_t i) const override { return tensors.state.back()[i]; }
  void round(const Tensors& tensors, std::size_t i, const Tensors& stepped) const override {
    tensors.parameters[i].copy_(stepped.parameters[0]);
  }
};

class StochasticRule final : public WideRule {
 public:
  StochasticRule(std::unique_ptr<Rule> inner, std::uint64_t seed) : WideRule(std::move(inner)), seeds_(seed) {}

 private:
  /// A counter for each parameter, from a random number on: what its next draw is seeded with.
  StateKey own_key() const override {
    return {"rounding",
            [this](const at::Tensor&) { return at::full({}, static_cast<std::int64_t>(seeds_() >> 2), at::kLong); }};
  }
  std::int64_t copies() const override { return 2; }
  at::Tensor wide(const Tensors& tensors, std::size_t i) const override {
    const auto& parameter = tensors.parameters[i];
    return part_of(tensors.wide_scratch, parameter, tensors.wide_scratch.numel() / 2).copy_(parameter);
  }
  /// Adds a random number below the first bit that is kept, then cuts off: nothing here allocates.
  void round(const Tensors& tensors, std::size_t i, const Tensors& stepped) const override {
    const auto& wide = stepped.parameters[0];
    const auto& sum = stepped.gradients[0];  // no longer needed
    const auto& counter = tensors.state.back()[i];
    const auto seed = counter.item<std::int64_t>();
    auto generator = at::globalContext().defaultGenerator(wide.device()).clone();
    generator.set_current_seed(static_cast<std::uint64_t>(seed));
    sum.view(at::kInt).random_(0, 0x10000, generator).add_(wide.view(at::kInt));
    const auto halves = tensors.wide_scratch.view(at::kShort);
    halves.as_strided({wide.numel()}, {2}).zero_();  // the lower one of each number
    sum.add_(wide.sub_(wide));                       // 0, or NaN: bits of what is not finite are no magnitude
    tensors.parameters[i].copy_(sum);
    counter.fill_(seed + 1);
  }

  mutable std::mt19937_64 seeds_;
};

template <class Wrapper, class... Arguments>
std::unique_ptr<Optimizer> wrap(const std::unique_ptr<Optimizer>& optimizer, std::string_view name,
                                Arguments... arguments) {
  auto& inside = internal::wrapped(optimizer, name);
  auto inner = inside.take_rule();
  if (dynamic_cast<const WideRule*>(inner.get()) != nullptr) {
    throw UsageError(std::string(name) +
                     "() was given an optimizer with master weights or stochastic rounding already");
  }
  auto rule = std::make_unique<Wrapper>(std::move(inner), arguments...);
  return std::make_unique<internal::RuleOptimizer>(inside.take_groups(), std::move(rule));
}
}  // namespace

std::unique_ptr<Optimizer> with_master_weights(std::unique_ptr<Optimizer> optimizer) {
  return wrap<MasterRule>(optimizer, "with_master_weights");
}

std::unique_ptr<Optimizer> with_stochastic_rounding(std::unique_ptr<Optimizer> optimizer, std::uint64_t seed) {
  return wrap<StochasticRule>(optimizer, "with_stochastic_rounding", seed);
}
}  // namespace cinch::optim
