#include "cinch/techniques/linear_cross_entropy.h"

#include <optional>
#include <string>
#include <tuple>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/activation_checkpoint.h"
#include "cinch/techniques/autocast.h"
#include "cinch/trace/trace.h"

namespace cinch::techniques {
namespace {

using testing::HasSubstr;
constexpr std::int64_t kRows = 37, kFeatures = 24, kClasses = 101;

/// A head and what it is asked: three of the targets do not count.
struct Head {
  explicit Head(at::ScalarType dtype = at::kFloat) {
    at::manual_seed(5);
    hidden = at::randn({kRows, kFeatures}).to(dtype).requires_grad_();
    weight = at::randn({kClasses, kFeatures}).mul(0.3).to(dtype).requires_grad_();
    bias = at::randn({kClasses}).to(dtype).requires_grad_();
    targets = at::randint(kClasses, {kRows}, at::kLong);
    for (const auto row : {0, 20, 36}) targets[row] = -100;
  }
  at::Tensor loss(const LinearCrossEntropyOptions& options) const {
    return linear_cross_entropy(hidden, weight, bias, targets, options);
  }
  std::vector<at::Tensor> gradients(const at::Tensor& of) const {
    return torch::autograd::grad({of}, {hidden, weight, bias});
  }
  at::Tensor hidden, weight, bias, targets;
};

double relative_difference(const at::Tensor& left, const at::Tensor& right) {
  const auto l = left.to(at::kDouble), r = right.to(at::kDouble);
  return ((l - r).norm() / r.norm()).item<double>();
}

void expect_near(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right, double bound = 1e-6) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    ASSERT_EQ(left[i].scalar_type(), right[i].scalar_type());
    EXPECT_LT(relative_difference(left[i], right[i]), bound) << "tensor " << i;
  }
}

/// The definition, in float64, with nothing shared with what is tested but log_softmax.
at::Tensor definition(const Head& head, const LinearCrossEntropyOptions& options) {
  const auto logits = head.hidden.to(at::kDouble).matmul(head.weight.to(at::kDouble).t()) + head.bias.to(at::kDouble);
  const auto log_p = logits.log_softmax(1);
  std::vector<at::Tensor> losses;
  std::int64_t counted = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto target = head.targets[row].item<std::int64_t>();
    if (target == options.ignore_index) {
      losses.push_back(at::zeros({}, at::kDouble));
      continue;
    }
    ++counted;
    losses.push_back(-(1 - options.label_smoothing) * log_p[row][target] - options.label_smoothing * log_p[row].mean() +
                     options.z_loss * logits[row].logsumexp(0).square());
  }
  const auto all = at::stack(losses);
  if (options.reduction == at::Reduction::None) return all;
  return options.reduction == at::Reduction::Sum ? all.sum() : all.sum() / counted;
}

using Case = std::tuple<at::Reduction::Reduction, double, double, std::int64_t>;
class LinearCrossEntropy : public testing::TestWithParam<Case> {
 protected:
  static LinearCrossEntropyOptions options(std::int64_t chunk_size) {
    const auto [reduction, smoothing, z_loss, unused] = GetParam();
    return {.chunk_size = chunk_size, .label_smoothing = smoothing, .z_loss = z_loss, .reduction = reduction};
  }
  static std::int64_t chunk_size() { return std::get<3>(GetParam()); }
  /// Something that gives each row's loss another weight.
  static at::Tensor scalar(const at::Tensor& loss) {
    return loss.dim() == 0 ? loss * 1.7 : loss.mul(at::linspace(0.5, 2, kRows).to(loss.scalar_type())).sum();
  }
};
INSTANTIATE_TEST_SUITE_P(Options, LinearCrossEntropy,
                         testing::Combine(testing::Values(at::Reduction::Sum, at::Reduction::Mean, at::Reduction::None),
                                          testing::Values(0, 0.1), testing::Values(0, 0.01),
                                          testing::Values(1, 8, 36)));

TEST_P(LinearCrossEntropy, IsItsDefinition) {
  const Head head;
  const auto loss = head.loss(options(chunk_size())), expected = definition(head, options(0));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.sizes(), expected.sizes());
  EXPECT_LT(relative_difference(loss, expected), 1e-6);
  expect_near(head.gradients(scalar(loss)), head.gradients(scalar(expected)));
}

TEST_P(LinearCrossEntropy, InAnyDivisionIsThePlainOne) {
  const Head head;
  const auto loss = head.loss(options(chunk_size())), plain = head.loss(options(0));
  EXPECT_LT(relative_difference(loss, plain), 1e-6);
  expect_near(head.gradients(scalar(loss)), head.gradients(scalar(plain)));
}

