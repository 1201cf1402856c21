// BERT-large on a V100 of 16 GB as Hugging Face measured it: nine runs of transformers' Trainer, what nvidia-smi showed
// after each (transformers, docs/source/en/perf_train_gpu_one.mdx, January 2022; length 512, MiB). Dry runs of the same
// steps, through the allocator's model.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cinch/allocator/replay.h"
#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/autocast.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"
#include "tests/bert_ladder.h"

namespace cinch::tests {
namespace {

using trace::Phase;

constexpr double kMiB = 1024.0 * 1024.0;
/// Published: 1,343 after the first tensor, whose segment of 2 is among the reserved bytes here.
constexpr double kContext = 1343 - 2;
/// Not published, fitted, the same in every run: presumably what cuBLAS takes at the first product, past the allocator.
constexpr double kCublas = 18;

enum class Kind : std::uint8_t { kAdamW, kAdafactor, kAdam8bit };

struct Run {
  std::int64_t batch = 4;
  std::int64_t parts = 1;  ///< Batches that a step accumulates gradients over.
  ladder::BertOptions model = {};
  Kind optimizer = Kind::kAdamW;
  bool gradients_stay = true;  ///< zero_grad() of then: filled with zeros, not given back.
  std::uint32_t steps = 3;     ///< From the second on it is the same.
};
Run everything(Kind optimizer) {
  return {.batch = 1, .parts = 4, .model = {.checkpointed = true, .half = true}, .optimizer = optimizer};
}

std::unique_ptr<ladder::Optimizer> make_optimizer(Kind kind) {
  if (kind == Kind::kAdafactor) return std::make_unique<ladder::Adafactor>();
  if (kind == Kind::kAdam8bit) return std::make_unique<ladder::Adam8bit>();
  return std::make_unique<ladder::AdamW>();
}

/// Trainer's two groups, one after the other: those with weight decay, then biases and norms.
std::vector<at::Tensor> in_order_of_groups(const ladder::Bert& model) {
  std::vector<at::Tensor> decayed, others;
  for (const auto& item : model->named_parameters()) {
    const bool other = item.key().ends_with("bias") || item.key().find("LayerNorm") != std::string::npos;
    (other ? others : decayed).push_back(item.value());
  }
  decayed.insert(decayed.end(), others.begin(), others.end());
  return decayed;
}

void forward_backward(ladder::Bert& model, const Run& run, std::uint32_t step) {
  const auto integers = at::TensorOptions(at::kCUDA).dtype(at::kLong);
  const auto tokens = at::zeros({run.batch, 512}, integers), labels = at::zeros({run.batch}, integers);
  at::Tensor loss;
  {
    const trace::PhaseScope phase(Phase::kForward, step);
    std::optional<techniques::Autocast> autocast;
    if (run.model.half) autocast.emplace(at::kCUDA, at::kHalf);
    loss = model->forward(tokens, labels);
  }
  const trace::PhaseScope phase(Phase::kBackward, step);
  if (run.parts > 1) loss = loss / run.parts;
  if (run.model.half) loss = loss * 65536.0;
  loss.backward();
}

void clip(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> norms;
  norms.reserve(parameters.size());
  for (const auto& parameter : parameters) norms.push_back(at::linalg_vector_norm(parameter.grad(), 2));
  const auto norm = at::linalg_vector_norm(at::stack(norms), 2);
  const auto factor = (1.0 / (norm + 1e-6)).clamp_max(1.0);
  for (const auto& parameter : parameters) parameter.grad().mul_(factor);
}

trace::Trace dry(const Run& run) {
  trace::Trace trace, until_end;
  {
    auto card = device::find("v100-16gb");
    card.cublas_workspace = Bytes();  // Not yet from the caching allocator.
    const dryrun::DryRun dry(trace, card);
    const auto first = at::ones({1, 1}, at::kCUDA);
    ladder::Bert model{run.model};
    model->to(at::kCUDA);
    for (const auto& item : model->named_parameters())
      record::label(item.value(), trace::Category::kParameter, item.key());
    const auto parameters = model->parameters(), by_group = in_order_of_groups(model);
    const auto optimizer = make_optimizer(run.optimizer);
    for (std::uint32_t step = 1; step <= run.steps; ++step) {
      for (std::int64_t part = 0; part < run.parts; ++part) forward_backward(model, run, step);
      const trace::PhaseScope phase(Phase::kOptimizer, step);
      const at::NoGradGuard no_grad;
      clip(parameters);
      for (const auto& parameter : by_group) optimizer->update(parameter);
      optimizer->end_step();
      for (const auto& parameter : parameters) {
        if (run.gradients_stay) {
          parameter.grad().zero_();
        } else {
          parameter.mutable_grad().reset();
        }
      }
    }
    until_end = trace;
  }
  trace::classify(until_end);
  return until_end;
}

double requested(const trace::Trace& trace) {
  return static_cast<double>(trace::Timeline(trace).peak().bytes.count()) / kMiB;
}

double reserved(const trace::Trace& trace) {
  const auto addresses = allocator::make_addresses(allocator::AddressOrder::kDriver);
  allocator::Replay replay({.settings = {}, .device_memory = allocator::kUnlimitedMemory}, *addresses);
  for (const auto& event : trace.events()) replay.on_event(event);
  return static_cast<double>(replay.stats().reserved.count()) / kMiB;
}

/// What nvidia-smi would show.
double shown(const Run& run) { return kContext + kCublas + reserved(dry(run)); }

/// Published 2,631: weights in segments of 20 MiB.
TEST(BertLadder, TheModelAlone) { EXPECT_EQ(kContext + reserved(dry({.steps = 0})), 2631); }

/// Equal to the MiB on LibTorch 2.11; another version may order its ops otherwise.
TEST(BertLadder, Float32) {
  const double within = 0.002;
  EXPECT_NEAR(shown({}), 14949, within * 14949);
  EXPECT_NEAR(shown({.batch = 1, .parts = 4}), 8681, within * 8681);
  EXPECT_NEAR(shown({.batch = 1, .parts = 4, .model = {.checkpointed = true}}), 6775, within * 6775);
}

/// Published 12,295 and 13,085: 2,654 (8 bytes a parameter are 2,557) and 1,864 (6 bytes: 1,918) less than AdamW's.
TEST(BertLadder, OptimizersInPlaceOfAdamW) {
  const double adamw = shown({}), within = 0.02;
  EXPECT_NEAR(adamw - shown({.optimizer = Kind::kAdafactor}), 14949 - 12295, within * 2654);
  EXPECT_NEAR(adamw - shown({.optimizer = Kind::kAdam8bit}), 14949 - 13085, within * 1864);
}

/// The first is 48 MiB short, unexplained.
TEST(BertLadder, HalfPrecision) {
  EXPECT_NEAR(shown({.model = {.half = true}}), 13939, 0.005 * 13939);
  EXPECT_NEAR(shown(everything(Kind::kAdamW)), 7275, 0.002 * 7275);
  EXPECT_NEAR(shown(everything(Kind::kAdafactor)), 4847, 0.002 * 4847);
  EXPECT_NEAR(shown(everything(Kind::kAdam8bit)), 5363, 0.002 * 5363);
}

/// Published: 2,089 a sample. Saved tensors of today's ops are 1,668 of it; the input that softmax kept is one more
/// tensor of scores in float32 a layer, 384; the rest is what the allocator cannot use again.
TEST(BertLadder, WhatMakesASample) {
  const auto slope = [](const auto& of, const ladder::BertOptions& model) {
    return (of(dry({.batch = 4, .model = model})) - of(dry({.batch = 1, .model = model}))) / 3;
  };
  const double saved_today = slope(requested, {.softmax_keeps_input = false}), saved = slope(requested, {});
  EXPECT_NEAR(saved - saved_today, 24 * 16 * 512 * 512 * 4 / kMiB, 0.5);
  EXPECT_NEAR(saved_today, 1668, 2);
  EXPECT_NEAR(slope(reserved, {}), (14949.0 - 8681) / 3, 0.02 * 2089);
}

/// Gradients that stay are there at the end of forward already, where activations are at their most.
TEST(BertLadder, GradientsThatStay) {
  const double stay = requested(dry({})), go = requested(dry({.gradients_stay = false}));
  EXPECT_NEAR(stay - go, 335'143'938 * 4 / kMiB, 0.02 * 1278);
  EXPECT_LT(shown({.gradients_stay = false}), 0.95 * 14949);
}

Bytes highest_in(const trace::Trace& trace, Phase phase) {
  const trace::Timeline timeline(trace);
  Bytes highest;
  for (std::size_t i = 0; i < trace.events().size(); ++i)
    if (trace.events()[i].phase == phase) highest = std::max(highest, timeline.live(i));
  return highest;
}

/// Published: 7,275 in half precision against 6,775 in float32. The casts of the weights live to the end of forward,
/// and a checkpointed forward holds little that is smaller for them.
TEST(BertLadder, HalfPrecisionOfASmallBatchCostsTheCastsOfWeights) {
  const auto fp32 = dry({.batch = 1, .parts = 4, .model = {.checkpointed = true}}),
             half = dry(everything(Kind::kAdamW));
  EXPECT_NEAR(reserved(half) - reserved(fp32), 7275 - 6775, 0.02 * 500);

  const trace::Timeline timeline(half);
  EXPECT_EQ(timeline.peak().phase, Phase::kForward);
  EXPECT_EQ(trace::Timeline(fp32).peak().phase, Phase::kBackward);
  Bytes casts;
  for (const auto id : timeline.live_allocations(timeline.peak().event)) {
    const auto& allocation = half.allocation(id);
    if (!allocation.labelled && !half.name(allocation.name).empty()) casts += allocation.bytes;
  }
  const std::int64_t of_a_layer = 12 * 1024 * 1024 + 9 * 1024, after_attention = 9 * 1024 * 1024 + 6 * 1024;
  EXPECT_EQ(casts, Bytes(2 * (24 * of_a_layer - after_attention))) << "the peak is in the last layer's attention";
  EXPECT_LT(highest_in(half, Phase::kForward) - highest_in(fp32, Phase::kForward), casts);
  EXPECT_LE(highest_in(half, Phase::kBackward), highest_in(fp32, Phase::kBackward));
}
}  // namespace
}  // namespace cinch::tests
