#include "cinch/optim/adamw_8bit.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/adamw_8bit_block.h"
#include "cinch/optim/internal/dynamic_map.h"

namespace cinch::optim {
namespace {
using internal::DynamicMap;
using testing::HasSubstr;
namespace nn = torch::nn;
using State = std::map<std::string, at::Tensor>;

// ---- the kernels
// -------------------------------------------------------------------------------------------------------

struct Block {
  std::vector<float> parameters, gradients;
  std::vector<std::uint8_t> first, second;
  float first_scale = 0.25F, second_scale = 1e-3F;
};

Block random_block(int count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> byte(0, 255);
  Block block;
  for (int i = 0; i < count; ++i) {
    block.parameters.push_back(normal(random));
    block.gradients.push_back(normal(random) * std::pow(10.0F, static_cast<float>(byte(random) % 12 - 9)));
    block.first.push_back(static_cast<std::uint8_t>(byte(random)));
    block.second.push_back(static_cast<std::uint8_t>(byte(random)));
  }
  return block;
}

constexpr internal::AdamWStep kStep{.beta1 = 0.9F,
                                    .beta2 = 0.99F,
                                    .weight1 = 0.1F,
                                    .weight2 = 0.01F,
                                    .step_size = 3e-3F,
                                    .inverse_correction2 = 1.7F,
                                    .eps = 1e-8F,
                                    .decay = 0.999F};

void run(internal::BlockStep kernel, Block& block, const internal::AdamWStep& step = kStep) {
  kernel(block.parameters.data(), block.gradients.data(),
         {block.first.data(), block.second.data(), &block.first_scale, &block.second_scale},
         static_cast<int>(block.parameters.size()), step);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(AdamW8bitKernels, AreTheSameToTheBit) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    auto start = random_block(round % 3 == 0 ? 256 : 1 + round * 7 % 300, random);
    if (round % 5 == 1) start.gradients[start.gradients.size() / 2] = std::numeric_limits<float>::infinity();
    if (round % 5 == 2) start.gradients.back() = std::nanf("");
    if (round % 5 == 3) start.first_scale = start.second_scale = 0;
    if (round % 5 == 4) start.gradients.assign(start.gradients.size(), 0);
    auto wanted = start;
    run(&internal::step_block_scalar, wanted);
    for (const auto& kernel : internal::block_steps()) {
      auto block = start;
      run(kernel.step, block);
      EXPECT_TRUE(same_bits(block.parameters, wanted.parameters)) << kernel.name << ", round " << round;
      EXPECT_EQ(block.first, wanted.first) << kernel.name << ", round " << round;
      EXPECT_EQ(block.second, wanted.second) << kernel.name << ", round " << round;
      EXPECT_EQ(block.first_scale, wanted.first_scale);
      EXPECT_EQ(block.second_scale, wanted.second_scale);
    }
  }
}

/// Numbers in [-1, 1] by way of gradients: with betas of 0 the new moments are gradient and square.
void expect_nearest_codes(const internal::NamedBlockStep& kernel, const std::vector<float>& numbers) {
  auto step = kStep;
  step.beta1 = step.beta2 = 0;
  step.weight1 = step.weight2 = 1;
  for (std::size_t begin = 0; begin < numbers.size(); begin += 255) {
    Block block;
    block.gradients.assign(256, 0);
    block.gradients[255] = 1;  // The scale.
    std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(begin),
                std::min<std::size_t>(255, numbers.size() - begin), block.gradients.begin());
    block.parameters.assign(256, 0);
    block.first.assign(256, 127);
    block.second.assign(256, 0);
    run(kernel.step, block, step);
    ASSERT_EQ(block.first_scale, 1);
    for (int i = 0; i < 256; ++i) {
      const float g = block.gradients[i];
      ASSERT_EQ(block.first[i], DynamicMap::of_first_moment().nearest(g)) << kernel.name << ", " << g;
      ASSERT_EQ(block.second[i], std::max<int>(DynamicMap::of_second_moment().nearest(g * g), g * g > 0 ? 1 : 0))
          << kernel.name << ", " << g;
    }
  }
}

