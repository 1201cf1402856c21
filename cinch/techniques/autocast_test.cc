#include "cinch/techniques/autocast.h"

#include <stdexcept>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>

#include "cinch/core/error.h"

namespace cinch::techniques {
namespace {

at::ScalarType type_of_product() {
  const auto x = at::ones({2, 2});
  return x.mm(x).scalar_type();
}

TEST(Autocast, CastsWhileItLives) {
  {
    const Autocast autocast(at::kCPU, at::kBFloat16);
    EXPECT_EQ(type_of_product(), at::kBFloat16);
  }
  EXPECT_EQ(type_of_product(), at::kFloat);
}

TEST(Autocast, NestsAndRestores) {
  const Autocast outer(at::kCPU, at::kBFloat16);
  {
    const Autocast half(at::kCPU, at::kHalf);
    EXPECT_EQ(type_of_product(), at::kHalf);
    const Autocast off(at::kCPU, at::kFloat);
    EXPECT_EQ(type_of_product(), at::kFloat);
  }
  EXPECT_EQ(type_of_product(), at::kBFloat16);
}

TEST(Autocast, RestoresAfterAnException) {
  const auto dtype = at::autocast::get_autocast_dtype(at::kCPU);
  const auto fails = [] {
    const Autocast autocast(at::kCPU, at::kHalf);
    throw std::runtime_error("within");
  };
  EXPECT_THROW(fails(), std::runtime_error);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), dtype);
}

TEST(Autocast, KeepsCastsOfWeightsUntilTheOutermostEnds) {
  auto weight = at::ones({2, 2}).set_requires_grad(true);
  const auto x = at::ones({2, 2});
  const auto before = weight.use_count();
  {
    const Autocast outer(at::kCPU, at::kBFloat16);
    {
      const Autocast inner(at::kCPU, at::kBFloat16);
      x.mm(weight);  // No graph outlives this line: only the cache can hold anything.
    }
    EXPECT_GT(weight.use_count() + weight.weak_use_count(), before + 1);
  }
  EXPECT_EQ(weight.use_count(), before);
  EXPECT_EQ(weight.weak_use_count(), 1);
}

/// A weight, and the gradient it gets from a product computed by `forward`.
template <class Forward>
at::Tensor gradient_of(const Forward& forward) {
  auto weight = at::linspace(-1, 1, 16).view({4, 4}).clone().requires_grad_();  // a view would not be cached
  forward(at::linspace(0, 2, 16).view({4, 4}), weight).sum().backward();
  return weight.grad();
}

at::Tensor uncached_gradient(at::ScalarType dtype) {
  return gradient_of([dtype](const at::Tensor& x, const at::Tensor& weight) {
    const Autocast autocast(at::kCPU, dtype);
    return x.mm(weight);
  });
}

/// LibTorch before 2.11 took the cast that the first pass had cached without a graph (pytorch#112583, #142234).
TEST(Autocast, APassWithoutGradientsDoesNotCutOffTheNextOne) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const auto wanted = uncached_gradient(dtype);
    const auto plain = gradient_of([dtype](const at::Tensor& x, const at::Tensor& weight) {
      const Autocast autocast(at::kCPU, dtype);
      {
        const at::NoGradGuard no_grad;
        x.mm(weight);
      }
      return x.mm(weight);
    });
    const auto by_inference = gradient_of([dtype](const at::Tensor& x, const at::Tensor& weight) {
      const Autocast autocast(at::kCPU, dtype);
      {
        const c10::InferenceMode inference;
        x.mm(weight);
      }
      return x.mm(weight);
    });
    const auto nested = gradient_of([dtype](const at::Tensor& x, const at::Tensor& weight) {
      const Autocast autocast(at::kCPU, dtype);
      {
        const at::NoGradGuard no_grad;
        const Autocast inner(at::kCPU, dtype);
        x.mm(weight);
      }
      return x.mm(weight);
    });
    const auto within = gradient_of([dtype](const at::Tensor& x, const at::Tensor& weight) {
      const at::NoGradGuard no_grad;
      const Autocast autocast(at::kCPU, dtype);
      x.mm(weight);
      const at::AutoGradMode grad(true);
      const Autocast inner(at::kCPU, dtype);
      return x.mm(weight);
    });
    for (const auto& gradient : {plain, by_inference, nested, within}) {
      ASSERT_TRUE(gradient.defined()) << "the cast that was cached had no graph";
      EXPECT_TRUE(at::equal(gradient, wanted));
    }
  }
}

TEST(Autocast, EachTypeHasItsOwnCasts) {
  const auto x = at::ones({2, 2});
  const auto weight = at::ones({2, 2}).set_requires_grad(true);
  const Autocast outer(at::kCPU, at::kBFloat16);
  EXPECT_EQ(x.mm(weight).scalar_type(), at::kBFloat16);
  {
    const Autocast inner(at::kCPU, at::kHalf);
    EXPECT_EQ(x.mm(weight).scalar_type(), at::kHalf);
  }
  EXPECT_EQ(x.mm(weight).scalar_type(), at::kBFloat16);
}

TEST(Autocast, ARegionThatIsSwitchedOffComputesInFloat32AndKeepsTheCasts) {
  const auto x = at::ones({2, 2});
  const auto weight = at::ones({2, 2}).set_requires_grad(true);
  const Autocast outer(at::kCPU, at::kHalf);
  x.mm(weight);
  const auto held = weight.weak_use_count();
  {
    const Autocast off(at::kCPU, at::kFloat);
    EXPECT_EQ(x.mm(weight).scalar_type(), at::kFloat);
    const Autocast on_again(at::kCPU, at::kHalf);
    EXPECT_EQ(x.mm(weight).scalar_type(), at::kHalf);
  }
  EXPECT_EQ(weight.weak_use_count(), held);
}

TEST(Autocast, OfCudaNestsAsOnTheCpu) {
  {
    const Autocast half(at::kCUDA, at::kHalf);
    {
      const Autocast off(at::kCUDA, at::kFloat);
      EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
      const Autocast wide(at::kCUDA, at::kBFloat16);
      EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCUDA));
      EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), at::kBFloat16);
    }
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCUDA));
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCUDA), at::kHalf);
    EXPECT_EQ(type_of_product(), at::kFloat) << "the CPU's is another";
  }
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCUDA));
}

TEST(Autocast, SettingsOfOtherDevicesStay) {
  const Autocast autocast(at::kCUDA, at::kHalf);
  EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCUDA));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Autocast, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(Autocast(at::kMPS, at::kHalf), UsageError);
  EXPECT_THROW(Autocast(at::kCPU, at::kDouble), UsageError);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}
}  // namespace
}  // namespace cinch::techniques
