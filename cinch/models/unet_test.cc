#include "cinch/models/unet.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "cinch/models/internal/training_test.h"

namespace cinch::models {
namespace {

job::UnetConfig tiny() { return {.base_channels = 4, .levels = 2, .classes = 3, .channels = 2, .image_size = 16}; }

TEST(Unet, ScoresEveryPixel) {
  Unet model(tiny());
  EXPECT_EQ(model.forward(at::randn({2, 2, 16, 8})).sizes(), (std::vector<std::int64_t>{2, 3, 16, 8}));
  const auto parameters = model.named_parameters();
  EXPECT_EQ(parameters["down.2.conv2.weight"].sizes(), (std::vector<std::int64_t>{16, 16, 3, 3}));
  EXPECT_EQ(parameters["up.0.up.weight"].sizes(), (std::vector<std::int64_t>{16, 8, 2, 2}));
  EXPECT_EQ(parameters["up.1.conv.conv1.weight"].sizes(), (std::vector<std::int64_t>{4, 8, 3, 3}));
}

TEST(Unet, PassesDetailAroundTheSmallLevels) {
  // With the way up cut off, only the skip connections tell one pixel from another.
  at::manual_seed(2);
  Unet model(tiny());
  model.eval();
  const at::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters()) {
    if (item.key().find(".up.") != std::string::npos) item.value().zero_();
  }
  auto images = at::randn({1, 2, 16, 16});
  const auto before = model.forward(images);
  images.select(2, 3).select(2, 5).add_(1);
  const auto change = (model.forward(images) - before).abs().amax({0, 1});
  EXPECT_GT(change[3][5].item<double>(), 0);
  EXPECT_EQ(change[15][15].item<double>(), 0);
}

TEST(Unet, Trains) {
  at::manual_seed(4);
  Unet model(tiny());
  internal::expect_training(model, {at::randn({2, 2, 16, 16}), at::randint(3, {2, 16, 16}), 512});
}

}  // namespace
}  // namespace cinch::models
