// Optimizers in a step, dry and real: equal to the byte; and what each of them is said to save, at the sizes of public
// reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/in_backward.h"
#include "cinch/optim/offload.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {
namespace nn = torch::nn;

void expect_equal(const trace::Trace& predicted, const trace::Trace& recorded) {
  const auto fault = trace::compare_phase_ends(predicted, recorded);
  EXPECT_EQ(fault.value_or("no difference"), "no difference");
  const auto left = trace::Timeline(predicted).peak().bytes, right = trace::Timeline(recorded).peak().bytes;
  EXPECT_EQ(left, right);
  EXPECT_GT(left, Bytes());
  if (fault || left != right)
    if (const auto first = trace::first_divergence(predicted, recorded)) ADD_FAILURE() << first->sentence;
}

// ---- as a job names them --------------------------------------------------------------------------------------------

using JobCase = std::tuple<ModelKind, job::OptimizerKind, int>;
class OptimizersOfJobs : public ::testing::TestWithParam<JobCase> {};

TEST_P(OptimizersOfJobs, PredictedEqualsMeasured) {
  const auto [model, optimizer, threads] = GetParam();
  train::set_threads(threads);
  auto job = small_job(model, 6);
  job.train.optimizer.kind = optimizer;
  job.train.optimizer.weight_decay = 0.1;
  expect_equal(train::simulator(job, device::find("cpu"))({}), record_run(job, {}));
}

INSTANTIATE_TEST_SUITE_P(Matrix, OptimizersOfJobs,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp),
                                            ::testing::Values(job::OptimizerKind::kAdam, job::OptimizerKind::kAdafactor,
                                                              job::OptimizerKind::kLion),
                                            ::testing::Values(1, 2)));

/// A prediction that trains the wrong optimizer agrees with a training that does.
TEST(Optimizers, AreTheOnesThatTheJobNames) {
  using job::OptimizerKind;
  const std::map<OptimizerKind, std::set<std::string>> expected{
      {OptimizerKind::kSgd, {"momentum_buffer"}},          {OptimizerKind::kAdam, {"exp_avg", "exp_avg_sq", "step"}},
      {OptimizerKind::kAdamW, {"exp_avg", "exp_avg_sq", "step"}}, {OptimizerKind::kLion, {"exp_avg"}},
      {OptimizerKind::kAdafactor, {"exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col", "step"}}};
  std::map<OptimizerKind, at::Tensor> weights;
  for (const auto& [kind, state] : expected) {
    auto job = small_job(ModelKind::kMlp, 4);
    job.train.optimizer = {.kind = kind, .momentum = 0.9, .weight_decay = 0.1};
    train::Session session(job, {});
    session.step(data::open(job.data, job.model, 4, job.train.seed)->next());
    std::set<std::string> names;
    for (const auto& [name, tensor] : session.optimizer().state()) names.insert(name.substr(name.rfind('.') + 1));
    EXPECT_EQ(names, state) << static_cast<int>(kind);
    weights[kind] = session.model().parameters().front().detach().clone();
  }
  for (const auto& [kind, weight] : weights)
    for (const auto& [other, another] : weights) EXPECT_EQ(at::equal(weight, another), kind == other);
}

/// Whichever the job names: its state elsewhere, or steps in backward, give the same weights to the bit.
TEST(Optimizers, OfAnyJobGoWithEveryPlace) {
  using job::OptimizerKind;
  plan::Plan on_host, in_backward, both;
  on_host.optimizer.place = both.optimizer.place = plan::StatePlace::kHost;
  in_backward.optimizer.in_backward = both.optimizer.in_backward = true;
  for (const auto kind : {OptimizerKind::kSgd, OptimizerKind::kAdam, OptimizerKind::kAdamW, OptimizerKind::kLion,
                          OptimizerKind::kAdafactor}) {
    auto job = small_job(ModelKind::kMlp, 4);
    job.train.optimizer = {.kind = kind, .momentum = 0.9, .weight_decay = 0.1};
    job.train.max_grad_norm.reset();
    const auto trained = [&](const plan::Plan& plan) {
      train::Session session(job, plan);
      const auto source = data::open(job.data, job.model, 4, job.train.seed);
      for (int step = 0; step < 3; ++step) session.step(source->next());
      std::vector<at::Tensor> weights;
      for (const auto& parameter : session.model().parameters()) weights.push_back(parameter.detach().clone());
      return weights;
    };
    const auto plain = trained({});
    for (const auto& plan : {on_host, in_backward, both}) {
      const auto planned = trained(plan);
      for (std::size_t i = 0; i < plain.size(); ++i)
        EXPECT_TRUE(at::equal(plain[i], planned[i])) << static_cast<int>(kind) << ", " << plan::describe(plan, 0);
    }
  }
}

// ---- and those that are made in C++ ---------------------------------------------------------------------------------