TEST_P(LinearCrossEntropy, InOneChunkIsBitwiseThePlainOne) {
  const Head head;
  for (const std::int64_t rows : {kRows, kRows + 1}) {
    const auto loss = head.loss(options(rows)), plain = head.loss(options(0));
    EXPECT_TRUE(at::equal(loss, plain));
    const auto left = head.gradients(scalar(loss)), right = head.gradients(scalar(plain));
    for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << i;
  }
}

TEST_P(LinearCrossEntropy, InDoublesIsExactToDoubles) {
  const Head head(at::kDouble);
  const auto loss = head.loss(options(chunk_size())), plain = head.loss(options(0));
  EXPECT_EQ(loss.scalar_type(), at::kDouble);
  EXPECT_LT(relative_difference(loss, plain), 1e-14);
  expect_near(head.gradients(scalar(loss)), head.gradients(scalar(plain)), 1e-14);
}

TEST_P(LinearCrossEntropy, BackwardTwiceGivesTheSameTwice) {
  const Head head;
  const auto loss = scalar(head.loss(options(chunk_size())));
  const std::vector<at::Tensor> inputs{head.hidden, head.weight, head.bias};
  const auto first = torch::autograd::grad({loss}, inputs, {}, /*retain_graph=*/true);
  const auto second = torch::autograd::grad({loss}, inputs, {}, /*retain_graph=*/false);
  for (std::size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST_P(LinearCrossEntropy, UnderAutocastIsAsNearToTheTruthAsThePlainOne) {
  const Head head;
  const auto run = [&](std::int64_t chunk) {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    return scalar(head.loss(options(chunk)));
  };
  const auto loss = run(chunk_size()), plain = run(0), truth = scalar(definition(head, options(0)));
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_LT(relative_difference(loss, plain), 1e-6) << "the logits are the same";
  const auto left = head.gradients(loss), middle = head.gradients(plain), right = head.gradients(truth);
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].scalar_type(), at::kFloat);
    EXPECT_LT(relative_difference(left[i], right[i]), 1.2 * relative_difference(middle[i], right[i]) + 1e-6) << i;
  }
}

TEST_P(LinearCrossEntropy, WithAllIgnoredGivesWhatThePlainOneGives) {
  Head head;
  head.targets.fill_(-100);
  const auto loss = head.loss(options(chunk_size())), plain = head.loss(options(0));
  EXPECT_TRUE(at::allclose(loss, plain, 0, 0, /*equal_nan=*/true));
  if (std::get<0>(GetParam()) == at::Reduction::Mean) return;  // 0 / 0, as it is there
  for (const auto& gradient : head.gradients(scalar(loss))) EXPECT_EQ(gradient.abs().max().item<float>(), 0);
}

TEST(LinearCrossEntropyInputs, FrozenOnesGetNoGradientAndTakeNoMemory) {
  for (const auto reduction : {at::Reduction::Sum, at::Reduction::None}) {
    Head head;
    const LinearCrossEntropyOptions options{.chunk_size = 8, .reduction = reduction};
    const auto plain = torch::autograd::grad({head.loss({.reduction = at::Reduction::Sum})}, {head.hidden})[0];
    head.weight.requires_grad_(false);
    head.bias.requires_grad_(false);
    EXPECT_LT(relative_difference(torch::autograd::grad({head.loss(options).sum()}, {head.hidden})[0], plain), 1e-6);

    trace::Trace trace;
    {
      const record::Recorder recorder(trace);
      head.loss(options).sum().backward();
    }
    for (const auto& event : trace.events()) {
      EXPECT_NE(event.bytes, Bytes(kClasses * kFeatures * 4)) << "something as large as the weight's gradient";
    }
    EXPECT_FALSE(head.weight.grad().defined());
    head.hidden.mutable_grad().reset();
    head.weight.requires_grad_(true);
    head.hidden.requires_grad_(false);
    const auto loss = head.loss(options).sum();
    EXPECT_LT(
        relative_difference(torch::autograd::grad({loss}, {head.weight})[0],
                            torch::autograd::grad({head.loss({.reduction = at::Reduction::Sum})}, {head.weight})[0]),
        1e-6);
  }
}

TEST(LinearCrossEntropyInputs, WithoutGradModeOnlyTheLossIsMade) {
  const Head head;
  const auto expected = head.loss({.chunk_size = 8});
  const at::NoGradGuard no_grad;
  const auto loss = head.loss({.chunk_size = 8});
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_TRUE(at::equal(loss, expected));
}

TEST(LinearCrossEntropyInputs, BatchesBiasAndNoBias) {
  const Head head;
  const auto hidden = head.hidden.narrow(0, 0, 36).view({4, 9, kFeatures});
  const auto targets = head.targets.narrow(0, 0, 36).view({4, 9});
  const LinearCrossEntropyOptions chunked{.chunk_size = 5, .reduction = at::Reduction::None};
  const auto loss = linear_cross_entropy(hidden, head.weight, {}, targets, chunked);
  EXPECT_EQ(loss.sizes(), targets.sizes());
  const auto plain =
      linear_cross_entropy(hidden, head.weight, at::Tensor(), targets, {.reduction = at::Reduction::None});
  EXPECT_LT(relative_difference(loss, plain), 1e-6);
}

