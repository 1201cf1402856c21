// Adam, Lion and Adafactor against their formulas, in double precision and a number at a time.
#include <cmath>
#include <vector>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/optim/adam.h>

#include "cinch/core/error.h"
#include "cinch/optim/optimizer.h"

namespace cinch::optim {
namespace {

at::Tensor gradient(const at::Tensor& parameter, int step) {
  const auto wave = at::sin(at::arange(parameter.numel(), at::kDouble) * (0.7 * (step + 1)) + step);
  return wave.view(parameter.sizes()).to(parameter.scalar_type());
}

at::Tensor start(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return at::cos(at::arange(count, at::kDouble)).view(sizes).to(dtype).requires_grad_();
}

std::vector<ParameterGroup> groups(const at::Tensor& parameter, double rate, double decay) {
  return {{.parameters = {{"p", parameter}}, .learning_rate = rate, .weight_decay = decay}};
}

void train(const at::Tensor& parameter, Optimizer& optimizer, int steps) {
  for (int i = 0; i < steps; ++i) {
    parameter.mutable_grad() = gradient(parameter, i);
    optimizer.step();
  }
}

std::vector<double> numbers(const at::Tensor& tensor) {
  const auto wide = tensor.detach().to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

void expect_near(const at::Tensor& ours, const std::vector<double>& wanted, double tolerance) {
  const auto values = numbers(ours);
  ASSERT_EQ(values.size(), wanted.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], wanted[i], tolerance * (1 + std::abs(wanted[i])));
}

TEST(Adam, AddsWeightDecayToTheGradient) {
  const auto parameter = start({37});
  auto p = numbers(parameter);
  std::vector<double> m(p.size()), v(p.size());
  for (int step = 1; step <= 12; ++step) {
    const auto g = numbers(gradient(parameter, step - 1));
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double with_decay = g[i] + 0.1 * p[i];
      m[i] = 0.8 * m[i] + 0.2 * with_decay;
      v[i] = 0.95 * v[i] + 0.05 * with_decay * with_decay;
      p[i] -= 0.01 * m[i] / (1 - std::pow(0.8, step)) / (std::sqrt(v[i] / (1 - std::pow(0.95, step))) + 1e-8);
    }
  }
  const auto optimizer = adam(groups(parameter, 0.01, 0.1), {.beta1 = 0.8, .beta2 = 0.95});
  train(parameter, *optimizer, 12);
  expect_near(parameter, p, 1e-5);
}

TEST(Adam, TrainsAsTorchDoes) {
  auto ours = start({20, 3}), theirs = start({20, 3});
  const auto optimizer = adam(groups(ours, 0.02, 0.05));
  torch::optim::Adam reference({theirs}, torch::optim::AdamOptions(0.02).weight_decay(0.05));
  train(ours, *optimizer, 10);
  for (int i = 0; i < 10; ++i) {
    theirs.mutable_grad() = gradient(theirs, i);
    reference.step();
  }
  EXPECT_TRUE(at::allclose(ours, theirs, 1e-5, 1e-6));
}

TEST(Lion, StepsByTheSignOfItsMomentum) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto parameter = start({51, 2}, dtype);
    auto p = numbers(parameter);
    std::vector<double> m(p.size());
    for (int step = 0; step < 9; ++step) {
      const auto g = numbers(gradient(parameter, step));
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double direction = 0.9 * m[i] + 0.1 * g[i];
        p[i] = p[i] * (1 - 0.003 * 0.2) - 0.003 * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
        m[i] = 0.97 * m[i] + 0.03 * g[i];
      }
    }
    const auto optimizer = lion(groups(parameter, 0.003, 0.2), {.beta2 = 0.97});
    train(parameter, *optimizer, 9);
    expect_near(parameter, p, dtype == at::kFloat ? 1e-6 : 1e-14);
    expect_near(optimizer->state().at("p.exp_avg"), m, dtype == at::kFloat ? 1e-6 : 1e-14);
    EXPECT_EQ(optimizer->state().size(), 1u) << "half of AdamW's";
  }
}

TEST(Lion, DoesNotMoveWhatHasNoDirection) {
  const auto parameter = start({5});
  const auto before = parameter.detach().clone();
  parameter.mutable_grad() = at::zeros({5});
  lion(groups(parameter, 0.1, 0))->step();
  EXPECT_TRUE(at::equal(parameter, before));
}

