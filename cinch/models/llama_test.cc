#include "cinch/models/llama.h"

#include <memory>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "cinch/models/internal/training_test.h"

namespace cinch::models {
namespace {

job::LlamaConfig tiny(bool tied = false) {
  return {.layers = 2,
          .hidden_size = 16,
          .heads = 4,
          .intermediate_size = 24,
          .key_value_heads = 2,
          .context_length = 12,
          .vocab_size = 300,
          .tie_weights = tied};
}

data::Batch batch() { return {at::randint(300, {3, 12}), at::randint(300, {3, 12}), 36}; }

TEST(Llama, ScoresEveryWordAtEveryPosition) {
  Llama model(tiny());
  const auto hidden = model.hidden(batch().inputs);
  EXPECT_EQ(hidden.sizes(), (std::vector<std::int64_t>{3, 12, 16}));
  EXPECT_EQ(model.logits(hidden).sizes(), (std::vector<std::int64_t>{3, 12, 300}));
}

TEST(Llama, DoesNotLookAhead) {
  at::manual_seed(2);
  Llama model(tiny());
  const at::NoGradGuard no_grad;
  auto tokens = batch().inputs;
  const auto before = model.logits(model.hidden(tokens));
  tokens.select(1, 7).add_(1).remainder_(300);
  const auto change = (model.logits(model.hidden(tokens)) - before).abs().amax({0, 2});
  EXPECT_LT(change.narrow(0, 0, 7).max().item<double>(), 1e-6);
  EXPECT_GT(change.narrow(0, 7, 5).min().item<double>(), 1e-6);
}

TEST(Llama, ReadsOrderFromDistancesAlone) {
  at::manual_seed(3);
  Llama model(tiny());
  const at::NoGradGuard no_grad;
  auto tokens = at::randint(300, {1, 12});
  const auto last = [&] { return model.hidden(tokens).select(1, 11).clone(); };
  const auto before = last();
  tokens.narrow(1, 2, 2).copy_(tokens.narrow(1, 2, 2).flip(1).clone());
  EXPECT_GT((last() - before).abs().max().item<double>(), 1e-5) << "two words changed places";
  // The same word everywhere: no distance matters, so neither does the position.
  tokens.fill_(5);
  const auto hidden = model.hidden(tokens);
  EXPECT_LT((hidden.select(1, 3) - hidden.select(1, 9)).abs().max().item<double>(), 1e-5);
}

TEST(Llama, UnsaidSizesFollowFromTheOthers) {
  auto config = tiny();
  config.key_value_heads = 0;
  Llama model(config);
  EXPECT_EQ(model.named_parameters()["layers.1.self_attn.k_proj.weight"].sizes(), (std::vector<std::int64_t>{16, 16}));
}

TEST(Llama, DoesNotTrainPadding) {
  auto config = tiny();
  config.padding_token = 2;
  Llama model(config);
  const at::Tensor words = model.named_parameters()["embed_tokens.weight"];
  EXPECT_EQ(words[2].count_nonzero().item<int>(), 0);
  model.hidden(at::arange(4).unsqueeze(0)).square().sum().backward();
  const auto per_token = words.grad().ne(0).sum(1);
  for (std::int64_t token = 0; token < 4; ++token) EXPECT_EQ(per_token[token].item<int>() > 0, token != 2) << token;
}

TEST(Llama, Trains) {
  for (const bool tied : {false, true}) {
    at::manual_seed(4);
    Llama model(tiny(tied));
    internal::expect_training(model, batch());
  }
}

TEST(Llama, WritesSamples) {
  const auto model = std::make_shared<Llama>(tiny());
  const auto text = write_sample(*model, "ab", 20, 1);
  EXPECT_EQ(text.size(), 20u);
  EXPECT_EQ(write_sample(*model, "ab", 20, 1), text);
}

}  // namespace
}  // namespace cinch::models
