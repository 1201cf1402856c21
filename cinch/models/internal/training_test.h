#pragma once
// What every model must do: for the tests here.

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "cinch/models/model.h"

namespace cinch::models::internal {

/// A gradient reaches every parameter, the loss is a float32 scalar, ignored targets do not count, and plain gradient
/// descent on one batch lowers the loss.
inline void expect_training(Model& model, const data::Batch& batch, double rate = 0.1) {
  double first = 0, last = 0;
  for (int step = 0; step < 8; ++step) {
    const auto loss = model.loss_sum(batch);
    ASSERT_EQ(loss.scalar_type(), at::kFloat);
    ASSERT_EQ(loss.dim(), 0);
    last = loss.item<double>() / static_cast<double>(batch.target_count);
    if (step == 0) first = last;
    (loss / batch.target_count).backward();
    const at::NoGradGuard no_grad;
    for (const auto& item : model.named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key();
      item.value().sub_(item.value().grad(), rate);
      item.value().mutable_grad().reset();
    }
  }
  EXPECT_LT(last, first - 0.01);
  auto none = batch;
  none.targets = at::full_like(batch.targets, data::kIgnored);
  EXPECT_EQ(model.loss_sum(none).item<float>(), 0);
}
}  // namespace cinch::models::internal