TEST(LinearCrossEntropyInputs, AWeightThatIsTiedGetsBothGradients) {
  const auto run = [](std::int64_t chunk) {
    const Head head;
    const auto embedded = at::embedding(head.weight, head.targets.masked_fill(head.targets.lt(0), 0));
    linear_cross_entropy(embedded + head.hidden, head.weight, {}, head.targets, {.chunk_size = chunk}).backward();
    return head.weight.grad();
  };
  EXPECT_LT(relative_difference(run(7), run(0)), 1e-6);
}

TEST(LinearCrossEntropyInputs, ALossUsedTwiceAndTwoLossesOfOneHeadAddUp) {
  const Head head;
  const auto loss = head.loss({.chunk_size = 8}),
             other = head.loss({.chunk_size = 11, .reduction = at::Reduction::Sum});
  const auto plain = head.loss({}), plain_other = head.loss({.reduction = at::Reduction::Sum});
  expect_near(head.gradients(loss * loss + other), head.gradients(plain * plain + plain_other));
}

/// A weight cast without a graph must not stay in autocast's cache for those who need one (pytorch#112583).
TEST(LinearCrossEntropyInputs, LeavesAutocastsCacheAlone) {
  const Head head;
  const Autocast autocast(at::kCPU, at::kBFloat16);
  static_cast<void>(head.loss({.chunk_size = 8}));
  EXPECT_TRUE(at::linear(head.hidden.detach(), head.weight).requires_grad());
}

TEST(LinearCrossEntropyInputs, AWeightInBfloat16IsSummedInFloat32) {
  Head head;
  const auto truth = head.gradients(definition(head, {.reduction = at::Reduction::Sum}));
  head.weight = head.weight.detach().to(at::kBFloat16).requires_grad_();
  head.hidden = head.hidden.detach().to(at::kBFloat16).requires_grad_();
  head.bias = head.bias.detach().to(at::kBFloat16).requires_grad_();
  const auto chunked = head.gradients(head.loss({.chunk_size = 1, .reduction = at::Reduction::Sum}));
  const auto plain = head.gradients(head.loss({.reduction = at::Reduction::Sum}));
  EXPECT_EQ(chunked[1].scalar_type(), at::kBFloat16);
  EXPECT_LT(relative_difference(chunked[1], truth[1]), 1.2 * relative_difference(plain[1], truth[1]));
}

/// Gradients of float16 vanish unless the loss scale is in them from the start.
TEST(LinearCrossEntropyInputs, InFloat16TheLossScaleReachesEveryProduct) {
  const Head head;
  const auto truth = head.gradients(definition(head, {}));
  const double scale = 65536;
  const auto run = [&](std::int64_t chunk) {
    const Autocast autocast(at::kCPU, at::kHalf);
    return torch::autograd::grad({head.loss({.chunk_size = chunk}) * scale}, {head.hidden, head.weight});
  };
  const auto chunked = run(8), plain = run(0);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_LT(relative_difference(chunked[i] / scale, truth[i]), 2e-3) << i;
    EXPECT_LT(relative_difference(plain[i] / scale, truth[i]), 2e-3) << i;
  }
}

TEST(LinearCrossEntropyInputs, InsideAnActivationCheckpointGivesTheSame) {
  const Head head;
  for (const auto reduction : {at::Reduction::Sum, at::Reduction::None}) {
    const LinearCrossEntropyOptions options{.chunk_size = 8, .reduction = reduction};
    const auto checkpointed = checkpoint(
        [&](const at::Tensor& hidden) {
          return linear_cross_entropy(hidden.tanh(), head.weight, head.bias, head.targets, options);
        },
        head.hidden);
    const auto plain = linear_cross_entropy(head.hidden.tanh(), head.weight, head.bias, head.targets, options);
    const auto left = head.gradients(checkpointed.sum()), right = head.gradients(plain.sum());
    for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << i;
  }
}

TEST(LinearCrossEntropyInputs, ASecondDerivativeIsRefused) {
  const Head head;
  for (const auto reduction : {at::Reduction::Sum, at::Reduction::None}) {
    const auto loss = head.loss({.chunk_size = 8, .reduction = reduction}).sum();
    try {
      torch::autograd::grad({loss}, {head.hidden}, {}, true, /*create_graph=*/true);
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("create_graph"));
      EXPECT_THAT(error.hint(), HasSubstr("chunk_size 0"));
    }
  }
  EXPECT_TRUE(torch::autograd::grad({head.loss({})}, {head.hidden}, {}, true, true)[0].requires_grad());
}