TEST(AdamW8bitKernels, RoundToTheNearestCodeOnEitherSideOfEveryBoundary) {
  std::vector<float> numbers;
  const auto around = [&numbers](float x) {
    for (int i = 0; i < 5; ++i) x = std::nextafter(x, 0.0F);
    for (int i = 0; i < 11 && x <= 1; ++i, x = std::nextafter(x, 2.0F)) numbers.insert(numbers.end(), {x, -x});
  };
  for (const auto* map : {&DynamicMap::of_first_moment(), &DynamicMap::of_second_moment()}) {
    for (int i = map->zero(); i < 255; ++i) {
      const double boundary = (static_cast<double>(map->values()[i]) + map->values()[i + 1]) / 2;
      around(static_cast<float>(boundary));
      around(static_cast<float>(std::sqrt(boundary)));
      around(map->values()[i]);
    }
  }
  for (int exponent = -30; exponent < 0; ++exponent) {
    for (int i = 0; i < 300; ++i) numbers.push_back(std::ldexp(1.0F + static_cast<float>(i) / 300.0F, exponent));
  }
  for (const auto& kernel : internal::block_steps()) expect_nearest_codes(kernel, numbers);
}

/// The formula, in double precision.
TEST(AdamW8bitKernels, StepAsAdamWOnWhatTheCodesStandFor) {
  std::mt19937 random(3);
  const auto start = random_block(256, random);
  auto block = start;
  run(&internal::step_block_scalar, block);
  double largest1 = 0, largest2 = 0;
  std::vector<double> first, second;
  for (int i = 0; i < 256; ++i) {
    const double g = start.gradients[i];
    first.push_back(0.9 * DynamicMap::of_first_moment().values()[start.first[i]] * 0.25 + 0.1 * g);
    second.push_back(0.99 * DynamicMap::of_second_moment().values()[start.second[i]] * 1e-3 + 0.01 * g * g);
    const double wanted = start.parameters[i] * 0.999 - 3e-3 * first[i] / (std::sqrt(second[i]) * 1.7 + 1e-8);
    EXPECT_NEAR(block.parameters[i], wanted, 1e-5 * std::abs(wanted) + 1e-6);
    largest1 = std::max(largest1, std::abs(first[i]));
    largest2 = std::max(largest2, second[i]);
  }
  EXPECT_NEAR(block.first_scale, largest1, 1e-6 * largest1);
  EXPECT_NEAR(block.second_scale, largest2, 1e-6 * largest2);
  for (int i = 0; i < 256; ++i) {  // Half the widest distance between two neighbours is 0.0071 and 0.0036.
    EXPECT_NEAR(DynamicMap::of_first_moment().values()[block.first[i]] * block.first_scale, first[i],
                0.0072 * largest1);
    EXPECT_NEAR(DynamicMap::of_second_moment().values()[block.second[i]] * block.second_scale, second[i],
                0.0036 * largest2);
  }
}

TEST(AdamW8bitKernels, LeaveAloneWhatHasNoFiniteGradient) {
  for (const auto& kernel : internal::block_steps()) {
    std::mt19937 random(5);
    auto block = random_block(64, random);
    block.first_scale = block.second_scale = 1;
    block.first[3] = block.second[3] = 255;  // The largest, so that scales stay.
    std::fill(block.gradients.begin(), block.gradients.end(), std::nanf(""));
    block.gradients[1] = -std::numeric_limits<float>::infinity();
    block.gradients[2] = 1e30F;  // Its square is not finite.
    const auto before = block;
    run(kernel.step, block);
    EXPECT_TRUE(same_bits(block.parameters, before.parameters)) << kernel.name;
    EXPECT_EQ(block.first, before.first) << kernel.name;
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(block.second[i], before.second[i]) << kernel.name;
  }
}

/// With it rounded to zero, a parameter whose gradients stop would next go learning rate × first moment / eps.
TEST(AdamW8bitKernels, NeverRoundASecondMomentToZero) {
  for (const auto& kernel : internal::block_steps()) {
    Block block;
    block.parameters.assign(32, 0);
    block.gradients.assign(32, 3e-5F);
    block.first.assign(32, DynamicMap::of_first_moment().zero());
    block.second.assign(32, 0);
    block.first_scale = block.second_scale = 0;
    block.gradients[0] = 1;  // Its square is 1e9 times the others'.
    run(kernel.step, block);
    EXPECT_EQ(block.second[0], 255);
    for (int i = 1; i < 32; ++i) EXPECT_EQ(block.second[i], 1) << kernel.name;
    std::fill(block.gradients.begin(), block.gradients.end(), 0);
    const auto before = block.parameters;
    run(kernel.step, block);
    for (int i = 0; i < 32; ++i) EXPECT_LT(std::abs(block.parameters[i] - before[i]), 0.02F) << kernel.name;
  }
}

// ---- the optimizer
// -----------------------------------------------------------------------------------------------------

constexpr std::int64_t kSide = 80;  // 6,400 elements: 25 blocks.

