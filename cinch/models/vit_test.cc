#include "cinch/models/vit.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "cinch/core/error.h"
#include "cinch/models/internal/training_test.h"

namespace cinch::models {
namespace {

job::VitConfig tiny(std::int64_t classes) {
  return {.layers = 2,
          .hidden_size = 16,
          .heads = 4,
          .intermediate_size = 24,
          .patch_size = 4,
          .image_size = 8,
          .channels = 3,
          .classes = classes};
}

TEST(Vit, HasATokenForEveryPatchAndOneForTheClass) {
  Vit model(tiny(5));
  const auto images = at::randn({2, 3, 8, 8});
  EXPECT_EQ(model.hidden(images).sizes(), (std::vector<std::int64_t>{2, 5, 16}));
  EXPECT_EQ(model.forward(images).sizes(), (std::vector<std::int64_t>{2, 5}));
}

TEST(Vit, WithoutClassesGivesTheClassToken) {
  Vit model(tiny(0));
  const auto images = at::randn({2, 3, 8, 8});
  EXPECT_TRUE(at::equal(model.forward(images), model.hidden(images).select(1, 0)));
  EXPECT_THROW(model.loss_sum({images, at::zeros({2}, at::kLong), 2}), UsageError);
}

TEST(Vit, SeesEveryPatch) {
  at::manual_seed(2);
  Vit model(tiny(5));
  auto images = at::randn({1, 3, 8, 8}).requires_grad_();
  model.forward(images).sum().backward();
  EXPECT_GT(images.grad().abs().amax({0, 1}).min().item<double>(), 0);
}

TEST(Vit, Trains) {
  at::manual_seed(4);
  Vit model(tiny(5));
  internal::expect_training(model, {at::randn({4, 3, 8, 8}), at::randint(5, {4}), 4});
}

}  // namespace
}  // namespace cinch::models