TEST(LinearCrossEntropyInputs, AWeightChangedBeforeBackwardIsNoticedWhereItIsNeeded) {
  const Head head;
  const auto loss = head.loss({.chunk_size = 8, .reduction = at::Reduction::None}).sum();
  {
    const at::NoGradGuard no_grad;
    head.weight.add_(1);
  }
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(LinearCrossEntropyInputs, WhatDoesNotFitIsRefusedWithSizes) {
  const Head head;
  const auto message = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(message([&] { linear_cross_entropy(head.hidden, head.weight.t(), {}, head.targets); }),
              HasSubstr("[37, 24]"));
  EXPECT_THAT(message([&] { linear_cross_entropy(head.hidden, head.weight, head.hidden, head.targets); }),
              HasSubstr("bias"));
  EXPECT_THAT(message([&] { linear_cross_entropy(head.hidden, head.weight, {}, head.targets.narrow(0, 0, 5)); }),
              HasSubstr("targets"));
  EXPECT_THAT(message([&] { head.loss({.chunk_size = -1}); }), HasSubstr("chunk_size -1"));
  EXPECT_THAT(message([&] { head.loss({.label_smoothing = 1.5}); }), HasSubstr("label_smoothing"));
  EXPECT_THAT(message([&] { head.loss({.z_loss = -1}); }), HasSubstr("z_loss"));
  auto outside = head.targets.clone();
  outside[3] = kClasses;
  EXPECT_ANY_THROW(linear_cross_entropy(head.hidden, head.weight, {}, outside, {.chunk_size = 8}));
}

/// ISEEKYAN/Megatron-LM#132, smaller by 64: the logits' rows × classes × 4 become chunk × classes × 4.
TEST(LinearCrossEntropyMemory, TheLogitsAreThoseOfAChunk) {
  constexpr std::int64_t rows = 128, classes = 15193, features = 8, chunk = 16;
  const auto hidden = at::randn({rows, features}), weight = at::randn({classes, features});
  const auto targets = at::randint(classes, {rows}, at::kLong);
  const auto peak_of = [&](std::int64_t chunk_size) {
    trace::Trace trace;
    const record::Recorder recorder(trace);
    linear_cross_entropy(hidden, weight, {}, targets, {.chunk_size = chunk_size});
    return recorder.peak();
  };
  const Bytes whole(rows * classes * 4), part(chunk * classes * 4);
  EXPECT_GE(peak_of(0), whole);
  EXPECT_GE(peak_of(chunk), part);
  EXPECT_LT(peak_of(chunk), part + Bytes(16 << 10)) << "and nothing else of that order";
}

TEST(LinearCrossEntropyMemory, TrainingTakesOneChunkBesideTheGradients) {
  constexpr std::int64_t rows = 256, classes = 5000, features = 64, chunk = 16;
  const auto hidden = at::randn({rows, features}).requires_grad_(),
             weight = at::randn({classes, features}).requires_grad_();
  const auto targets = at::randint(classes, {rows}, at::kLong);
  const auto peak_of = [&](bool bf16) {
    trace::Trace trace;
    const record::Recorder recorder(trace);
    std::optional<Autocast> autocast;
    if (bf16) autocast.emplace(at::kCPU, at::kBFloat16);
    linear_cross_entropy(hidden, weight, {}, targets, {.chunk_size = chunk}).backward();
    hidden.mutable_grad().reset();
    weight.mutable_grad().reset();
    return recorder.peak();
  };
  const auto row = loss_chunk_row_bytes(classes, at::kFloat);
  EXPECT_EQ(row, Bytes(classes * 4));
  const Bytes gradients((rows + classes) * features * 4);
  EXPECT_LT(peak_of(false), gradients + row * chunk + Bytes(32 << 10));
  // In bfloat16 also: the weight's copy, the logits' copy, a piece of the weight's gradient and its cast.
  const auto row_bf16 = loss_chunk_row_bytes(classes, at::kBFloat16);
  EXPECT_EQ(row_bf16, Bytes(classes * 6));
  EXPECT_LT(peak_of(true), gradients + Bytes(classes * features * 2) + row_bf16 * chunk * 2 + Bytes(96 << 10));
}

TEST(LinearCrossEntropyMemory, AChunkForABudget) {
  const auto budget = Bytes(1 << 20);
  EXPECT_EQ(loss_chunk_size_for(budget, 4096, 1000), (1 << 20) / 4000);
  EXPECT_EQ(loss_chunk_size_for(budget, 4096, 1000, at::kBFloat16), (1 << 20) / 6000);
  EXPECT_EQ(loss_chunk_size_for(budget, 100, 1000), 100) << "no more than there are";
  EXPECT_EQ(loss_chunk_size_for(Bytes(10), 4096, 1000), 1);
}

}  // namespace
}  // namespace cinch::techniques
