// Ops that no rule describes, sizes that depend on values, and the ways tensors change under a program's hands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "cinch/dryrun/internal/run_both_test.h"

namespace cinch::dryrun {
namespace {

using internal::expect_same;
using internal::expect_same_memory;
using internal::run_both;

class AnyOp : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Threads, AnyOp, ::testing::Values(1, 2));

TEST_P(AnyOp, WithoutARuleIsProbed) {
  expect_same_memory([] {
    const auto a = at::rand({64, 96}), b = at::fft_rfft(a), c = at::cdist(a, a), d = at::cumprod(a, 1);
    const auto e = at::median(a), f = std::get<0>(at::kthvalue(a, 3)), g = at::histc(a, 10), h = at::renorm(a, 2, 0, 1);
  });
}

TEST_P(AnyOp, ThatFailsOnZerosIsProbedOnOtherValues) {
  expect_same_memory([] {
    const auto a = at::eye(64), b = at::linalg_cholesky(a), c = at::linalg_inv(a), d = at::linalg_solve(a, at::rand({64, 80}));
    const auto e = at::multinomial(at::rand({70, 90}), 5);
  });
}

TEST_P(AnyOp, LinearAlgebraHasABackward) {
  expect_same_memory([] {
    auto a = at::eye(64).set_requires_grad(true);
    (at::linalg_inv(a).sum() + at::logdet(a)).backward();
  });
}

TEST_P(AnyOp, WithNoRuleAndSeveralOpsInsideDecomposes) {
  expect_same_memory([] {
    auto a = at::rand({80, 90}).set_requires_grad(true);
    std::get<0>(at::nan_to_num(at::tile(a, {2, 2})).kthvalue(2)).sum().backward();
    const auto b = at::block_diag({a.detach(), a.detach()}), c = at::cov(a.detach()), d = at::rot90(a.detach());
  });
}

TEST_P(AnyOp, TakesTheLargestResultWhereValuesDecide) {
  const auto all = run_both([] {
    const auto a = at::ones({120, 70}), mask = at::ones({120, 70}, at::kBool);
    const auto b = at::nonzero(a), c = a.masked_select(mask), d = a.index({mask});
    const auto e = std::get<0>(at::_unique2(at::arange(5000), true, true, true));
  });
  expect_same(all);
  EXPECT_THAT(all.bounded, ::testing::ElementsAre("aten::_unique2", "aten::index", "aten::masked_select", "aten::nonzero"));
  const auto fewer = run_both([] { const auto b = at::nonzero(at::zeros({60, 70})); });
  EXPECT_GT(trace::Timeline(fewer.predicted).peak().bytes, trace::Timeline(fewer.recorded).peak().bytes);
}

TEST_P(AnyOp, KnowsTheValuesOfSmallTensors) {
  expect_same_memory([] {
    const auto few = at::tensor({1, 0, 1, 1, 0, 0, 0, 0}).to(at::kBool);
    const auto a = at::rand({8, 3000}), b = a.index({few}), c = at::repeat_interleave(a, at::tensor({1, 2, 3, 1, 1, 1, 1, 4}), 0);
  });
}

struct Scaled : torch::autograd::Function<Scaled> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x.exp()});
    return x * 3;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list grads) {
    return {grads[0] * context->get_saved_variables()[0]};
  }
};

TEST_P(AnyOp, CustomFunctionsHooksAndDoubleBackward) {
  expect_same_memory([] {
    auto a = at::rand({90, 80}).set_requires_grad(true);
    auto b = Scaled::apply(a);
    b.register_hook([](const at::Tensor& gradient) { return gradient.clone().mul_(2); });
    const auto first = torch::autograd::grad({b.tanh().square().sum()}, {a}, {}, true, /*create_graph=*/true);
    first[0].square().sum().backward();
  });
}

TEST_P(AnyOp, ViewsOutAndTypes) {
  expect_same_memory([] {
    auto grown = at::empty({60, 60});
    grown.resize_({90, 80}).resize_({60, 60}).resize_({100, 100});
    at::cat_out(grown = at::empty({0}), {at::rand({60, 60}), at::rand({60, 60})});
    auto a = at::rand({60, 70}), out = at::empty({60, 70});
    at::add_out(out, a, a);
    at::mm_out(out = at::empty({60, 60}), a, a.t());
    at::sigmoid_out(out, out);
    a.expand({3, 60, 70}).clone().narrow(0, 1, 1).squeeze_(0).mul_(2).t_();
    const auto b = at::complex(a, a), c = b.abs(), d = a.to(at::kHalf), e = a.to(at::kBFloat16);
    const auto f = at::view_as_real(b).sum(), g = d + 1, h = b.conj().resolve_conj();
  });
}

/// Types that few kernels compute with: they are made, cast, copied and seen as others.
TEST_P(AnyOp, OfEveryType) {
  for (const auto dtype : {at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu,
                           at::kUInt16, at::kUInt32, at::kUInt64, at::kComplexHalf}) {
    SCOPED_TRACE(c10::toString(dtype));
    expect_same_memory([&] {
      const auto a = at::rand({90, 120}), b = a.to(dtype), c = b.clone(), d = c.to(at::kFloat), e = at::empty({80, 70}, dtype);
      const auto f = at::cat({b, c}), g = b.t().contiguous(), h = b.view(at::kByte).narrow(1, 0, 50).clone();
      auto i = at::zeros({90, 120}, dtype);
      i.copy_(a);
    });
  }
}

TEST_P(AnyOp, UnderInferenceMode) {
  expect_same_memory([] {
    const c10::InferenceMode inference;
    const auto a = at::rand({70, 90}), b = at::cross_entropy_loss(a, at::zeros({70}, at::kLong)), c = at::matmul(a, a.t());
    const auto d = at::scaled_dot_product_attention(at::rand({2, 4, 60, 16}), at::rand({2, 4, 60, 16}), at::rand({2, 4, 60, 16}));
    const auto e = at::layer_norm(a.t(), {70}), f = at::fft_fft(a);
  });
}

/// On one thread: several take part of their scratch side by side or one after the other, as it happens.
TEST(FusedAttention, InEveryBlockSize) {
  at::set_num_threads(1);
  for (const std::int64_t length : {20, 200, 800})
    for (const auto dtype : {at::kFloat, at::kBFloat16})
      expect_same_memory([&] {
        const auto make = [&] { return at::rand({2, 4, length, 64}, dtype).set_requires_grad(true); };
        auto q = make(), k = make(), v = make();
        at::scaled_dot_product_attention(q, k, v, {}, 0.0, length == 200).sum().backward();
      });
}

TEST_P(AnyOp, LayerNormOfEveryType) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const bool mixed : {false, true})
      expect_same_memory([&] {
        auto x = at::rand({100, 30, 96}, dtype).set_requires_grad(true);
        auto w = at::ones({96}, mixed ? at::kFloat : dtype).set_requires_grad(true), b = at::zeros_like(w).set_requires_grad(true);
        at::layer_norm(x.transpose(0, 1), {96}, w, b).sum().backward();
      });
}
}  // namespace
}  // namespace cinch::dryrun
