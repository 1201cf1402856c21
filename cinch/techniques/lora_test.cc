#include "cinch/techniques/lora.h"

#include <string>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "cinch/core/error.h"
#include "cinch/techniques/activation_checkpoint.h"
#include "cinch/techniques/autocast.h"
#include "cinch/techniques/linear_cross_entropy.h"

namespace cinch::techniques {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace nn = torch::nn;

/// As somebody would write it who has never heard of us; the head is the embedding.
struct NetImpl final : nn::Module {
  NetImpl() {
    at::manual_seed(2);
    words = register_module("words", nn::Embedding(50, 64));
    up = register_module("up", nn::Linear(64, 96));
    down = register_module("down", nn::Linear(nn::LinearOptions(96, 64).bias(false)));
  }
  at::Tensor features(const at::Tensor& tokens) {
    const auto x = words->forward(tokens);
    return x + down->forward(up->forward(x).relu());
  }
  at::Tensor forward(const at::Tensor& tokens) { return at::linear(features(tokens), words->weight); }
  nn::Embedding words{nullptr};
  nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Net);

const at::Tensor& tokens() {
  static const at::Tensor tokens = at::arange(24).remainder(50).view({4, 6});
  return tokens;
}
const at::Tensor& rows() {
  static const at::Tensor rows = at::arange(7);  // two dimensions inside: Linear's other way
  return rows;
}

double relative_difference(const at::Tensor& left, const at::Tensor& right) {
  return ((left - right).norm() / right.norm()).item<double>();
}

/// Adapters as after training: nothing in them is zero.
void draw(const Lora& lora) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : lora.parameters()) parameter.normal_(0, 0.1);
}

const std::vector<std::string> kAll{"words", "up", "down"};

TEST(Lora, ChangesNothingAtFirst) {
  for (const bool autocasts : {false, true}) {
    Net net;
    const auto forward = [&](const at::Tensor& input) {
      std::optional<Autocast> autocast;
      if (autocasts) autocast.emplace(at::kCPU, at::kBFloat16);
      return net->forward(input).detach();
    };
    const auto before = forward(tokens()), before_rows = forward(rows());
    const Lora lora(*net, {.targets = kAll, .dropout = 0.3});
    EXPECT_TRUE(at::equal(forward(tokens()), before));
    EXPECT_TRUE(at::equal(forward(rows()), before_rows));
  }
}

/// The formula, over plain tensors.
at::Tensor by_formula(const NetImpl& net, const std::vector<at::Tensor>& adapters, double scaling,
                      const at::Tensor& input) {
  const auto plain = [](const at::Tensor& weight) { return weight.detach().clone(); };
  const auto words = plain(net.words->weight) + scaling * at::matmul(adapters[1], adapters[0]).t();
  const auto x = at::embedding(words, input);
  const auto up =
      at::linear(x, plain(net.up->weight) + scaling * at::matmul(adapters[3], adapters[2]), plain(net.up->bias));
  const auto down = at::linear(up.relu(), plain(net.down->weight) + scaling * at::matmul(adapters[5], adapters[4]));
  return at::linear(x + down, plain(net.words->weight));
}

class LoraTraining : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Checkpointed, LoraTraining, testing::Bool());

TEST_P(LoraTraining, GivesTheGradientsOfTheFormula) {
  Net net;
  const Lora lora(*net, {.targets = kAll, .rank = 4, .alpha = 6});
  draw(lora);
  for (const auto& input : {tokens(), rows()}) {
    for (auto& parameter : lora.parameters()) parameter.mutable_grad().reset();
    const auto loss =
        GetParam() ? checkpoint([&](const at::Tensor& t) { return net->forward(t); }, input) : net->forward(input);
    loss.square().sum().backward();
    std::vector<at::Tensor> adapters;
    for (const auto& parameter : lora.parameters()) adapters.push_back(parameter.detach().clone().requires_grad_());
    const auto expected = by_formula(*net, adapters, 6.0 / 4, input);
    expected.square().sum().backward();
    EXPECT_LT(relative_difference(loss, expected), 1e-6);
    for (std::size_t i = 0; i < adapters.size(); ++i) {
      EXPECT_LT(relative_difference(lora.parameters()[i].grad(), adapters[i].grad()), 2e-6) << i;
    }
    for (const auto& weight : {net->words->weight, net->up->weight, net->up->bias, net->down->weight}) {
      EXPECT_FALSE(weight.requires_grad());
      EXPECT_FALSE(weight.grad().defined());
    }
  }
}

