// When mixed precision saves memory and when it costs some, as docs/mixed-precision.md says it.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "cinch/core/text.h"
#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/optim/grad_scaler.h"
#include "cinch/optim/master_weights.h"
#include "cinch/optim/optimizer.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/autocast.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"
#include "tests/documentation.h"

namespace cinch::tests {
namespace {
namespace nn = torch::nn;

/// A card that need not be there: on it products of any size are predicted in no time.
device::DeviceSpec card() {
  device::DeviceSpec spec;
  spec.name = "card";
  spec.type = device::DeviceType::kCuda;
  spec.memory = Bytes(std::int64_t{80} << 30);
  spec.compute_capability = 80;
  spec.cublas_workspace = Bytes(8'519'680);
  return spec;
}

struct Memory {
  Bytes in_forward, after_forward, peak;  ///< Most in forward; at its end; most of the step.
  Bytes weight_casts;
};

/// Layers of 4096, as in PyTorch's recipe for automatic mixed precision (pytorch#61173): one step of SGD.
Memory step_of_mlp(at::ScalarType precision, int layers, std::int64_t batch) {
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, card());
    nn::Sequential net;
    for (int i = 0; i < layers; ++i) {
      net->push_back(nn::Linear(4096, 4096));
      if (i + 1 < layers) net->push_back(nn::ReLU());
    }
    net->to(at::kCUDA);
    for (const auto& weight : net->named_parameters())
      record::label(weight.value(), trace::Category::kParameter, weight.key());
    const auto optimizer = optim::sgd({{.parameters = optim::named(*net), .learning_rate = 1e-3}});
    const auto x = at::rand({batch, 4096}, at::kCUDA), y = at::rand({batch, 4096}, at::kCUDA);
    at::Tensor loss;
    {
      const trace::PhaseScope phase(trace::Phase::kForward, 1);
      const techniques::Autocast autocast(at::kCUDA, precision);
      loss = nn::functional::mse_loss(net->forward(x), y);
    }
    {
      const trace::PhaseScope phase(trace::Phase::kBackward, 1);
      loss.backward();
      loss.reset();
    }
    const trace::PhaseScope phase(trace::Phase::kOptimizer, 1);
    optimizer->step();
    optimizer->zero_grad();
  }
  const trace::Timeline timeline(trace);
  Memory memory;
  memory.peak = timeline.peak(1).bytes;
  for (std::size_t i = 0; i < trace.events().size(); ++i)
    if (trace.events()[i].phase == trace::Phase::kForward)
      memory.in_forward = std::max(memory.in_forward, timeline.live(i));
  for (const auto& end : trace::phase_ends(trace))
    if (end.phase == trace::Phase::kForward) memory.after_forward = end.live;
  for (const auto& allocation : trace.allocations())  // Copies of parameters bear their names.
    if (!allocation.labelled && trace.name(allocation.name).ends_with("weight") &&
        allocation.phase == trace::Phase::kForward)
      memory.weight_casts += allocation.bytes;
  return memory;
}

constexpr std::int64_t kMiB = 1 << 20;

TEST(MixedPrecision, CastsOfWeightsOutweighActivationsOfASmallBatch) {
  const auto single = step_of_mlp(at::kFloat, 3, 512);
  EXPECT_EQ(single.weight_casts, Bytes());
  for (const auto precision : {at::kHalf, at::kBFloat16}) {
    const auto mixed = step_of_mlp(precision, 3, 512);
    EXPECT_EQ(mixed.weight_casts, Bytes(96 * kMiB));
    // Casts of biases come on top; activations of 4 MiB in place of 8 make up for 32 MiB in forward.
    EXPECT_EQ(mixed.in_forward - single.in_forward, Bytes((96 - 32) * kMiB + 3 * 4096 * 2));
    EXPECT_EQ(mixed.peak - single.peak, Bytes(24 * kMiB)) << "casts are let go of as backward goes on";
  }
}