at::Tensor weight() {
  at::manual_seed(1);
  return at::randn({kSide, kSide}).mul_(0.1).requires_grad_();
}

std::vector<ParameterGroup> groups(const at::Tensor& weight) {
  return {{.parameters = {{"w", weight}}, .learning_rate = 0.01, .weight_decay = 0.1}};
}

/// Least squares with a known answer; returns the loss before the last step.
double train(const at::Tensor& weight, Optimizer& optimizer, int first, int last) {
  const auto target = at::sin(at::arange(kSide * kSide, at::kFloat)).view({kSide, kSide}).to(weight.scalar_type());
  double loss_value = 0;
  for (int i = first; i < last; ++i) {
    const auto x = at::cos(at::arange(kSide * 16, at::kFloat).view({16, kSide}) * (i % 7 + 1)).to(weight.scalar_type());
    const auto loss = (x.matmul(weight) - x.matmul(target)).square().mean();
    loss.backward();
    loss_value = loss.item<double>();
    optimizer.step();
    optimizer.zero_grad();
  }
  return loss_value;
}

TEST(AdamW8bit, TrainsNearlyAsAdamWDoes) {
  auto ours = weight(), theirs = weight();
  const auto in_8_bits = adamw_8bit(groups(ours));
  const auto whole = adamw(groups(theirs));
  const double begin = train(weight(), *adamw(groups(weight())), 0, 1);
  const double left = train(ours, *in_8_bits, 0, 200), right = train(theirs, *whole, 0, 200);
  EXPECT_LT(right, 0.2 * begin);
  EXPECT_NEAR(left, right, 0.05 * right + 1e-3 * begin);
}

TEST(AdamW8bit, StateIsTwoBytesAParameter) {
  const auto parameter = weight();
  const auto optimizer = adamw_8bit(groups(parameter));
  train(parameter, *optimizer, 0, 1);
  std::size_t bytes = 0;
  for (const auto& [key, tensor] : optimizer->state()) bytes += tensor.nbytes();
  EXPECT_EQ(bytes, 2u * 6400 + 2 * 25 * 4 + 4);
  EXPECT_LE(static_cast<double>(bytes) / 6400, 2.1);
  EXPECT_EQ(optimizer->state().at("w.exp_avg_codes").sizes(), parameter.sizes());
}

TEST(AdamW8bit, KeepsSmallAndChosenParametersInFloat32) {
  nn::Sequential model(nn::Embedding(100, 80), nn::Linear(80, 64));
  EXPECT_THAT(embeddings(*model), testing::ElementsAre("0.weight"));
  nn::Sequential other(nn::Embedding(100, 80), nn::Linear(80, 64));
  for (std::size_t i = 0; i < 3; ++i) other->parameters()[i].data().copy_(model->parameters()[i]);
  const auto ours =
      adamw_8bit({{.parameters = named(*model), .learning_rate = 0.1}}, {.keep_fp32 = embeddings(*model)});
  const auto plain = adamw({{.parameters = named(*other), .learning_rate = 0.1}});
  for (auto* each : {&model, &other}) {
    (*each)->forward(at::arange(10)).square().sum().backward();
  }
  ours->step();
  plain->step();
  const auto state = ours->state();
  EXPECT_EQ(state.at("0.weight.exp_avg").scalar_type(), at::kFloat);
  EXPECT_EQ(state.at("1.bias.exp_avg").scalar_type(), at::kFloat);
  EXPECT_EQ(state.at("1.weight.exp_avg_codes").scalar_type(), at::kByte);
  EXPECT_TRUE(at::equal(model->parameters()[0], other->parameters()[0])) << "the fused float32 step";
  EXPECT_TRUE(at::equal(model->parameters()[2], other->parameters()[2]));
  EXPECT_TRUE(at::allclose(model->parameters()[1], other->parameters()[1], 1e-4, 1e-5)) << "a first step is exact";
}

TEST(AdamW8bit, TrainsInBfloat16) {
  const auto parameter = weight().detach().to(at::kBFloat16).requires_grad_();
  const auto optimizer = adamw_8bit(groups(parameter));
  const double begin = train(parameter, *optimizer, 0, 1);
  EXPECT_LT(train(parameter, *optimizer, 1, 150), 0.4 * begin);
  EXPECT_EQ(optimizer->state().at("w.exp_avg_codes").nbytes(), 6400u);
}