TEST(Lora, ItsParametersAreTheModelsThatTrain) {
  Net net;
  const Lora lora(*net, {.targets = {"up", "words"}, .rank = 4});
  EXPECT_THAT(lora.paths(), ElementsAre("words", "up"));
  std::vector<std::string> names;
  for (const auto& item : net->named_parameters()) {
    if (item.value().requires_grad()) names.push_back(item.key());
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("words.lora_embedding_A", "words.lora_embedding_B",
                                                   "up.lora_A.weight", "up.lora_B.weight"));
  EXPECT_EQ(lora.parameters().size(), 4);
}

TEST(Lora, DropsOutInTrainingAlone) {
  Net net;
  const Lora lora(*net, {.targets = {"up"}, .dropout = 0.5});
  draw(lora);
  const auto forward = [&] { return net->forward(tokens()).detach(); };
  EXPECT_FALSE(at::equal(forward(), forward()));
  net->eval();
  EXPECT_TRUE(at::equal(forward(), forward()));
  const auto merged = [&] {
    Lora again = lora;
    again.merge();
    auto out = forward();
    again.unmerge();
    return out;
  };
  EXPECT_LT(relative_difference(forward(), merged()), 1e-6);
}

TEST(Lora, MergesAndUnmergesBitwise) {
  Net net;
  Lora lora(*net, {.targets = kAll, .rank = 4});
  draw(lora);
  const auto before = net->forward(tokens()).detach();
  const auto weight = net->down->weight.detach().clone(), words = net->words->weight.detach().clone();
  const auto features = net->features(tokens()).detach();
  lora.merge();
  EXPECT_FALSE(at::equal(net->down->weight, weight));
  EXPECT_LT(relative_difference(net->features(tokens()).detach(), features), 1e-6);
  EXPECT_THROW(lora.merge(), UsageError);
  EXPECT_THROW(lora.load(lora.tensors()), UsageError);
  lora.unmerge();
  EXPECT_TRUE(at::equal(net->down->weight, weight));
  EXPECT_TRUE(at::equal(net->words->weight, words));
  EXPECT_TRUE(at::equal(net->forward(tokens()).detach(), before));
  EXPECT_THROW(lora.unmerge(), UsageError);
}

struct Rounding {
  BaseWeights base;
  double bound;  ///< Of the output, relative.
};
class LoraRounded : public testing::TestWithParam<Rounding> {};
INSTANTIATE_TEST_SUITE_P(Base, LoraRounded,
                         testing::Values(Rounding{BaseWeights::kBFloat16, 4e-3}, Rounding{BaseWeights::kInt8, 1e-2}));

