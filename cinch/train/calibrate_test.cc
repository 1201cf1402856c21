#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "cinch/train/train.h"

namespace cinch::train {
namespace {

TEST(Calibrate, OpsWithACurveOfTheirOwnHaveRisingSizes) {
  const plan::Calibration calibration = calibrate();
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_GT(calibration.launch.count(), 0);
  EXPECT_LT(calibration.launch.count(), 1e-2);
  EXPECT_GT(calibration.ops.count("aten::bernoulli_"), 0u);
  for (const auto& [op, points] : calibration.ops) {
    EXPECT_GE(points.size(), 1u) << op;
    for (std::size_t i = 0; i < points.size(); ++i) {
      EXPECT_GT(points[i].per_second, 0) << op;
      if (i > 0) {
        EXPECT_GT(points[i].size, points[i - 1].size) << op;
      }
    }
  }
}
}  // namespace
}  // namespace cinch::train