enum class Kind : std::uint8_t {
  kAdamW8bit,
  kAdamW8bitBf16,
  kInBackward,
  kTwoPasses,
  kMicroBatches,
  kInBackward8bit,
  kOffloaded,
  kOffloaded8bit,
  kOffloadedInBackward
};

std::unique_ptr<optim::Optimizer> make_optimizer(Kind kind, std::vector<optim::ParameterGroup> groups) {
  switch (kind) {
    case Kind::kAdamW8bit:
    case Kind::kAdamW8bitBf16:
      return optim::adamw_8bit(std::move(groups), {.block_size = 128});
    case Kind::kInBackward:
    case Kind::kMicroBatches:
      return optim::in_backward(optim::adamw(std::move(groups)));
    case Kind::kTwoPasses:
      return optim::in_backward(optim::adamw(std::move(groups)), {.max_grad_norm = 1, .two_passes = true});
    case Kind::kInBackward8bit:
      return optim::in_backward(optim::adamw_8bit(std::move(groups)));
    case Kind::kOffloaded:
      return optim::offloaded(optim::adamw(std::move(groups)));
    case Kind::kOffloaded8bit:
      return optim::offloaded(optim::adamw_8bit(std::move(groups)));
    case Kind::kOffloadedInBackward:
      return optim::in_backward(optim::offloaded(optim::adamw(std::move(groups))));
  }
  return nullptr;
}

void train_model(Kind kind) {
  const auto in = [](trace::Phase phase, std::uint32_t step, const auto& work) {
    const trace::PhaseScope scope(phase, step);
    return work();
  };
  auto model = in(trace::Phase::kInit, 0, [&] {
    nn::Sequential made(nn::Linear(90, 70), nn::Linear(70, 100), nn::Linear(nn::LinearOptions(100, 30).bias(false)));
    if (kind == Kind::kAdamW8bitBf16) made->to(at::kBFloat16);
    return made;
  });
  const auto optimizer = make_optimizer(kind, {{optim::named(*model), 0.01, 0.1}});
  auto* in_backward = dynamic_cast<optim::BackwardOptimizer*>(optimizer.get());
  for (std::uint32_t step = 1; step <= 4; ++step) {
    const auto loss = in(trace::Phase::kForward, step, [&] {
      return model->forward(at::ones({8, 90}, model->parameters()[0].scalar_type())).square().sum();
    });
    in(trace::Phase::kBackward, step, [&] {
      const bool last = kind != Kind::kMicroBatches || step % 2 == 0;
      if (in_backward == nullptr) return loss.backward();
      in_backward->backward(loss, last);
    });
    if (in_backward != nullptr) continue;
    in(trace::Phase::kOptimizer, step, [&] { optimizer->step({.max_grad_norm = 1}); });
    optimizer->zero_grad();
  }
}

class OptimizersInCpp : public ::testing::TestWithParam<std::tuple<Kind, int>> {};

TEST_P(OptimizersInCpp, PredictedEqualsMeasured) {
  train::set_threads(std::get<1>(GetParam()));
  trace::Trace predicted, recorded;
  {
    const dryrun::DryRun dry(predicted, device::find("cpu"));
    train_model(std::get<0>(GetParam()));
  }
  {
    const record::Recorder recorder(recorded);
    train_model(std::get<0>(GetParam()));
  }
  expect_equal(predicted, recorded);
}

INSTANTIATE_TEST_SUITE_P(Matrix, OptimizersInCpp,
                         ::testing::Combine(::testing::Values(Kind::kAdamW8bit, Kind::kAdamW8bitBf16, Kind::kInBackward,
                                                              Kind::kTwoPasses, Kind::kMicroBatches,
                                                              Kind::kInBackward8bit, Kind::kOffloaded,
                                                              Kind::kOffloaded8bit, Kind::kOffloadedInBackward),
                                            ::testing::Values(1, 2)));

/// A dry run of an optimizer that goes on for real afterwards takes none of its room and leaves none of its state.
TEST(Optimizers, ADryStepOfOffloadedStateTouchesNoMemory) {
  trace::Trace predicted;
  const auto weight = at::ones({64, 64}).requires_grad_();
  {
    const dryrun::DryRun dry(predicted, device::find("cpu"));
    const auto optimizer = optim::offloaded(optim::adamw({{{{"w", weight}}, 0.1, 0}}));
    weight.square().sum().backward();
    optimizer->step();
    EXPECT_TRUE(optimizer->state().empty());
    optimizer->zero_grad();
  }
  EXPECT_TRUE(at::equal(weight, at::ones({64, 64})));
}

// ---- what they save -------------------------------------------------------------------------------------------------

struct Figures {
  double state, rise;  ///< Bytes a parameter: of state; what the second step takes at its peak above what lives.
};