TEST(AdamW8bit, DoesNotDependOnThreads) {
  const int before = at::get_num_threads();
  auto one = at::ones({300, 300}).requires_grad_(), two = at::ones({300, 300}).requires_grad_();
  for (auto* parameter : {&one, &two}) {
    at::set_num_threads(parameter == &one ? 1 : 2);
    parameter->mutable_grad() = at::sin(at::arange(90000, at::kFloat)).view({300, 300});
    const auto optimizer = adamw_8bit({{.parameters = {{"w", *parameter}}, .learning_rate = 0.1}});
    for (int i = 0; i < 3; ++i) optimizer->step();
  }
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one, two));
}

TEST(AdamW8bit, AutogradSeesThatWeightsChanged) {
  const auto parameter = weight();
  const auto optimizer = adamw_8bit(groups(parameter));
  const auto loss = parameter.square().sum();
  parameter.mutable_grad() = at::ones_like(parameter);
  optimizer->step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

std::string refusal(Optimizer& optimizer, const State& state) {
  try {
    optimizer.load_state(state);
  } catch (const DataError& error) {
    EXPECT_THAT(error.hint(), HasSubstr("to_8bit"));
    return error.what();
  }
  return "none";
}

TEST(AdamW8bit, ResumesFromItsStateAndRefusesOthers) {
  auto straight = weight(), resumed = weight();
  const auto whole = adamw_8bit(groups(straight));
  train(straight, *whole, 0, 6);
  const auto first = adamw_8bit(groups(resumed)), second = adamw_8bit(groups(resumed));
  train(resumed, *first, 0, 3);
  second->load_state(first->state());
  train(resumed, *second, 3, 6);
  EXPECT_TRUE(at::equal(straight, resumed));

  const auto other_blocks = adamw_8bit(groups(resumed), {.block_size = 128});
  EXPECT_THAT(refusal(*other_blocks, first->state()), HasSubstr("\"w.exp_avg_absmax\" is Float [25], not Float [50]"));
  const auto plain = adamw(groups(straight));
  train(straight, *plain, 0, 1);
  EXPECT_THAT(refusal(*second, plain->state()), HasSubstr("\"w.exp_avg_codes\" is missing"));
}

TEST(AdamW8bit, StateConvertsToFloat32AndBack) {
  const auto parameter = weight();
  const auto optimizer = adamw_8bit(groups(parameter)), same = adamw_8bit(groups(parameter));
  train(parameter, *optimizer, 0, 4);
  const auto whole = from_8bit(optimizer->state());
  const auto plain = adamw(groups(parameter));
  plain->load_state(whole);
  EXPECT_EQ(plain->state().at("w.step").item<float>(), 4);
  EXPECT_GT(plain->state().at("w.exp_avg").abs().max().item<float>(), 0);

  const auto back = to_8bit(whole);
  same->load_state(back);
  const auto again = from_8bit(same->state());
  for (const auto& [key, tensor] :
       whole) {  // Not to the bit: a block whose largest number is below 0 has no code for it.
    EXPECT_LE((again.at(key) - tensor).abs().max().item<float>(), 0.01F * tensor.abs().max().item<float>()) << key;
  }
  const auto smaller = adamw_8bit(groups(parameter), {.block_size = 64});
  smaller->load_state(to_8bit(whole, {.block_size = 64}));
  EXPECT_EQ(smaller->state().at("w.exp_avg_absmax").numel(), 100);
  EXPECT_TRUE(at::allclose(from_8bit(smaller->state()).at("w.exp_avg"), whole.at("w.exp_avg"), 0.2, 1e-3));
  EXPECT_TRUE(to_8bit(whole, {.keep_fp32 = {"w"}}).contains("w.exp_avg"));

  auto damaged = optimizer->state();
  damaged["w.exp_avg_sq_absmax"] = at::zeros({8});
  EXPECT_THROW(from_8bit(damaged), DataError);
  damaged.erase("w.exp_avg_sq_absmax");
  EXPECT_THROW(from_8bit(damaged), DataError);
}

TEST(AdamW8bit, RefusesNonsense) {
  const auto parameter = weight();
  EXPECT_THROW(adamw_8bit(groups(parameter), {.block_size = 100}), UsageError);
  EXPECT_THROW(adamw_8bit(groups(parameter), {.block_size = 4096}), UsageError);
  EXPECT_THROW(adamw_8bit(groups(parameter), {.beta2 = 1}), UsageError);
  const auto elsewhere = at::empty({80, 80}, at::TensorOptions(at::kMeta));
  EXPECT_THROW(adamw_8bit({{.parameters = {{"w", elsewhere}}, .learning_rate = 1}}), UnsupportedError);
}
}  // namespace
}  // namespace cinch::optim
