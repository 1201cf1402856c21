#include "cinch/techniques/compress.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "cinch/core/bytes.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/activation_checkpoint.h"
#include "cinch/techniques/internal/blockwise.h"
#include "cinch/techniques/offload.h"
#include "cinch/trace/sink.h"

namespace cinch::techniques {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double relative(const at::Tensor& is, const at::Tensor& should) {
  return ((is - should).norm() / should.norm()).item<double>();
}

TEST(Int8, RoundsToATwoHundredAndFiftySecondOfEachBlocksLargest) {
  at::manual_seed(1);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t count : {1, 255, 256, 257, 100000}) {
      const auto values = (at::randn({count}) * at::arange(count).div(256, "floor").add(1)).to(dtype);
      const auto stored = internal::compress_int8(values);
      EXPECT_EQ(stored.numel(), count + 4 * ((count + 255) / 256));
      const auto back = internal::expand_int8(stored, count, dtype);
      ASSERT_EQ(back.scalar_type(), dtype);
      for (std::int64_t begin = 0; begin < count; begin += 256) {
        const auto block = values.slice(0, begin, begin + 256).to(at::kFloat);
        const auto largest = block.abs().max().item<float>();
        const auto error = (back.slice(0, begin, begin + 256).to(at::kFloat) - block).abs().max().item<float>();
        const auto rounding = dtype == at::kFloat ? 1e-6F : dtype == at::kHalf ? 1.0F / 2048 : 1.0F / 256;
        ASSERT_LE(error, largest * (1.0F / 252 + rounding)) << dtype << " " << count << " block " << begin / 256;
      }
    }
  }
}

TEST(Int8, KeepsWhatIsNotANumberAndDoesNotLetItSpoilItsBlock) {
  auto values = at::linspace(-1, 1, 300);
  values[3] = kInfinity, values[4] = -kInfinity, values[5] = std::numeric_limits<float>::quiet_NaN();
  const auto back = internal::expand_int8(internal::compress_int8(values), 300, at::kFloat);
  EXPECT_EQ(back[3].item<float>(), kInfinity);
  EXPECT_EQ(back[4].item<float>(), -kInfinity);
  EXPECT_TRUE(std::isnan(back[5].item<float>()));
  EXPECT_LT((back - values).slice(0, 6).abs().max().item<float>(), 1.0 / 250);
}

TEST(Int8, BearsZerosAndTheSmallestAndLargestNumbers) {
  for (const float value : {0.0F, std::numeric_limits<float>::denorm_min(), 1e-40F, std::numeric_limits<float>::min(),
                            std::numeric_limits<float>::max()}) {
    const auto values = at::full({256}, value);
    const auto back = internal::expand_int8(internal::compress_int8(values), 256, at::kFloat);
    EXPECT_LE((back - values).abs().max().item<float>(), std::max(value / 250, 1e-37F)) << value;
    EXPECT_TRUE(at::isfinite(back).all().item<bool>()) << value;
  }
}

struct Run {
  std::vector<at::Tensor> gradients;
  at::Tensor loss;
  Bytes held;
};

/// A few layers, whose storage `policy` decides.
Run run(SavedTensorPolicy* policy, bool checkpointed = false) {
  at::manual_seed(2);
  const auto w = (at::randn({64, 64}) / 8).requires_grad_(), v = (at::randn({64, 64}) / 8).requires_grad_();
  trace::PeakMeter meter;
  const record::Recorder recorder(meter);
  at::Tensor x = at::randn({128, 64});
  const auto before = recorder.live();
  {
    std::optional<SavedTensorScope> scope;
    if (policy != nullptr) scope.emplace(*policy);
    const auto layer = [=](const at::Tensor& t) { return t + at::dropout(at::gelu(t.mm(w)).mm(v), 0.1, true); };
    for (int i = 0; i < 4; ++i) x = checkpointed ? checkpoint(layer, x) : layer(x);
    x = x.square().mean();
  }
  const auto held = recorder.live() - before;
  return {torch::autograd::grad({x}, {w, v}), x.detach(), held};
}

TEST(Compress, StoresLessAndLeavesForwardExact) {
  const auto plain = run(nullptr);
  Compress bf16(Codec::kBf16), int8(Codec::kInt8);
  const auto half = run(&bf16), quarter = run(&int8);
  EXPECT_TRUE(at::equal(half.loss, plain.loss));
  EXPECT_TRUE(at::equal(quarter.loss, plain.loss));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_GT(relative(half.gradients[i], plain.gradients[i]), 0) << "or nothing was compressed";
    EXPECT_LT(relative(half.gradients[i], plain.gradients[i]), 0.004);
    EXPECT_LT(relative(quarter.gradients[i], plain.gradients[i]), 0.03);
  }
  // The input and the last op's tensors are as they were, and dropout's masks are bytes.
  EXPECT_LT(half.held.count(), plain.held.count() * 65 / 100);
  EXPECT_LT(quarter.held.count(), plain.held.count() * 45 / 100);
}

TEST(Compress, GivesTheSameAloneAndIntoAnOffload) {
  for (const auto codec : {Codec::kBf16, Codec::kInt8}) {
    for (const bool checkpointed : {false, true}) {
      Compress alone(codec);
      Offload offload({.in_flight = Bytes()});
      Compress both(codec, {.into = &offload});
      const auto here = run(&alone, checkpointed), there = run(&both, checkpointed);
      for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(here.gradients[i], there.gradients[i]));
      EXPECT_LT(there.held, here.held);
      EXPECT_GT(offload.stats().sent, Bytes());
    }
  }
}

TEST(Compress, LeavesParametersAndOtherTypesAsTheyAre) {
  const auto x = at::randn({32, 32}, at::kDouble).requires_grad_();
  const auto gradient = [&x] { return torch::autograd::grad({(x * 2).exp().sin().exp().sum()}, {x})[0]; };
  const auto plain = gradient();
  Compress compress(Codec::kInt8);
  const SavedTensorScope scope(compress);
  EXPECT_TRUE(at::equal(plain, gradient()));
  const auto w = at::randn({64, 64}).requires_grad_();
  EXPECT_TRUE(at::equal(torch::autograd::grad({(w * w.t()).sum()}, {w})[0], 2 * w.t()));
}

TEST(Compress, ServesViewsOfOneStorage) {
  const auto x = at::randn({32, 96}).requires_grad_();
  const auto gradient = [&x] {
    const auto parts = (x * 1).chunk(3, 1);
    return torch::autograd::grad({(parts[0] * parts[1].t().contiguous().t() * parts[2]).sum().exp().log()}, {x})[0];
  };
  const auto plain = gradient();
  Compress compress(Codec::kBf16);
  const SavedTensorScope scope(compress);
  EXPECT_LT(relative(gradient(), plain), 0.01);
}

}  // namespace
}  // namespace cinch::techniques
