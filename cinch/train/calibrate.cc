// train::calibrate: how fast this machine is at the ops that a training step consists of.
//
// Each op is timed for real, and dry-run for what a trace says of it: so sizes are those that the cost model will meet.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cinch/dryrun/dry_run.h"
#include "cinch/record/recorder.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
using plan::Calibration;
using Clock = std::chrono::steady_clock;
using Work = std::function<void()>;
using Points = std::vector<Calibration::Point>;

constexpr int kPasses = 3;       ///< Over all measurements: what disturbs one pass at one size seldom does in the next;
constexpr double kEnough = 1.5;  ///< but no further pass after so many seconds, on a machine that others keep busy.
constexpr int kMost = 50;        ///< Repetitions of a measurement in one pass,
constexpr double kLongest = 0.004;  ///< which ends after so many seconds;
constexpr double kShortest = 1e-5;  ///< what takes less is run several times in each, for the clock to be fine enough.

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double seconds_of(const Work& work, int times) {
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) work();
  return seconds_since(begin) / times;
}

/// The least disturbed of several: other programs only ever make it slower, and not equally so at all sizes.
double fastest(const Work& work) {
  const auto begin = Clock::now();
  work();  // Warms up.
  double least = seconds_of(work, 1);
  const int times = std::clamp(static_cast<int>(kShortest / std::max(least, 1e-9)), 1, 10);
  for (int i = 0; i < kMost && seconds_since(begin) < kLongest; ++i) least = std::min(least, seconds_of(work, times));
  return least;
}

/// A point of a curve to be: what its works move or compute together, in how long.
struct Measurement {
  Points* curve;
  std::vector<Work> works;
  double amount;                  ///< Flops or bytes of all works.
  std::vector<double> seconds{};  ///< Of each work, at best.
};

void measure(std::vector<Measurement>& all) {
  const auto begin = Clock::now();
  for (int pass = 0; pass < kPasses && (pass == 0 || seconds_since(begin) < kEnough); ++pass) {
    for (Measurement& m : all) {
      m.seconds.resize(m.works.size(), std::numeric_limits<double>::infinity());
      for (std::size_t i = 0; i < m.works.size(); ++i) m.seconds[i] = std::min(m.seconds[i], fastest(m.works[i]));
    }
  }
  for (const Measurement& m : all) {
    m.curve->push_back({m.amount / static_cast<double>(m.works.size()),
                        m.amount / std::accumulate(m.seconds.begin(), m.seconds.end(), 0.0)});
  }
}

/// Puts the default generator back where it was.
class SameGenerator {
 public:
  SameGenerator() : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~SameGenerator() { generator_.set_state(state_); }
  SameGenerator(const SameGenerator&) = delete;
  SameGenerator& operator=(const SameGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// What a trace says of `op` in `work`.
trace::OpCall dry_cost(const std::string& op, const Work& work) {
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, device::find("cpu", at::get_num_threads()));
    work();
  }
  for (const trace::OpCall& call : trace.ops())
    if (trace.name(call.name) == op) return call;
  throw std::logic_error("a calibration does not run " + op);
}

double bytes_moved(const trace::OpCall& call) { return static_cast<double>((call.read + call.written).count()); }

/// Numbers that were not used for a while: an op of a training step seldom finds its arguments in the nearest cache.
class Memory {
 public:
  at::Tensor next(std::int64_t numbers) {
    if (begin_ + numbers > kNumbers) begin_ = 0;
    at::Tensor part = all_.narrow(0, begin_, numbers);
    begin_ += numbers;
    return part;
  }
  static constexpr std::int64_t kNumbers = 16 << 20;

 private:
  at::Tensor all_ = at::full({kNumbers}, 0.5);
  std::int64_t begin_ = 0;
};

/// A layer's product, `rows` by `width` with its square weights: what dividing a batch changes is the rows. Into a
/// fresh output, as a training step's.
Measurement matrix(Points& curve, Memory& memory, std::int64_t rows, std::int64_t width) {
  const auto flops = 2.0 * static_cast<double>(rows * width * width);
  return {&curve,
          {[&memory, rows, width] {
            at::mm(memory.next(rows * width).view({rows, width}), memory.next(width * width).view({width, width}));
          }},
          flops};
}

/// One op bound by memory and one that computes, as they alternate in a model; `size` numbers each.
Measurement elementwise(Points& curve, Memory& memory, std::int64_t size) {
  const double tensor = static_cast<double>(size) * sizeof(float);
  return {&curve,
          {[&memory, size] { at::add(memory.next(size), memory.next(size)); },
           [&memory, size] { at::gelu(memory.next(size)); }},
          3 * tensor + 2 * tensor};
}

