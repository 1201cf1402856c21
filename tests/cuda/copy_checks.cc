// What leaves the card and comes back: the same bits however late copies are, less memory, and time hidden behind
// computation.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/in_backward.h"
#include "cinch/optim/offload.h"
#include "cinch/optim/optimizer.h"
#include "cinch/techniques/offload.h"
#include "tests/cuda/check.h"

namespace cinch::tests {
namespace {
const at::Device kCard(at::kCUDA, 0);

// ---- activations
// --------------------------------------------------------------------------------------------------------

struct Chain {
  at::Tensor weight, start;
  int layers;
  /// `rows` × `width` numbers are saved twice a layer.
  Chain(std::int64_t rows, std::int64_t width, int layers)
      : weight((at::randn({width, width}, kCard) / std::sqrt(static_cast<double>(width))).requires_grad_()),
        start(at::randn({rows, width}, kCard)),
        layers(layers) {}

  at::Tensor gradient(techniques::SavedTensorPolicy* policy) const {
    at::manual_seed(3);
    auto x = start;
    {
      std::optional<techniques::SavedTensorScope> scope;
      if (policy != nullptr) scope.emplace(*policy);
      for (int i = 0; i < layers; ++i) x = at::dropout(x.mm(weight).tanh(), 0.1, true);
      x = x.square().mean();
    }
    return torch::autograd::grad({x}, {weight})[0];
  }
};

double best_seconds(const std::function<void()>& work) {
  work();
  double best = seconds_of(work);
  for (int i = 0; i < 2; ++i) best = std::min(best, seconds_of(work));
  return best;
}

// ---- optimizer state
// ----------------------------------------------------------------------------------------------------

using Make = std::function<std::unique_ptr<optim::Optimizer>(std::vector<optim::ParameterGroup>)>;

struct Trained {
  std::vector<at::Tensor> weights;
  std::map<std::string, at::Tensor> state;
  std::int64_t peak = 0;
};

std::vector<optim::NamedParameter> weights(int count, std::int64_t rows, std::int64_t columns) {
  std::vector<optim::NamedParameter> all;
  for (int i = 0; i < count; ++i) {
    const auto values = at::cos(at::arange(rows * columns, at::TensorOptions(at::kDouble).device(kCard)) * (i + 1));
    all.push_back({"w" + std::to_string(i), values.to(at::kFloat).view({rows, columns}).requires_grad_()});
  }
  return all;
}

/// Four steps; `late`: behind copies that are under way.
Trained train(const Make& make, bool late) {
  constexpr int kSteps = 4, kWeights = 6;
  const auto all = weights(kWeights, 1000, 500);
  reset_peaks();
  Trained result;
  {
    const auto optimizer = make({{all, 0.01, 0.1}});
    auto* in_backward = dynamic_cast<optim::BackwardOptimizer*>(optimizer.get());
    for (int step = 0; step < kSteps; ++step) {
      at::Tensor loss = at::zeros({}, kCard);
      for (const auto& weight : all) loss = loss + (weight.tensor * (0.1 * (step + 1))).sin().sum();
      if (in_backward == nullptr) loss.backward();
      if (late) delay_copies();
      if (in_backward != nullptr) {
        in_backward->backward(loss);
      } else {
        optimizer->step({.max_grad_norm = 1.0});
        optimizer->zero_grad();
      }
    }
    for (const auto& [name, tensor] : optimizer->state()) result.state.emplace(name, tensor.cpu().clone());
    result.peak = peaks().requested;
  }
  for (const auto& weight : all) result.weights.push_back(weight.tensor.detach().cpu());
  return result;
}

bool same(const Trained& left, const Trained& right) {
  for (std::size_t i = 0; i < left.weights.size(); ++i)
    if (!at::equal(left.weights[i], right.weights[i])) return false;
  if (left.state.size() != right.state.size()) return false;
  return std::all_of(left.state.begin(), left.state.end(),
                     [&](const auto& entry) { return at::equal(entry.second, right.state.at(entry.first)); });
}

void check_state_kind(Table& table, const std::string& name, const Make& plain, const Make& offloaded) {
  const auto here = train(plain, false);
  bool equal = true;
  std::int64_t peak = 0;
  for (const bool late : {false, true}) {
    const auto there = train(offloaded, late);
    equal = equal && same(here, there);
    peak = there.peak;
  }
  table.row(name + ", copies late too", "equal to the bit", equal ? "equal to the bit" : "not equal", equal);
  table.row(name + ", requested at the peak", "below " + std::to_string(here.peak), std::to_string(peak),
            peak < here.peak);
}

/// Copies of all state there and back, and the arithmetic, in turn, against a step of the offloaded optimizer.
void check_state_overlap(Table& table) {
  constexpr int kWeights = 12;
  const auto all = weights(kWeights, 4096, 2048);
  for (const auto& weight : all) weight.tensor.mutable_grad() = at::ones_like(weight.tensor);
  const std::int64_t bytes = 8 * all.front().tensor.numel();
  const auto pinned = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
  const auto buffer = at::empty({bytes}, at::TensorOptions(at::kByte).device(kCard));
  const double copies = best_seconds([&] {
    for (int i = 0; i < kWeights; ++i) {
      buffer.copy_(pinned, /*non_blocking=*/true);
      pinned.copy_(buffer, /*non_blocking=*/true);
    }
  });
  const auto offloaded = optim::offloaded(optim::adamw({{all, 1e-3, 0}}));
  const double step = best_seconds([&] { offloaded->step(); });
  table.row("a step, of its copies' time alone", "at most 1.15", with_digits(step / copies, 2), step <= 1.15 * copies);
}
}  // namespace

void check_activations(Table& table) {
  const Chain small(8192, 1024, 24);
  reset_peaks();
  const auto plain = small.gradient(nullptr);
  const auto plain_peak = peaks().requested;
  techniques::Offload offload;
  bool equal = true;
  std::int64_t peak = 0;
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    reset_peaks();
    if (round > 1) delay_copies();
    equal = equal && at::equal(small.gradient(&offload), plain);
    peak = std::max(peak, round > 1 ? 0 : peaks().requested);  // what delays copies takes memory itself
  }
  table.row("gradients, 3 of 5 rounds with late copies", "equal to the bit", equal ? "equal to the bit" : "not equal",
            equal);
  table.row("requested at the peak", "below half of " + std::to_string(plain_peak), std::to_string(peak),
            peak * 2 < plain_peak);

