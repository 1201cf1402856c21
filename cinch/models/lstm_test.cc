#include "cinch/models/lstm.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "cinch/models/internal/training_test.h"

namespace cinch::models {
namespace {

job::LstmConfig tiny(bool tied = false) {
  return {.layers = 2, .hidden_size = 16, .context_length = 12, .vocab_size = 60, .tie_weights = tied};
}

data::Batch batch() {
  const auto tokens = at::arange(3 * 13).remainder(7).view({3, 13});
  return {tokens.narrow(1, 0, 12), tokens.narrow(1, 1, 12).contiguous(), 36};
}

TEST(Lstm, HasAParameterForEveryGateAndWord) {
  std::int64_t count = 0;
  for (const auto& parameter : Lstm(tiny()).parameters()) count += parameter.numel();
  EXPECT_EQ(count, 60 * 16 + 2 * 4 * (16 * 16 + 16 * 16 + 2 * 16) + 60 * 17);
  EXPECT_EQ(Lstm(tiny(true)).named_parameters().size(), 1u + 2 * 4);
}

TEST(Lstm, DoesNotLookAhead) {
  at::manual_seed(2);
  Lstm model(tiny());
  const at::NoGradGuard no_grad;
  auto tokens = batch().inputs.clone();
  const auto before = model.logits(model.hidden(tokens));
  EXPECT_EQ(before.sizes(), (std::vector<std::int64_t>{3, 12, 60}));
  tokens.select(1, 7).add_(1);
  const auto change = (model.logits(model.hidden(tokens)) - before).abs().amax({0, 2});
  EXPECT_EQ(change.narrow(0, 0, 7).max().item<double>(), 0);
  EXPECT_GT(change.narrow(0, 7, 5).min().item<double>(), 0);
}

TEST(Lstm, Trains) {
  for (const bool tied : {false, true}) {
    at::manual_seed(3);
    Lstm model(tiny(tied));
    internal::expect_training(model, batch(), 0.5);
  }
}

TEST(Lstm, ALossInChunksIsTheSameLoss) {
  at::manual_seed(4);
  Lstm model(tiny());
  const double whole = model.loss_sum(batch()).item<double>();
  model.set_loss_chunk_size(5);
  EXPECT_NEAR(model.loss_sum(batch()).item<double>(), whole, 1e-5 * whole);
}
}  // namespace
}  // namespace cinch::models