/// The gradients are those of the model whose weights are what is kept, exactly.
TEST_P(LoraRounded, TrainsWhatTheRoundedWeightsGive) {
  for (const bool autocasts : {false, true}) {
    Net net, rounded;
    {
      const at::NoGradGuard no_grad;
      const auto theirs = rounded->parameters();
      for (std::size_t i = 0; i < theirs.size(); ++i) theirs[i].copy_(net->parameters()[i]);
    }
    const auto exact = net->forward(tokens()).detach();
    const Lora lora(*net, {.targets = kAll, .rank = 4, .base = GetParam().base});
    EXPECT_LT(net->up->weight.element_size(), 4);
    EXPECT_LT(relative_difference(net->forward(tokens()).detach(), exact), GetParam().bound);
    EXPECT_FALSE(at::equal(net->forward(tokens()).detach(), exact));

    // What is kept, read off by the identity.
    const auto read = [](nn::Linear& linear) {
      const at::NoGradGuard no_grad;
      return at::linear(at::eye(linear->weight.size(1)), linear->weight).t().contiguous();
    };
    {
      const at::NoGradGuard no_grad;
      rounded->up->weight.copy_(read(net->up));
      rounded->down->weight.copy_(read(net->down));
      rounded->words->weight.copy_(net->words->forward(at::arange(50)));
    }
    const Lora same(*rounded, {.targets = kAll, .rank = 4});
    draw(lora);
    {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < same.parameters().size(); ++i) same.parameters()[i].copy_(lora.parameters()[i]);
    }
    std::optional<Autocast> autocast;
    if (autocasts) autocast.emplace(at::kCPU, at::kBFloat16);
    const auto left = net->forward(tokens()), right = rounded->forward(tokens());
    autocast.reset();
    EXPECT_LT(relative_difference(left.detach(), right.detach()), autocasts ? 1e-2 : 1e-6);
    left.to(at::kFloat).square().sum().backward();
    right.to(at::kFloat).square().sum().backward();
    for (std::size_t i = 0; i < same.parameters().size(); ++i) {
      EXPECT_LT(relative_difference(lora.parameters()[i].grad(), same.parameters()[i].grad()), autocasts ? 2e-2 : 2e-6)
          << i;
    }
  }
}

TEST_P(LoraRounded, KeepsItsAdaptersWhereAModelIsCast) {
  Net net;
  const Lora lora(*net, {.targets = kAll, .rank = 4, .base = GetParam().base});
  draw(lora);
  const auto before = net->forward(tokens()).detach();
  net->to(at::kDouble);
  const auto after = net->forward(tokens()).detach();
  EXPECT_EQ(after.scalar_type(), at::kDouble);
  EXPECT_LT(relative_difference(before.to(at::kDouble), after), 1e-6);
}

TEST_P(LoraRounded, RefusesToMerge) {
  Net net;
  Lora lora(*net, {.targets = {"up"}, .base = GetParam().base});
  EXPECT_THROW(lora.merge(), UsageError);
}

TEST(Lora, Int8IsWithinHalfAStepOfEachBlocksLargest) {
  nn::Sequential net(nn::Linear(nn::LinearOptions(130, 33).bias(false)),
                     nn::Linear(nn::LinearOptions(128, 9).bias(false)));
  const auto weight_of = [&](int i) { return net[i]->as<nn::Linear>()->weight; };
  std::vector<at::Tensor> before;
  {
    const at::NoGradGuard no_grad;
    weight_of(0).select(0, 4).zero_();
    weight_of(1).narrow(1, 0, 64).mul_(1000);  // blocks do not disturb one another
  }
  before.reserve(2);
  for (int i = 0; i < 2; ++i) before.push_back(weight_of(i).detach().clone());
  const Lora lora(*net, {.targets = {"*"}, .base = BaseWeights::kInt8});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(weight_of(i).scalar_type(), at::kChar);
    const at::NoGradGuard no_grad;
    const auto after = at::linear(at::eye(before[i].size(1)), weight_of(i)).t();
    const auto block = i == 0 ? 130 : 64;
    const auto largest = before[i].view({before[i].size(0), -1, block}).abs().amax(-1, true);
    const auto error = (after - before[i]).reshape({before[i].size(0), -1, block}).abs();
    EXPECT_TRUE(error.le(largest / 254 * 1.0001).all().item<bool>());
  }
}

TEST(Lora, IsSavedAndLoadedByPeftsNames) {
  Net net, other;
  const LoraOptions options{.targets = {"up", "words"}, .rank = 4, .prefix = "model."};
  const Lora lora(*net, options);
  Lora loaded(*other, options);
  draw(lora);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : lora.tensors()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("base_model.model.model.up.lora_A.weight", "base_model.model.model.up.lora_B.weight",
                                 "base_model.model.model.words.lora_embedding_A",
                                 "base_model.model.model.words.lora_embedding_B"));
  EXPECT_EQ(lora.tensors().begin()->second.sizes(), (std::vector<std::int64_t>{4, 64}));
  loaded.load(lora.tensors());
  EXPECT_TRUE(at::equal(net->forward(tokens()), other->forward(tokens())));
  EXPECT_THAT(lora.peft_config(), HasSubstr("\"lora_alpha\": 16.0"));
  EXPECT_THAT(lora.peft_config(), HasSubstr("model.up"));
}