double rms(const std::vector<double>& numbers) {
  double sum = 0;
  for (const double number : numbers) sum += number * number;
  return std::sqrt(sum / static_cast<double>(numbers.size()));
}

/// Applies an update: clipped, with decay.
void apply(std::vector<double>& p, const std::vector<double>& update, double rate, double decay, double threshold) {
  const double shrink = std::max(1.0, rms(update) / threshold);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = p[i] * (1 - decay * rate) - rate * update[i] / shrink;
}

struct Factored {
  std::vector<double> rows, columns;
};

/// 1804.04235, algorithm 4, on `count` matrices.
std::vector<double> factored_update(const std::vector<double>& g, std::int64_t count, std::int64_t height,
                                    std::int64_t width, double beta, Factored& state) {
  std::vector<double> update(g.size());
  state.rows.resize(static_cast<std::size_t>(count * height));
  state.columns.resize(static_cast<std::size_t>(count * width));
  for (std::int64_t n = 0; n < count; ++n) {
    const double* matrix = &g[static_cast<std::size_t>(n * height * width)];
    double *row = &state.rows[static_cast<std::size_t>(n * height)],
           *column = &state.columns[static_cast<std::size_t>(n * width)];
    for (std::int64_t r = 0; r < height; ++r) {
      double mean = 0;
      for (std::int64_t c = 0; c < width; ++c)
        mean += (std::pow(matrix[r * width + c], 2) + 1e-30) / static_cast<double>(width);
      row[r] = beta * row[r] + (1 - beta) * mean;
    }
    for (std::int64_t c = 0; c < width; ++c) {
      double mean = 0;
      for (std::int64_t r = 0; r < height; ++r)
        mean += (std::pow(matrix[r * width + c], 2) + 1e-30) / static_cast<double>(height);
      column[c] = beta * column[c] + (1 - beta) * mean;
    }
    double mean = 0;
    for (std::int64_t r = 0; r < height; ++r) mean += row[r] / static_cast<double>(height);
    for (std::int64_t r = 0; r < height; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        update[static_cast<std::size_t>((n * height + r) * width + c)] =
            matrix[r * width + c] / std::sqrt(row[r] / mean * column[c]);
  }
  return update;
}

TEST(Adafactor, KeepsRowsAndColumnsOfSquares) {
  struct Case {
    std::vector<std::int64_t> sizes;
    std::int64_t count, height, width;
  };
  for (const auto& [sizes, count, height, width] :
       {Case{{40, 30}, 1, 40, 30}, Case{{600, 70}, 1, 600, 70}, Case{{4, 3, 5, 2}, 12, 5, 2}}) {
    const auto parameter = start(sizes);
    auto p = numbers(parameter);
    Factored state;
    for (int step = 1; step <= 8; ++step) {
      const auto update = factored_update(numbers(gradient(parameter, step - 1)), count, height, width,
                                          1 - std::pow(step, -0.8), state);
      apply(p, update, 0.02, 0.1, 1);
    }
    const auto optimizer = adafactor(groups(parameter, 0.02, 0.1));
    train(parameter, *optimizer, 8);
    expect_near(parameter, p, 2e-5);
    expect_near(optimizer->state().at("p.exp_avg_sq_row"), state.rows, 1e-5);
    expect_near(optimizer->state().at("p.exp_avg_sq_col"), state.columns, 1e-5);
    EXPECT_EQ(optimizer->state().size(), 3u);
  }
}

TEST(Adafactor, StateHasTheShapesOfRowsAndColumns) {
  const auto parameter = start({4, 3, 5, 2});
  const auto optimizer = adafactor(groups(parameter, 0.02, 0));
  train(parameter, *optimizer, 1);
  EXPECT_EQ(optimizer->state().at("p.exp_avg_sq_row").sizes(), (std::vector<std::int64_t>{4, 3, 5}));
  EXPECT_EQ(optimizer->state().at("p.exp_avg_sq_col").sizes(), (std::vector<std::int64_t>{4, 3, 2}));
}

TEST(Adafactor, KeepsAllSquaresOfVectors) {
  const auto parameter = start({333});
  auto p = numbers(parameter);
  std::vector<double> v(p.size()), update(p.size());
  for (int step = 1; step <= 8; ++step) {
    const auto g = numbers(gradient(parameter, step - 1));
    const double beta = 1 - std::pow(step, -0.7);
    for (std::size_t i = 0; i < p.size(); ++i) {
      v[i] = beta * v[i] + (1 - beta) * (g[i] * g[i] + 1e-30);
      update[i] = g[i] / std::sqrt(v[i]);
    }
    apply(p, update, 0.02, 0, 0.5);
  }
  const auto optimizer = adafactor(groups(parameter, 0.02, 0), {.clip_threshold = 0.5, .decay_rate = -0.7});
  train(parameter, *optimizer, 8);
  expect_near(parameter, p, 2e-5);
}

TEST(Adafactor, RatesMayFollowStepAndParameter) {
  const auto parameter = start({333});
  auto p = numbers(parameter);
  std::vector<double> v(p.size()), update(p.size());
  for (int step = 1; step <= 5; ++step) {
    const auto g = numbers(gradient(parameter, step - 1));
    const double beta = 1 - std::pow(step, -0.8), rate = std::min(1e-2, 1 / std::sqrt(step)) * std::max(1e-3, rms(p));
    for (std::size_t i = 0; i < p.size(); ++i) {
      v[i] = beta * v[i] + (1 - beta) * (g[i] * g[i] + 1e-30);
      update[i] = g[i] / std::sqrt(v[i]);
    }
    apply(p, update, rate, 0.1, 1);
  }
  const auto optimizer = adafactor(groups(parameter, 123, 0.1), {.scale_parameter = true, .relative_step = true});
  train(parameter, *optimizer, 5);
  expect_near(parameter, p, 2e-5);
}

TEST(Adafactor, TrainsInBfloat16WithStateInFloat32) {
  const auto parameter = start({40, 30}, at::kBFloat16), reference = parameter.detach().to(at::kFloat).requires_grad_();
  const auto optimizer = adafactor(groups(parameter, 0.1, 0)), wide = adafactor(groups(reference, 0.1, 0));
  train(parameter, *optimizer, 4);
  train(reference, *wide, 4);
  EXPECT_EQ(optimizer->state().at("p.exp_avg_sq_row").scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(parameter.to(at::kFloat), reference, 0.05, 0.05));
}

TEST(Rules, DoNotDependOnThreads) {
  const int before = at::get_num_threads();
  const auto run = [](int threads, bool is_lion) {
    at::set_num_threads(threads);
    const auto parameter = start({300, 400});
    const auto optimizer = is_lion ? lion(groups(parameter, 0.01, 0)) : adafactor(groups(parameter, 0.01, 0));
    train(parameter, *optimizer, 2);
    return parameter;
  };
  for (const bool is_lion : {true, false}) EXPECT_TRUE(at::equal(run(1, is_lion), run(2, is_lion)));
  at::set_num_threads(before);
}

TEST(Rules, ResumeFromTheirState) {
  for (int which = 0; which < 3; ++which) {
    const auto make = [which](const at::Tensor& parameter) {
      auto group = groups(parameter, 0.01, 0.1);
      return which == 0 ? adam(group) : which == 1 ? lion(group) : adafactor(group);
    };
    const auto straight = start({30, 20}), resumed = start({30, 20});
    const auto whole = make(straight), first = make(resumed), second = make(resumed);
    train(straight, *whole, 2);
    train(straight, *whole, 2);
    train(resumed, *first, 2);
    second->load_state(first->state());
    train(resumed, *second, 2);
    EXPECT_TRUE(at::equal(straight, resumed)) << which;
  }
}

TEST(Rules, RefuseNonsense) {
  const auto parameter = start({8, 8});
  EXPECT_THROW(lion(groups(parameter, 1, 0), {.beta1 = 1}), UsageError);
  EXPECT_THROW(lion(groups(parameter, 1, 0), {.beta2 = -1}), UsageError);
  EXPECT_THROW(adam(groups(parameter, 1, 0), {.eps = std::nan("")}), UsageError);
  EXPECT_THROW(adafactor(groups(parameter, 1, 0), {.decay_rate = 0.8}), UsageError);
  EXPECT_THROW(adafactor(groups(parameter, 1, 0), {.clip_threshold = 0}), UsageError);
  EXPECT_THROW(adafactor(groups(start({4, 6}).detach().t().requires_grad_(), 1, 0)), UnsupportedError);
  const auto elsewhere = at::empty({8, 8}, at::TensorOptions(at::kMeta));
  EXPECT_THROW(lion(groups(elsewhere, 1, 0)), UnsupportedError);
  EXPECT_THROW(adafactor(groups(elsewhere, 1, 0)), UnsupportedError);
}
}  // namespace
}  // namespace cinch::optim
