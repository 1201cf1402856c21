#include "cinch/models/model.h"

#include <cmath>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/modules/conv.h>

#include "cinch/techniques/call.h"

namespace cinch::models {
namespace {

using plan::ActivationPolicy;
using testing::ElementsAre;
using testing::IsSupersetOf;

job::GptConfig tiny_gpt() {
  return {.layers = 3,
          .hidden_size = 16,
          .heads = 2,
          .context_length = 12,
          .vocab_size = 300,
          .dropout = 0.1,
          .attention_dropout = 0.1,
          .tie_weights = true};
}
job::ResNetConfig tiny_resnet() { return {.depth = 18, .classes = 5, .channels = 3, .image_size = 16}; }
job::MlpConfig tiny_mlp() { return {.sizes = {12, 16, 16, 4}, .dropout = 0.2}; }

data::Batch text_batch(std::int64_t rows, std::int64_t length, std::int64_t vocab) {
  return {at::randint(vocab, {rows, length}), at::randint(vocab, {rows, length}), rows * length};
}
data::Batch image_batch() { return {at::randn({4, 3, 16, 16}), at::randint(5, {4}), 4}; }

data::Batch batch_for(const job::ModelConfig& config) {
  if (std::holds_alternative<job::GptConfig>(config)) return text_batch(3, 12, 300);
  if (std::holds_alternative<job::ResNetConfig>(config)) return image_batch();
  return {at::randn({6, 12}), at::randint(4, {6}), 6};
}

std::int64_t parameters_of(const Model& model) {
  std::int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  return count;
}

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) names.push_back(item.key());
  for (const auto& item : model.named_buffers()) names.push_back(item.key());
  return names;
}

/// Plain gradient descent with `activations` checkpointed; parameters and buffers afterwards.
std::vector<at::Tensor> train(const job::ModelConfig& config,
                              const std::map<std::string, ActivationPolicy>& activations, int steps = 20,
                              bool bf16 = false) {
  at::manual_seed(11);
  const auto model = build(config);
  techniques::CallPolicies policies(*model, activations);
  const techniques::UseCallPolicies use(policies);
  for (int i = 0; i < steps; ++i) {
    const auto batch = batch_for(config);
    if (bf16) {
      at::autocast::increment_nesting();
      at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
      at::autocast::set_autocast_enabled(at::kCPU, true);
    }
    const auto loss = model->loss_sum(batch) / batch.target_count;
    if (bf16) {
      at::autocast::set_autocast_enabled(at::kCPU, false);
      if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    }
    loss.backward();
    const at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) {
      parameter.sub_(parameter.grad(), 0.05);
      parameter.mutable_grad().reset();
    }
  }
  auto result = model->parameters();
  for (auto& buffer : model->buffers()) result.push_back(buffer);
  return result;
}

void expect_equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << "tensor " << i;
}

TEST(Gpt, HasTheParametersOfTheFormula) {
  // V tokens, C positions, L layers of width H. A layer: qkv 3H²+3H, proj H²+H, fc 4H²+4H, proj 4H²+H, two norms 4H.
  // GPT-2 small (50257, 1024, 12, 768): 124,439,808.
  const auto count = [](std::int64_t v, std::int64_t c, std::int64_t l, std::int64_t h) {
    return v * h + c * h + l * (12 * h * h + 13 * h) + 2 * h;
  };
  EXPECT_EQ(count(50257, 1024, 12, 768), 124439808);
  auto config = tiny_gpt();
  EXPECT_EQ(parameters_of(*build(config)), count(300, 12, 3, 16));
  config.tie_weights = false;
  EXPECT_EQ(parameters_of(*build(config)), count(300, 12, 3, 16) + 300 * 16);
}

TEST(Gpt, StartsAsGpt2Does) {
  at::manual_seed(1);
  auto config = tiny_gpt();
  config.hidden_size = 64;
  const auto model = build(config);
  const auto parameters = model->named_parameters();
  EXPECT_NEAR(parameters["layers.0.attention.qkv.weight"].std().item<double>(), 0.02, 0.001);
  EXPECT_NEAR(parameters["layers.2.mlp.proj.weight"].std().item<double>(), 0.02 / std::sqrt(6.0), 0.001);
  EXPECT_NEAR(parameters["wte.weight"].std().item<double>(), 0.02, 0.001);
  EXPECT_EQ(parameters["layers.1.mlp.fc.bias"].abs().max().item<double>(), 0);
  model->eval();
  const auto batch = text_batch(4, 12, 300);
  const auto loss = model->loss_sum(batch);
  EXPECT_EQ(loss.scalar_type(), at::kFloat);
  EXPECT_EQ(loss.dim(), 0);
  EXPECT_NEAR(loss.item<double>() / 48, std::log(300.0), 0.1);
}

