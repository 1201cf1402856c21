// Formulas of the literature and figures that people published, against dry runs. The product itself holds no formula
// of any layer: here they are the judges.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "cinch/allocator/caching_allocator.h"
#include "cinch/report/summarize.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

job::Job job_of(job::ModelConfig model, std::int64_t batch_size) {
  job::Job job;
  job.model = std::move(model);
  job.data = job::SyntheticData{};
  job.train.batch_size = batch_size;
  job.train.steps = 2;
  job.train.learning_rate = 1e-4;
  return job;
}

/// The most that is live at once of `categories`.
Bytes most_of(const trace::Trace& trace, std::initializer_list<trace::Category> categories) {
  const auto curve = report::thin(trace, 100'000);
  Bytes most;
  for (const auto& point : curve.points) {
    Bytes sum;
    for (const auto category : categories) sum += point.live[category];
    most = std::max(most, sum);
  }
  return most;
}

/// Weights, gradients and two moments in float32 (1910.02054, section 3.1: 16 bytes with mixed precision's copies; the
/// same 4 × 4 here), and a step count of 4 bytes a tensor.
TEST(Oracles, SixteenBytesAParameter) {
  const auto job = job_of(job::MlpConfig{.sizes = {1000, 2000, 3000, 10}}, 1);
  const std::int64_t parameters = 1001 * 2000 + 2001 * 3000 + 3001 * 10;
  const auto trace = train::simulator(job, device::find("cpu"))({});
  const auto state =
      most_of(trace, {trace::Category::kParameter, trace::Category::kGradient, trace::Category::kOptimizerState});
  EXPECT_EQ(state, Bytes(16 * parameters + 4 * 6));
}

/// The logits of N targets over V classes in float32 are N·V·4 bytes (Megatron-LM#132: 8192 × 151,936 are 4.637 GiB).
TEST(Oracles, LogitsOfTheLoss) {
  const auto job = job_of(
      job::GptConfig{.layers = 1, .hidden_size = 64, .heads = 1, .context_length = 2048, .vocab_size = 151'936}, 4);
  const auto trace = train::simulator(job, device::find("a100-80gb"))({});
  const std::int64_t logits = std::int64_t{8192} * 151'936 * 4;
  EXPECT_NEAR(static_cast<double>(logits) / (1024 * kMiB), 4.637, 0.001);
  int of_that_size = 0;
  for (const auto& allocation : trace.allocations()) of_that_size += allocation.bytes == Bytes(logits) ? 1 : 0;
  EXPECT_GT(of_that_size, 0);
  EXPECT_GT(trace::Timeline(trace).peak().bytes, Bytes(2 * logits)) << "the logits and their gradient";
}

/// One layer of 2205.05198, section 4.1, in half precision: unfused attention, dropout in three places.
class Layer : public torch::nn::Module {
 public:
  Layer(std::int64_t hidden, std::int64_t heads) : heads_(heads) {
    namespace nn = torch::nn;
    norm1_ = register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({hidden})));
    norm2_ = register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({hidden})));
    qkv_ = register_module("qkv", nn::Linear(hidden, 3 * hidden));
    proj_ = register_module("proj", nn::Linear(hidden, hidden));
    up_ = register_module("up", nn::Linear(hidden, 4 * hidden));
    down_ = register_module("down", nn::Linear(4 * hidden, hidden));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto batch = x.size(0), length = x.size(1), hidden = x.size(2);
    const auto attended = x + at::dropout(proj_->forward(attend(norm1_->forward(x), batch, length, hidden)), 0.1, true);
    return attended + at::dropout(down_->forward(at::gelu(up_->forward(norm2_->forward(attended)))), 0.1, true);
  }

 private:
  at::Tensor attend(const at::Tensor& x, std::int64_t batch, std::int64_t length, std::int64_t hidden) {
    auto parts = qkv_->forward(x).chunk(3, -1);
    for (auto& part : parts) part = part.reshape({batch, length, heads_, hidden / heads_}).transpose(1, 2).contiguous();
    auto scores = at::matmul(parts[0], parts[1].transpose(-1, -2));
    scores = scores.mul_(1 / std::sqrt(static_cast<double>(hidden / heads_))).softmax(-1);
    const auto mixed = at::matmul(at::dropout(scores, 0.1, true), parts[2]);
    return mixed.transpose(1, 2).reshape({batch, length, hidden});
  }
  std::int64_t heads_;
  torch::nn::LayerNorm norm1_{nullptr}, norm2_{nullptr};
  torch::nn::Linear qkv_{nullptr}, proj_{nullptr}, up_{nullptr}, down_{nullptr};
};