TEST(MixedPrecision, NeverTakesMoreThanTwoBytesAParameterOnTop) {
  for (const int layers : {3, 12}) {
    for (const std::int64_t batch : {64, 512, 2048}) {
      const auto single = step_of_mlp(at::kFloat, layers, batch), mixed = step_of_mlp(at::kHalf, layers, batch);
      EXPECT_LE((mixed.in_forward - single.in_forward).count(), 2 * layers * 4096 * 4097 + batch * 4096 * 4);
      EXPECT_LE((mixed.peak - single.peak).count(), 2 * layers * 4096 * 4097);
    }
  }
}

/// Nobody knows there whether a gradient overflowed: the policy is that none did.
TEST(MixedPrecision, DryRunsTakeTheScaledStep) {
  for (const auto& device : {device::find("cpu"), card()}) {
    trace::Trace trace;
    const dryrun::DryRun dry(trace, device);
    const auto type = device.type == device::DeviceType::kCuda ? at::kCUDA : at::kCPU;
    const auto weight = at::rand({256, 256}, type).requires_grad_();
    const auto optimizer = optim::adamw({{.parameters = {{"weight", weight}}, .learning_rate = 1e-3}});
    optim::GradScaler scaler;
    for (int step = 1; step <= 2; ++step) {
      scaler.scale(weight.mm(at::rand({256, 8}, type)).sum()).backward();
      EXPECT_TRUE(dryrun::is_fake(weight.grad()));
      EXPECT_TRUE(scaler.step(*optimizer, {.max_grad_norm = 1.0}));
      scaler.update();
      optimizer->zero_grad();
      EXPECT_EQ(scaler.state(), (optim::GradScalerState{65536, step}));
    }
    EXPECT_EQ(optimizer->state().size(), 3u);
  }
}

// ---- weights in bfloat16 --------------------------------------------------------------------------------------------

/// Two steps; the weights are large enough to be fake in a dry run.
void train_in_bfloat16(bool stochastic) {
  nn::Sequential net(nn::Linear(300, 200), nn::Tanh(), nn::Linear(200, 100));
  net->to(at::kBFloat16);
  auto plain = optim::adamw({{.parameters = optim::named(*net), .learning_rate = 1e-3}});
  const auto optimizer =
      stochastic ? optim::with_stochastic_rounding(std::move(plain), 1) : optim::with_master_weights(std::move(plain));
  const auto x = at::ones({50, 300}, at::kBFloat16);
  for (std::uint32_t step = 1; step <= 2; ++step) {
    {
      const trace::PhaseScope phase(trace::Phase::kForward, step);
      net->forward(x).sum().backward();
    }
    const trace::PhaseScope phase(trace::Phase::kOptimizer, step);
    optimizer->step({.max_grad_norm = 1.0});
    optimizer->zero_grad();
  }
}

TEST(Bfloat16Weights, ArePredictedToTheByte) {
  at::set_num_threads(1);
  for (const bool stochastic : {false, true}) {
    trace::Trace predicted, recorded;
    {
      const dryrun::DryRun dry(predicted, device::find("cpu"));
      train_in_bfloat16(stochastic);
    }
    {
      const record::Recorder recorder(recorded);
      train_in_bfloat16(stochastic);
    }
    EXPECT_EQ(trace::compare_phase_ends(predicted, recorded).value_or("no difference"), "no difference");
    EXPECT_EQ(trace::Timeline(predicted).peak().bytes, trace::Timeline(recorded).peak().bytes);
  }
}

std::string table() {
  std::ostringstream out;
  out << "| layers | batch | float32 | fp16 | casts of weights |\n|---|---|---|---|---|\n";
  for (const int layers : {3, 12}) {
    for (const std::int64_t batch : {512, 2048, 8192, 32768}) {
      const auto single = step_of_mlp(at::kFloat, layers, batch), mixed = step_of_mlp(at::kHalf, layers, batch);
      out << "| " << layers << " | " << with_thousands(batch) << " | " << to_string(single.peak) << " | "
          << to_string(mixed.peak) << " | " << to_string(mixed.weight_casts) << " |\n";
    }
  }
  return out.str();
}

TEST(MixedPrecision, SavesAndCostsWhatTheDocumentationSays) {
  expect_in_documentation("mixed-precision.md", "mixed_precision_test.cc", table());
}
}  // namespace
}  // namespace cinch::tests
