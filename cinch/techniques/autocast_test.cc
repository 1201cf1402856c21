#include "cinch/techniques/autocast.h"

#include <stdexcept>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

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
    const at::NoGradGuard no_grad;  // No graph holds anything: only the cache can.
    const Autocast outer(at::kCPU, at::kBFloat16);
    {
      const at::AutoGradMode grad(true);
      const Autocast inner(at::kCPU, at::kBFloat16);
      x.mm(weight);
    }
    EXPECT_GT(weight.use_count() + weight.weak_use_count(), before + 1);
  }
  EXPECT_EQ(weight.use_count(), before);
  EXPECT_EQ(weight.weak_use_count(), 1);
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
