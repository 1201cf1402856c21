// train::calibrate: how fast this machine is at the two kinds of ops that a training step consists of.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <vector>

#include "cinch/record/recorder.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
using plan::Calibration;

constexpr int kRepetitions = 5;
constexpr double kShortest = 2e-4;  ///< Seconds a measurement should last, for the clock to be fine enough.

double seconds_of(const std::function<void()>& work, int times) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
}

/// Median over repetitions; `work` of less than kShortest is run several times in each.
double median_seconds(const std::function<void()>& work) {
  const double first = seconds_of(work, 1);  // Also the warm-up.
  const int times = std::clamp(static_cast<int>(kShortest / std::max(first, 1e-9)), 1, 100);
  std::array<double, kRepetitions> seconds;
  for (double& sample : seconds) sample = seconds_of(work, times);
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRepetitions / 2];
}

/// Square products of 1e5 to 1e9 flops, each into a fresh output as a training step's.
Calibration::Point measure_matrix(std::int64_t size) {
  const at::Tensor left = at::full({size, size}, 0.5), right = at::full({size, size}, 0.25);
  const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
  return {flops, flops / median_seconds([&] { at::mm(left, right); })};
}

/// One op bound by memory and one that computes, as they alternate in a model; `size` numbers each.
Calibration::Point measure_elementwise(std::int64_t size) {
  const at::Tensor left = at::full({size}, 0.5), right = at::full({size}, 0.25);
  const double tensor = static_cast<double>(left.nbytes());
  const double add = median_seconds([&] { at::add(left, right); });
  const double gelu = median_seconds([&] { at::gelu(left); });
  const double moved = 3 * tensor + 2 * tensor;
  return {moved / 2, moved / (add + gelu)};
}
}  // namespace

plan::Calibration calibrate() {
  const record::Muted muted;
  const at::NoGradGuard no_grad;
  Calibration calibration;
  for (const std::int64_t size : {40, 80, 160, 320, 512, 800}) calibration.matrix.push_back(measure_matrix(size));
  for (std::int64_t bytes = 16 << 10; bytes <= 64 << 20; bytes *= 4) {
    calibration.elementwise.push_back(measure_elementwise(bytes / static_cast<std::int64_t>(sizeof(float))));
  }
  return calibration;
}
}  // namespace cinch::train