TEST(Gpt, DoesNotLookAhead) {
  const auto model = build(tiny_gpt());
  model->eval();
  auto batch = text_batch(1, 12, 300);
  const auto loss_of_first = [&] {
    auto first = batch;
    first.targets = batch.targets.clone();
    first.targets.narrow(1, 6, 6).fill_(data::kIgnored);
    return model->loss_sum(first).item<float>();
  };
  const auto before = loss_of_first();
  batch.inputs.narrow(1, 6, 6).fill_(7);
  EXPECT_FLOAT_EQ(loss_of_first(), before);
}

TEST(Gpt, DoesNotCountIgnoredTargets) {
  const auto model = build(tiny_gpt());
  model->eval();
  const auto batch = text_batch(2, 12, 300);
  auto first = batch, second = batch;
  first.targets = batch.targets.clone();
  first.targets[0].fill_(data::kIgnored);
  second.targets = batch.targets.clone();
  second.targets[1].fill_(data::kIgnored);
  EXPECT_FLOAT_EQ((model->loss_sum(first) + model->loss_sum(second)).item<float>(),
                  model->loss_sum(batch).item<float>());
}

TEST(Gpt, TrainsToTheSameWeightsCheckpointed) {
  const auto config = tiny_gpt();
  const std::map<std::string, ActivationPolicy> all{{"layers.0", ActivationPolicy::kCheckpoint},
                                                    {"layers.1", ActivationPolicy::kCheckpoint},
                                                    {"layers.1.mlp", ActivationPolicy::kCheckpoint},
                                                    {"layers.2.attention", ActivationPolicy::kCheckpoint}};
  expect_equal(train(config, {}), train(config, all));
  expect_equal(train(config, {}, 20, /*bf16=*/true), train(config, all, 20, /*bf16=*/true));
}

TEST(ResNet, IsTorchvisionsResNet18) {
  const auto full = build(job::ResNetConfig{.depth = 18, .classes = 1000, .channels = 3, .image_size = 224});
  EXPECT_EQ(parameters_of(*full), 11689512);
  EXPECT_THAT(names_of(*full),
              IsSupersetOf({"conv1.weight", "bn1.running_mean", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight",
                            "layer2.0.downsample.1.bias", "layer4.1.bn2.num_batches_tracked", "fc.bias"}));
}

TEST(ResNet, HasTheParametersOfTorchvisions) {
  const std::map<std::int64_t, std::int64_t> known{{34, 21797672}, {50, 25557032}, {101, 44549160}, {152, 60192808}};
  for (const auto& [depth, parameters] : known) {
    const auto model = build(job::ResNetConfig{.depth = depth, .classes = 1000, .channels = 3, .image_size = 224});
    EXPECT_EQ(parameters_of(*model), parameters) << depth;
  }
}

TEST(ResNet, BottlenecksStrideInTheirSecondConvolution) {
  const auto model = build(job::ResNetConfig{.depth = 50, .classes = 5, .channels = 3, .image_size = 32});
  EXPECT_THAT(names_of(*model),
              IsSupersetOf({"layer1.0.conv3.weight", "layer1.0.downsample.0.weight", "layer4.2.bn3.bias"}));
  const auto stride_of = [&](const char* path) {
    return model->named_modules()[path]->as<torch::nn::Conv2d>()->options.stride()->at(0);
  };
  EXPECT_EQ(stride_of("layer2.0.conv1"), 1);
  EXPECT_EQ(stride_of("layer2.0.conv2"), 2);
  EXPECT_EQ(stride_of("layer2.0.downsample.0"), 2);
}

TEST(ResNet, BottlenecksTrainToTheSameWeightsCheckpointed) {
  const job::ResNetConfig config{.depth = 50, .classes = 5, .channels = 3, .image_size = 16};
  const std::map<std::string, ActivationPolicy> some{{"layer1.0", ActivationPolicy::kCheckpoint},
                                                     {"layer3.5", ActivationPolicy::kCheckpoint}};
  expect_equal(train(config, {}, 2), train(config, some, 2));
}