/// One weight of 4096 × 4096, in a dry run.
template <class Make>
Figures figures_of(const Make& make, at::ScalarType dtype = at::kFloat) {
  trace::Trace trace;
  constexpr double kElements = 4096.0 * 4096.0;
  {
    const dryrun::DryRun dry(trace, device::find("cpu"));
    const auto weight = at::empty({4096, 4096}, dtype).requires_grad_();
    record::label(weight, trace::Category::kParameter, "w");
    weight.mutable_grad() = at::empty({4096, 4096}, dtype);
    record::label(weight.grad(), trace::Category::kGradient, "w");
    const std::unique_ptr<optim::Optimizer> optimizer =
        make(std::vector<optim::ParameterGroup>{{{{"w", weight}}, 0.1, 0}});
    for (std::uint32_t step = 1; step <= 2; ++step) {
      const trace::PhaseScope phase(trace::Phase::kOptimizer, step);
      optimizer->step();
      const auto mark = at::empty({1});  // A phase without an event is none.
    }
    const trace::PhaseScope rest(trace::Phase::kOther, 2);
    const auto last = at::empty({1});
  }
  const trace::Timeline timeline(trace);
  const double bytes_of_weights = 2.0 * kElements * static_cast<double>(c10::elementSize(dtype));
  const double first = static_cast<double>(timeline.peak(1).bytes.count()),
               second = static_cast<double>(timeline.peak(2).bytes.count());
  const auto ends = trace::phase_ends(trace);
  double live = 0;
  for (const auto& end : ends)
    if (end.phase == trace::Phase::kOptimizer && end.step == 2) live = static_cast<double>(end.live.count());
  EXPECT_GE(first, live);
  return {(live - bytes_of_weights) / kElements, (second - live) / kElements};
}

const auto kAdamW = [](auto groups) { return optim::adamw(std::move(groups)); };
const auto kAdamW8bit = [](auto groups) { return optim::adamw_8bit(std::move(groups)); };

/// Hugging Face, BERT-large at batch 4: Adafactor saves 2,654 MiB, 8-bit Adam 1,864 MiB of 335 million parameters:
/// about 8 and 6 bytes each.
TEST(Savings, AdafactorEightAndEightBitsSixBytesAParameter) {
  const double whole = figures_of(kAdamW).state;
  EXPECT_NEAR(whole, 8, 1e-3);
  EXPECT_NEAR(whole - figures_of([](auto groups) { return optim::adafactor(std::move(groups)); }).state, 8, 0.01);
  EXPECT_NEAR(whole - figures_of(kAdamW8bit).state, 6, 0.04);
  EXPECT_NEAR(whole - figures_of([](auto groups) { return optim::lion(std::move(groups)); }).state, 4, 1e-3);
}

/// State that is stored in 8 bits and computed in 32 would show here (AiDotNet#1238), and so would PyTorch's foreach
/// optimizers' temporaries of a parameter's size or more (pytorch#97712).
TEST(Savings, StepsHoldNothingBesideTheState) {
  EXPECT_LE(figures_of(kAdamW8bit).state, 2.1);
  for (const double rise : {figures_of(kAdamW).rise, figures_of(kAdamW8bit).rise,
                            figures_of([](auto groups) { return optim::lion(std::move(groups)); }).rise,
                            figures_of([](auto groups) { return optim::adam(std::move(groups)); }).rise})
    EXPECT_LE(rise, 1e-5);
  EXPECT_LE(figures_of([](auto groups) { return optim::adafactor(std::move(groups)); }).rise, 0.02)
      << "sums of columns in at most 16 pieces of 4096 rows";
}

/// Llama-2-7B in bfloat16 with 8-bit state: 6 bytes a parameter, 40.4 GB, is the floor (GaLore#6).
TEST(Savings, HalfPrecisionWeightsAndEightBitsAreSixBytesAParameterInAll) {
  EXPECT_NEAR(2 + 2 + figures_of(kAdamW8bit, at::kBFloat16).state, 6, 0.04);
}

/// VGG16 under Adam needs 4 bytes a parameter more than under SGD with momentum (pytorch#9439), and a layer that is not
/// used costs none.
TEST(Savings, SgdHalfOfAdamAndNothingForWhatIsNotUsed) {
  const double momentum =
      figures_of([](auto groups) { return optim::sgd(std::move(groups), {.momentum = 0.9}); }).state;
  EXPECT_NEAR(figures_of([](auto groups) { return optim::adam(std::move(groups)); }).state - momentum, 4, 1e-3);
  const double with_unused = figures_of([](auto groups) {
                               groups[0].parameters.push_back({"fc", at::ones({512, 512}).requires_grad_()});
                               return optim::adam(std::move(groups));
                             }).state;
  EXPECT_NEAR(with_unused, 8 + 512.0 * 512 * 4 / (4096.0 * 4096), 1e-3) << "its weight alone";
}
}  // namespace
}  // namespace cinch::tests