TEST(Lora, LoadsAllOrNothing) {
  Net net;
  Lora lora(*net, {.targets = kAll, .rank = 4});
  std::map<std::string, at::Tensor> good;
  for (const auto& [name, tensor] : lora.tensors()) good[name] = at::ones_like(tensor);
  const auto message = [&](const auto& tensors) -> std::string {
    try {
      lora.load(tensors);
    } catch (const Error& error) {
      return error.what();
    }
    return "loaded";
  };
  auto bad = good;
  bad.erase("base_model.model.up.lora_B.weight");
  EXPECT_THAT(message(bad), HasSubstr("lack base_model.model.up.lora_B.weight"));
  bad = good;
  bad["base_model.model.up.lora_A.weight"] = at::ones({8, 64});
  EXPECT_THAT(message(bad), HasSubstr("[8, 64], expected Float [4, 64]"));
  bad["base_model.model.up.lora_A.weight"] = at::ones({4, 64}, at::kInt);
  EXPECT_THAT(message(bad), HasSubstr("Int [4, 64]"));
  bad = good;
  bad["base_model.model.gate.lora_A.weight"] = at::ones({4, 64});
  EXPECT_THAT(message(bad), HasSubstr("gate"));
  for (const auto& parameter : lora.parameters()) EXPECT_FALSE(at::equal(parameter, at::ones_like(parameter)));
  EXPECT_EQ(message(good), "loaded");
  for (const auto& parameter : lora.parameters()) EXPECT_TRUE(at::equal(parameter, at::ones_like(parameter)));
}

TEST(Lora, PatternsNamePathsEndsAndAnyText) {
  const auto chosen = [](std::vector<std::string> targets) {
    nn::ModuleList net(nn::ModuleList(nn::Linear(2, 3), nn::Linear(3, 2)), nn::Linear(2, 2));
    return Lora(*net, {.targets = std::move(targets)}).paths();
  };
  EXPECT_THAT(chosen({"1"}), ElementsAre("0.1", "1"));
  EXPECT_THAT(chosen({"0.1"}), ElementsAre("0.1"));
  EXPECT_THAT(chosen({"0.*"}), ElementsAre("0.0", "0.1"));
  EXPECT_THAT(chosen({"*"}), ElementsAre("0.0", "0.1", "1"));
}

TEST(Lora, WhatCannotBeIsRefused) {
  Net net;
  const auto message = [&](const LoraOptions& options) -> std::string {
    try {
      const Lora lora(*net, options);
    } catch (const UsageError& error) {
      return std::string(error.what()) + " " + error.hint();
    }
    return "nothing";
  };
  EXPECT_THAT(message({}), HasSubstr("no targets"));
  EXPECT_THAT(message({.targets = {"dow"}}), HasSubstr("\"down\""));
  EXPECT_THAT(message({.targets = {"up"}, .rank = 0}), HasSubstr("rank 0"));
  EXPECT_THAT(message({.targets = {"up"}, .dropout = 1}), HasSubstr("dropout"));
  for (const auto& parameter : net->parameters()) EXPECT_TRUE(parameter.requires_grad()) << "nothing was done yet";
  EXPECT_EQ(message({.targets = {"up"}}), "nothing");
  EXPECT_THAT(message({.targets = {"up"}}), HasSubstr("an adapter already"));
  EXPECT_EQ(message({.targets = {"down"}}), "nothing");

  nn::Sequential twice(nn::Linear(4, 4), nn::Linear(4, 4));
  twice[1]->as<nn::Linear>()->weight = twice[0]->as<nn::Linear>()->weight;
  EXPECT_THROW(Lora(*twice, {.targets = {"*"}}), UsageError);
}

