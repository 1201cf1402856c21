// One set of parameters on the CPU and on the card, the same gradients, the same optimizer.
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include <ATen/ATen.h>

#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/grad_scaler.h"
#include "cinch/optim/optimizer.h"
#include "tests/cuda/check.h"

namespace cinch::tests {
namespace {
constexpr int kSteps = 5;
using Make = std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParameterGroup>)>;

std::vector<optim::NamedParameter> parameters(at::ScalarType dtype, at::Device device) {
  std::vector<optim::NamedParameter> all;
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{700, 300}, {5000}, {33}, {3, 50, 40}}) {
    const auto values =
        at::cos(at::arange(c10::multiply_integers(sizes), at::kDouble) * (1.0 + static_cast<double>(all.size())));
    all.push_back({"p" + std::to_string(all.size()), values.view(sizes).to(dtype).to(device).requires_grad_()});
  }
  return all;
}

/// Magnitudes over nine decades; in one step one of them is infinite, if asked for.
at::Tensor gradient(const at::Tensor& parameter, int step, bool infinite) {
  const auto i = at::arange(parameter.numel(), at::kDouble);
  auto g = at::sin(i * (0.7 * (step + 1)) + step) * at::pow(10.0, at::remainder(i * 5 + step, 9) - 8);
  if (infinite && step == 2) g[7] = std::numeric_limits<double>::infinity();
  return g.view(parameter.sizes()).to(parameter.scalar_type());
}

std::map<std::string, at::Tensor> train(const Make& make, at::ScalarType dtype, at::Device device, bool infinite) {
  const auto all = parameters(dtype, device);
  const auto optimizer = make({{all, 0.01, 0.1}});
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& parameter : all)
      parameter.tensor.mutable_grad() = gradient(parameter.tensor, step, infinite).to(device);
    optimizer->step();
  }
  std::map<std::string, at::Tensor> result;
  for (const auto& [name, tensor] : optimizer->state()) result.emplace(name, tensor.cpu());
  for (const auto& parameter : all) result.emplace(parameter.name, parameter.tensor.detach().cpu());
  return result;
}

/// The largest distance of two tensors of a name, in norm, relative; 0 only if all are equal to the bit.
double distance(const std::map<std::string, at::Tensor>& left, const std::map<std::string, at::Tensor>& right) {
  double most = left.size() == right.size() ? 0 : std::numeric_limits<double>::infinity();
  for (const auto& [name, tensor] : left) {
    const auto& other = right.at(name);
    if (at::equal(tensor.contiguous().view({-1}).view(at::kByte), other.contiguous().view({-1}).view(at::kByte)))
      continue;
    const auto wide = tensor.to(at::kDouble);
    const double own = ((wide - other.to(at::kDouble)).norm() / wide.norm().clamp_min(1e-300)).item<double>();
    most = std::max(most, std::isnan(own) ? std::numeric_limits<double>::infinity() : std::max(own, 1e-300));
  }
  return most;
}

void compare(Table& table, const std::string& name, const Make& make, at::ScalarType dtype, double bound,
             bool infinite = false) {
  const double apart =
      distance(train(make, dtype, at::kCPU, infinite), train(make, dtype, at::Device(at::kCUDA, 0), infinite));
  char expected[64], measured[64];
  std::snprintf(expected, sizeof expected, bound == 0 ? "equal to the bit" : "within %.0e", bound);
  std::snprintf(measured, sizeof measured, apart == 0 ? "equal to the bit" : "%.1e apart", apart);
  table.row(name + ", " + c10::toString(dtype), expected, measured, apart <= bound);
}

/// One weight under a loss that is its sum times a number: the gradient is that number.
struct Scaled {
  at::Tensor weight;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::GradScaler scaler{{.initial_scale = 1024, .growth_interval = 2}};
  explicit Scaled(at::Device device)
      : weight(at::ones({1000}, device).requires_grad_()), optimizer(optim::sgd({{{{"w", weight}}, 0.5, 0}})) {}
  bool step(double slope) {
    scaler.scale((weight * slope).sum()).backward();
    const bool stepped = scaler.step(*optimizer, {.max_grad_norm = 1.0}).has_value();
    scaler.update();
    optimizer->zero_grad();
    return stepped;
  }
};
}  // namespace

void check_optimizers(Table& table) {
  const Make adamw_8bit = [](auto groups) { return optim::adamw_8bit(std::move(groups)); };
  const Make small_blocks = [](auto groups) {
    return optim::adamw_8bit(std::move(groups), {.block_size = 64, .least_elements = 1});
  };
  const Make large_blocks = [](auto groups) {
    return optim::adamw_8bit(std::move(groups), {.block_size = 2048, .least_elements = 1});
  };
  const Make lion = [](auto groups) { return optim::lion(std::move(groups)); };
  const Make adafactor = [](auto groups) { return optim::adafactor(std::move(groups)); };
  const Make relative = [](auto groups) {
    return optim::adafactor(std::move(groups), {.scale_parameter = true, .relative_step = true});
  };
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const double rounding = dtype == at::kFloat ? 1e-5 : 1e-2;
    compare(table, "adamw_8bit, blocks of 64", small_blocks, dtype, 0, dtype == at::kFloat);
    compare(table, "adamw_8bit, blocks of 2048", large_blocks, dtype, 0);
    compare(table, "lion", lion, dtype, 0);
    compare(table, "adafactor", adafactor, dtype, rounding);
  }
  compare(table, "adamw_8bit, small parameters in float32", adamw_8bit, at::kFloat, 1e-5);
  compare(table, "lion", lion, at::kDouble, 0);
  compare(table, "adafactor, relative", relative, at::kFloat, 1e-5);
  compare(
      table, "adamw (LibTorch's)", [](auto groups) { return optim::adamw(std::move(groups)); }, at::kFloat, 1e-5);
  compare(
      table, "adam (LibTorch's)", [](auto groups) { return optim::adam(std::move(groups)); }, at::kFloat, 1e-5);
  compare(
      table, "sgd (LibTorch's)", [](auto groups) { return optim::sgd(std::move(groups), {.momentum = 0.9}); },
      at::kFloat, 1e-5);
}

void check_scaler(Table& table) {
  Scaled cpu(at::kCPU), card(at::Device(at::kCUDA, 0));
  bool same_steps = true;
  int left_out = 0;
  for (const double slope : {0.1, 1e37, 0.2, 0.3, 0.1, 1e37, 1e37, 0.1}) {
    const bool here = cpu.step(slope), there = card.step(slope);
    same_steps = same_steps && here == there;
    left_out += there ? 0 : 1;
  }
  table.row("steps that overflow are left out", "3, as on the CPU", std::to_string(left_out),
            same_steps && left_out == 3);
  const auto scale = [](const Scaled& of) { return of.scaler.state().scale; };
  table.row("scale afterwards", with_digits(scale(cpu), 0), with_digits(scale(card), 0), scale(cpu) == scale(card));
  const double apart = (cpu.weight - card.weight.cpu()).abs().max().item<double>();
  table.row("no infinity reaches the weights", "within 1e-6 of the CPU's", with_digits(apart, 9), apart <= 1e-6);
}
}  // namespace cinch::tests