TEST(ResNet, TrainsToTheSameWeightsAndStatisticsCheckpointed) {
  std::map<std::string, ActivationPolicy> all;
  for (const auto* path : {"layer1.0", "layer1.1", "layer2.0", "layer3.1", "layer4.0", "layer4.1"}) {
    all[path] = ActivationPolicy::kCheckpoint;
  }
  expect_equal(train(tiny_resnet(), {}, 3), train(tiny_resnet(), all, 3));
}

TEST(Mlp, HasTheParametersOfTheFormula) {
  EXPECT_EQ(parameters_of(*build(tiny_mlp())), (12 * 16 + 16) + (16 * 16 + 16) + (16 * 4 + 4));
  EXPECT_EQ(parameters_of(*build(job::MlpConfig{.sizes = {12, 4}})), 12 * 4 + 4);
}

TEST(Mlp, FlattensImagesAndTrainsToTheSameWeightsCheckpointed) {
  const auto model = build(tiny_mlp());
  EXPECT_GT(model->loss_sum({at::randn({2, 3, 2, 2}), at::zeros({2}, at::kLong), 2}).item<float>(), 0);
  expect_equal(train(tiny_mlp(), {}), train(tiny_mlp(), {{"layers.0", ActivationPolicy::kCheckpoint}}));
}

TEST(Models, OfferTheirBlocksToThePlanner) {
  const auto called = [](const job::ModelConfig& config) {
    const auto model = build(config);
    techniques::CallPolicies policies(*model, {});
    const techniques::UseCallPolicies use(policies);
    static_cast<void>(model->loss_sum(batch_for(config)));
    return policies.called();
  };
  EXPECT_THAT(called(tiny_gpt()), ElementsAre("layers.0", "layers.1", "layers.2"));
  EXPECT_THAT(called(tiny_resnet()), ElementsAre("layer1.0", "layer1.1", "layer2.0", "layer2.1", "layer3.0", "layer3.1",
                                                 "layer4.0", "layer4.1"));
  EXPECT_THAT(called(tiny_mlp()), ElementsAre("layers.0", "layers.1"));
}

TEST(Models, GiveEveryParameterAGradient) {
  auto untied = tiny_gpt();
  untied.tie_weights = false;
  for (const job::ModelConfig& config : {job::ModelConfig(tiny_gpt()), job::ModelConfig(untied),
                                         job::ModelConfig(tiny_resnet()), job::ModelConfig(tiny_mlp())}) {
    const auto model = build(config);
    model->loss_sum(batch_for(config)).backward();
    for (const auto& item : model->named_parameters()) EXPECT_TRUE(item.value().grad().defined()) << item.key();
  }
}

TEST(Sample, DependsOnItsSeedAlone) {
  at::manual_seed(4);
  const auto model = build(tiny_gpt());
  model->train();
  model->named_children()["dropout"]->eval();
  const auto generator = at::detail::getDefaultCPUGenerator().get_state();
  const auto first = write_sample(*model, "ab", 40, 1);  // longer than the context
  EXPECT_EQ(first.size(), 40u);
  EXPECT_EQ(write_sample(*model, "ab", 40, 1), first);
  EXPECT_NE(write_sample(*model, "ab", 40, 2), first);
  EXPECT_TRUE(at::equal(generator, at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_TRUE(model->is_training());
  EXPECT_FALSE(model->named_children()["dropout"]->is_training());
  EXPECT_TRUE(model->named_children()["layers"]->is_training());
}

TEST(Sample, AtTemperatureZeroIsTheLikeliestByte) {
  const auto model = build(tiny_gpt());
  EXPECT_EQ(write_sample(*model, "", 8, 1, 0), write_sample(*model, "", 8, 2, 0));
}

TEST(Sample, IsEmptyForAModelThatDoesNotWrite) {
  EXPECT_EQ(write_sample(*build(tiny_mlp()), "a", 4, 1), "");
  auto config = tiny_gpt();
  config.vocab_size = 10;
  EXPECT_EQ(write_sample(*build(config), "a", 4, 1), "");
}

}  // namespace
}  // namespace cinch::models