TEST(Lora, AWeightThatWasReplacedIsNoticed) {
  Net net;
  Lora lora(*net, {.targets = {"up"}});
  net->up->weight.set_data(at::ones_like(net->up->weight));
  EXPECT_THROW(lora.merge(), UsageError);
  EXPECT_THROW(lora.tensors(), UsageError);
}

TEST(Lora, SurvivesCasts) {
  for (const bool trained : {false, true}) {
    Net net;
    Lora lora(*net, {.targets = kAll, .rank = 4});
    draw(lora);
    net->up->weight.requires_grad_(trained);
    const auto before = net->forward(tokens()).detach();
    net->to(at::kDouble);
    EXPECT_EQ(lora.tensors().size(), 6u);
    EXPECT_LT(relative_difference(before.to(at::kDouble), net->forward(tokens()).detach()), 1e-6);
    net->forward(tokens()).square().sum().backward();
    for (const auto& parameter : lora.parameters()) EXPECT_EQ(parameter.grad().scalar_type(), at::kDouble);
    EXPECT_EQ(net->up->weight.grad().defined(), trained);
    const auto adapted = net->features(tokens()).detach();
    lora.merge();
    EXPECT_LT(relative_difference(net->features(tokens()).detach(), adapted), 1e-12);
    lora.unmerge();
  }
}

/// What a program makes of a weight that it trains keeps the graph.
TEST(Lora, ACopyOfAWeightThatIsTrainedHasItsGradient) {
  Net net;
  const Lora lora(*net, {.targets = {"up"}, .rank = 4});
  draw(lora);
  net->up->weight.requires_grad_();
  const auto with = at::linear(at::ones({2, 64}, at::kDouble), net->up->weight.to(at::kDouble));
  EXPECT_LT(relative_difference(net->up->forward(at::ones({2, 64})).to(at::kDouble) - net->up->bias, with), 1e-5);
  with.sum().backward();
  EXPECT_TRUE(at::equal(net->up->weight.grad(), at::full({96, 64}, 2.0)));
}

TEST(Lora, AnAdaptedLayerIsNotCloned) {
  for (const char* layer : {"0", "1"}) {
    nn::Sequential net(nn::Embedding(4, 4), nn::Linear(4, 4));
    const Lora lora(*net, {.targets = {layer}});
    EXPECT_THROW(net->clone(), c10::Error);
  }
}

/// As in PEFT: what stands for padding is not adapted either.
TEST(Lora, PaddingGetsNoAdapter) {
  nn::Sequential net(nn::Embedding(nn::EmbeddingOptions(6, 4).padding_idx(2)));
  const Lora lora(*net, {.targets = {"0"}, .rank = 3});
  draw(lora);
  net->forward(at::arange(6)).square().sum().backward();
  const auto per_token = lora.parameters()[0].grad().ne(0).sum(0);
  for (int token = 0; token < 6; ++token) EXPECT_EQ(per_token[token].item<int>() > 0, token != 2) << token;
}

TEST(Lora, TheChunkedLossDoesNotPassOverAnAdapter) {
  Net net;
  const Lora lora(*net, {.targets = {"up", "words"}});
  const auto targets = at::zeros({4, 6}, at::kLong);
  EXPECT_NO_THROW(linear_cross_entropy(net->features(tokens()), net->words->weight, {}, targets, {.chunk_size = 4}))
      << "tied to an embedding's: the adapter is the embedding's alone";
  EXPECT_THROW(linear_cross_entropy(at::randn({4, 6, 64}), net->up->weight, {}, targets, {.chunk_size = 4}),
               UsageError);
}

TEST(Lora, TheAdaptersOutliveTheirHandle) {
  Net net;
  at::Tensor with;
  {
    const Lora lora(*net, {.targets = kAll});
    draw(lora);
    with = net->forward(tokens()).detach();
  }
  EXPECT_TRUE(at::equal(net->forward(tokens()).detach(), with));
}

}  // namespace
}  // namespace cinch::techniques