/// An op that the two curves above do not fit, with arguments of about `numbers` numbers.
struct OwnCurve {
  std::string op;
  std::function<Work(std::int64_t numbers)> prepare;
};

Work fused_adamw(Memory& memory, std::int64_t numbers) {
  return [&memory, numbers, step = std::vector<at::Tensor>{at::ones({})}] {
    const auto next = [&] { return std::vector<at::Tensor>{memory.next(numbers)}; };
    at::_fused_adamw_(next(), next(), next(), next(), {}, step, /*lr=*/1e-3, 0.9, 0.999, 0.01, 1e-8, false, false);
  };
}

Work attention(std::int64_t numbers, bool backward) {
  const at::Tensor x = at::rand({std::max<std::int64_t>(numbers / (2 * 256 * 32), 1), 2, 256, 32});
  const auto forward = [=] {
    return at::_scaled_dot_product_flash_attention_for_cpu(x, x, x, 0.0, /*is_causal=*/true);
  };
  if (!backward) return [=] { forward(); };
  const auto [out, sums] = forward();
  return [=, out = out, sums = sums] {
    at::_scaled_dot_product_flash_attention_for_cpu_backward(x, x, x, x, out, sums, 0.0, true);
  };
}

Work convolution(std::int64_t numbers, bool backward) {
  const at::Tensor x = at::rand({std::max<std::int64_t>(numbers / (64 * 16 * 16), 1), 64, 16, 16}),
                   w = at::rand({64, 64, 3, 3});
  if (!backward) return [=] { at::convolution(x, w, {}, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1); };
  return [=] {
    at::convolution_backward(x, x, w, std::nullopt, {1, 1}, {1, 1}, {1, 1}, false, {0, 0}, 1, {true, true, false});
  };
}

std::vector<OwnCurve> own_curves(Memory& memory) {
  return {
      {"aten::bernoulli_", [](std::int64_t n) -> Work { return [x = at::zeros({n})] { x.bernoulli_(0.9); }; }},
      {"aten::add_",  // Into memory that is there already: gradients of several parts.
       [&](std::int64_t n) -> Work { return [&memory, n] { memory.next(n).add_(memory.next(n)); }; }},
      {"aten::_fused_adamw_", [&](std::int64_t n) { return fused_adamw(memory, n); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", [](std::int64_t n) { return attention(n, false); }},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", [](std::int64_t n) { return attention(n, true); }},
      {"aten::convolution", [](std::int64_t n) { return convolution(n, false); }},
      {"aten::convolution_backward", [](std::int64_t n) { return convolution(n, true); }},
  };
}

Measurement point_of(Points& curve, const OwnCurve& own, std::int64_t numbers) {
  Work work = own.prepare(numbers);
  const trace::OpCall cost = dry_cost(own.op, work);
  return {&curve, {std::move(work)}, cost.flops > 0 ? cost.flops : bytes_moved(cost)};
}

/// What an op of a training step costs beyond its arithmetic: dispatch, views, autograd's nodes. From a chain of single
/// numbers, forward and backward: nothing else is left there.
plan::Seconds measure_launch() {
  constexpr int kLinks = 32;
  constexpr int kOpsOfLink = 5;  // mul, add; backward two of mul and a sum of gradients. Views are no ops of a trace.
  const at::AutoGradMode trains(true);
  const at::Tensor x = at::ones({1, 1}).set_requires_grad(true);
  double least = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass < kPasses; ++pass) {
    least = std::min(least, fastest([&] {
                       at::Tensor y = x;
                       for (int i = 0; i < kLinks; ++i) y = (y.t() * x).view({1, 1}) + x;
                       y.backward();
                       x.mutable_grad().reset();
                     }));
  }
  return plan::Seconds(least / (kLinks * kOpsOfLink));
}
}  // namespace

plan::Calibration calibrate() {
  const SameGenerator same;
  const at::NoGradGuard no_grad;
  Calibration calibration;
  Memory memory;
  std::vector<Measurement> all;
  for (const auto& [rows, width] : std::initializer_list<std::pair<int, int>>{
           {2, 128}, {8, 256}, {32, 256}, {128, 256}, {512, 256}, {1024, 384}, {2048, 512}})
    all.push_back(matrix(calibration.matrix, memory, rows, width));
  for (std::int64_t size = 4 << 10; size <= Memory::kNumbers; size *= 4)
    all.push_back(elementwise(calibration.elementwise, memory, size));
  for (const OwnCurve& own : own_curves(memory))
    for (const std::int64_t size : {16 << 10, 96 << 10, 512 << 10})
      all.push_back(point_of(calibration.ops[own.op], own, size));
  {
    const record::Muted muted;
    measure(all);
    calibration.launch = measure_launch();
  }
  return calibration;
}
}  // namespace cinch::train
