#include "cinch/models/bert.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "cinch/models/internal/training_test.h"

namespace cinch::models {
namespace {

job::BertConfig tiny(std::int64_t classes) {
  return {.layers = 2,
          .hidden_size = 16,
          .heads = 4,
          .intermediate_size = 24,
          .context_length = 12,
          .vocab_size = 30,
          .classes = classes};
}

TEST(Bert, ScoresWordsOrClasses) {
  const auto tokens = at::randint(30, {3, 8});
  Bert masked(tiny(0)), classifier(tiny(5));
  const auto hidden = masked.hidden(tokens);
  EXPECT_EQ(hidden.sizes(), (std::vector<std::int64_t>{3, 8, 16}));
  EXPECT_EQ(masked.logits(hidden).sizes(), (std::vector<std::int64_t>{3, 8, 30}));
  EXPECT_EQ(classifier.logits(classifier.hidden(tokens)).sizes(), (std::vector<std::int64_t>{3, 5}));
}

TEST(Bert, LooksBothWaysButNotAtPadding) {
  at::manual_seed(2);
  Bert model(tiny(0));
  model.eval();
  const at::NoGradGuard no_grad;
  auto tokens = at::randint(30, {2, 8});
  const auto mask = at::ones({2, 8}, at::kLong);
  mask.narrow(1, 6, 2).zero_();
  const auto free = model.hidden(tokens), masked = model.hidden(tokens, mask);
  tokens.narrow(1, 6, 2).add_(1).remainder_(30);
  const auto change_of_first = [](const at::Tensor& left, const at::Tensor& right) {
    return (left - right).narrow(1, 0, 6).abs().max().item<double>();
  };
  EXPECT_GT(change_of_first(model.hidden(tokens), free), 1e-5);
  EXPECT_LT(change_of_first(model.hidden(tokens, mask), masked), 1e-6);
}

TEST(Bert, DropsOutInTrainingAlone) {
  at::manual_seed(3);
  Bert model(tiny(0));
  const at::NoGradGuard no_grad;
  const auto tokens = at::randint(30, {2, 8});
  EXPECT_FALSE(at::equal(model.hidden(tokens), model.hidden(tokens)));
  model.eval();
  EXPECT_TRUE(at::equal(model.hidden(tokens), model.hidden(tokens)));
}

TEST(Bert, DoesNotTrainPadding) {
  for (const std::int64_t padding : {-1, 3}) {
    at::manual_seed(5);
    auto config = tiny(5);
    config.padding_token = padding;
    Bert model(config);
    const at::Tensor words = model.named_parameters()["embeddings.word_embeddings.weight"];
    EXPECT_EQ(words[3].count_nonzero().item<int>(), padding < 0 ? 16 : 0);
    const auto tokens = at::arange(8).expand({2, 8});
    model.loss_sum({tokens, at::zeros({2}, at::kLong), 2}).backward();
    const auto per_token = words.grad().ne(0).sum(1);
    for (std::int64_t token = 0; token < 8; ++token)
      EXPECT_EQ(per_token[token].item<int>() > 0, token != padding) << token;
  }
}

TEST(Bert, Trains) {
  for (const std::int64_t classes : {0, 5}) {
    at::manual_seed(4);
    auto config = tiny(classes);
    config.dropout = config.attention_dropout = 0;
    Bert model(config);
    const auto tokens = at::randint(30, {4, 8});
    data::Batch batch{tokens, at::randint(5, {4}), 4};
    if (classes == 0) {
      batch.targets = tokens.clone();
      batch.targets.narrow(1, 2, 6).fill_(data::kIgnored);
      batch.target_count = 8;
    }
    internal::expect_training(model, batch);
  }
}

}  // namespace
}  // namespace cinch::models