TEST(Oracles, ActivationsOfATransformerLayer) {
  const auto card = device::find("a100-80gb");
  for (const auto& [s, b, h, a] :
       {std::array<std::int64_t, 4>{512, 4, 1024, 16}, {2048, 1, 2048, 16}, {256, 8, 768, 12}}) {
    trace::Trace trace;
    Bytes before, after;
    {
      const dryrun::DryRun dry(trace, card);
      Layer layer(h, a);
      layer.to(at::kCUDA, at::kBFloat16);
      auto x = torch::empty({b, s, h}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16)).requires_grad_();
      before = trace::Timeline(trace).live(trace.events().size() - 1);
      const auto y = layer.forward(x);
      after = trace::Timeline(trace).live(trace.events().size() - 1);
    }
    const auto formula =
        static_cast<double>(s * b * h) * (34 + 5.0 * static_cast<double>(a * s) / static_cast<double>(h));
    // The formula counts the layer's input but not its output, and leaves out the norms' statistics and what cuBLAS
    // keeps.
    const auto found = static_cast<double>((after - before - card.cublas_workspace).count());
    const double statistics = 16.0 * static_cast<double>(s * b);
    EXPECT_NEAR(found, formula + statistics, 1.0) << s << ' ' << b << ' ' << h << ' ' << a;
  }
}

// ---- BERT-large. What Hugging Face measured of it: bert_ladder_test.cc. ----

/// Attention from single ops.
class UnfusedAttention {
 public:
  UnfusedAttention() { set(false); }
  ~UnfusedAttention() { set(true); }
  UnfusedAttention(const UnfusedAttention&) = delete;
  UnfusedAttention& operator=(const UnfusedAttention&) = delete;

 private:
  static void set(bool fused) {
    at::globalContext().setSDPUseFlash(fused);
    at::globalContext().setSDPUseMemEfficient(fused);
  }
};

job::BertConfig bert_large() {
  return {.layers = 24, .hidden_size = 1024, .heads = 16, .intermediate_size = 4096, .classes = 2};
}

double peak_mib(const job::Job& job) {
  const UnfusedAttention unfused;
  const auto trace = train::simulator(job, device::find("v100-16gb"))({});
  return static_cast<double>(trace::Timeline(trace).peak().bytes.count()) / kMiB;
}

constexpr double kParametersMiB = 335'143'938 * 4 / kMiB;

/// What a sample adds, from the saved tensors of one layer in float32 (length 512, 16 heads): softmax, its dropout's
/// mask and output 4 + 1 + 4 bytes a score; 16 tensors [512, 1024] and two dropout masks. 1,656 MiB, to which the
/// embeddings and norms add under 1 %.
TEST(Oracles, WhatASampleOfBertLargeAdds) {
  const double slope = (peak_mib(job_of(bert_large(), 4)) - peak_mib(job_of(bert_large(), 1))) / 3;
  const double scores = 16.0 * 512 * 512 * 9 / kMiB, tokens = 512.0 * 1024 * (16 * 4 + 2) / kMiB;
  EXPECT_NEAR(slope, 24 * (scores + tokens), 0.01 * slope);
}

/// Weights 1,278 MiB; Adam's states 8 bytes a parameter (2,557 MiB).
TEST(Oracles, BertLargesWeightsAndStates) {
  auto job = job_of(bert_large(), 1);
  const double adamw = peak_mib(job);
  const auto trace = train::simulator(job, device::find("v100-16gb"))({});
  EXPECT_NEAR(static_cast<double>(most_of(trace, {trace::Category::kParameter}).count()) / kMiB, kParametersMiB, 0.01);
  job.train.optimizer = {.kind = job::OptimizerKind::kSgd};
  EXPECT_NEAR(adamw - peak_mib(job), 2 * kParametersMiB, 0.02 * 2 * kParametersMiB);
}
}  // namespace
}  // namespace cinch::tests