  const Chain large(8192, 4096, 8);
  techniques::Offload in_turn({.in_flight = Bytes()});
  const double without = best_seconds([&] { large.gradient(nullptr); });
  const double overlapped = best_seconds([&] { large.gradient(&offload); });
  const double waiting = best_seconds([&] { large.gradient(&in_turn); });
  table.row(
      "time: kept, offloaded, each copy waited for, ms", "",
      with_digits(without * 1e3, 1) + ", " + with_digits(overlapped * 1e3, 1) + ", " + with_digits(waiting * 1e3, 1),
      true);
  table.row("offloaded, of waiting for each copy", "at most 0.85", with_digits(overlapped / waiting, 2),
            overlapped <= 0.85 * waiting);
}

void check_state(Table& table) {
  const auto adamw = [](auto groups) { return optim::adamw(std::move(groups)); };
  const auto adamw_8bit = [](auto groups) { return optim::adamw_8bit(std::move(groups)); };
  const auto folder = std::filesystem::temp_directory_path();
  const optim::OffloadOptions disk{.place = optim::OffloadPlace::kDisk, .folder = folder};
  check_state_kind(table, "adamw, host", adamw,
                   [&](auto groups) { return optim::offloaded(adamw(std::move(groups))); });
  check_state_kind(table, "adamw, disk", adamw,
                   [&](auto groups) { return optim::offloaded(adamw(std::move(groups)), disk); });
  check_state_kind(table, "adamw_8bit, host", adamw_8bit,
                   [&](auto groups) { return optim::offloaded(adamw_8bit(std::move(groups))); });
  check_state_kind(
      table, "adamw, in backward, host", [&](auto groups) { return optim::in_backward(adamw(std::move(groups))); },
      [&](auto groups) { return optim::in_backward(optim::offloaded(adamw(std::move(groups)))); });
  check_state_overlap(table);
}
}  // namespace cinch::tests
