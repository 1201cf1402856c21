#include "cinch/optim/offload.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "cinch/core/error.h"
#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/in_backward.h"
#include "cinch/optim/internal/state_store.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/sink.h"

namespace cinch::optim {
namespace {
using testing::HasSubstr;
namespace fs = std::filesystem;
namespace nn = torch::nn;

class OffloadTest : public ::testing::TestWithParam<OffloadPlace> {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("cinch-offload-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    internal::disk_hook() = {};
    fs::remove_all(folder_);
  }
  OffloadOptions options(OffloadPlace place = OffloadPlace::kDisk) const { return {place, folder_}; }
  fs::path folder_;
};

nn::Sequential net() {
  at::manual_seed(5);
  return nn::Sequential(nn::Linear(64, 80), nn::Linear(80, 96), nn::Linear(96, 32));
}

at::Tensor loss_of(nn::Sequential& model, int step) {
  const auto x = at::sin(at::arange(256, at::kFloat).view({4, 64}) * (step + 1));
  return model->forward(x).tanh().square().sum();
}

std::vector<ParameterGroup> groups(nn::Sequential& model) {
  auto all = named(*model);
  return {{{all[0], all[1], all[2]}, 0.01, 0.1}, {{all[3], all[4], all[5]}, 0.02, 0}};
}

void train(nn::Sequential& model, Optimizer& optimizer, int first, int last) {
  for (int i = first; i < last; ++i) {
    loss_of(model, i).backward();
    optimizer.step({.max_grad_norm = 1.0});
    optimizer.zero_grad();
  }
}

std::vector<at::Tensor> copies(nn::Sequential& model) {
  std::vector<at::Tensor> all;
  for (const auto& parameter : model->parameters()) all.push_back(parameter.detach().clone());
  return all;
}

void expect_equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << i;
}

TEST_P(OffloadTest, TrainsAsWithoutToTheBit) {
  for (int which = 0; which < 4; ++which) {
    const auto make = [which](nn::Sequential& model) {
      return which == 0   ? adamw(groups(model))
             : which == 1 ? sgd(groups(model), {.momentum = 0.9})
             : which == 2 ? adamw_8bit(groups(model))
                          : sgd(groups(model));
    };
    auto plain = net(), ours = net();
    const auto reference = make(plain);
    train(plain, *reference, 0, 5);
    const auto optimizer = offloaded(make(ours), options(GetParam()));
    EXPECT_TRUE(optimizer->state().empty());
    train(ours, *optimizer, 0, 5);
    expect_equal(copies(plain), copies(ours));
    const auto wanted = reference->state(), state = optimizer->state();
    ASSERT_EQ(state.size(), wanted.size());
    for (const auto& [key, tensor] : wanted) EXPECT_TRUE(at::equal(state.at(key), tensor)) << key;
  }
  EXPECT_TRUE(fs::is_empty(folder_)) << "the file has no name";
}

TEST_P(OffloadTest, ResumesFromItsStateAndFromThatOfThePlainOne) {
  auto straight = net(), resumed = net();
  train(straight, *adamw(groups(straight)), 0, 4);
  const auto first = adamw(groups(resumed));
  train(resumed, *first, 0, 2);
  const auto second = offloaded(adamw(groups(resumed)), options(GetParam()));
  second->load_state(first->state());
  train(resumed, *second, 2, 3);
  const auto third = offloaded(adamw(groups(resumed)), options(GetParam()));
  auto damaged = second->state();
  damaged.erase("1.bias.step");
  EXPECT_THROW(third->load_state(damaged), DataError);
  EXPECT_TRUE(third->state().empty());
  third->load_state(second->state());
  train(resumed, *third, 3, 4);
  expect_equal(copies(straight), copies(resumed));
  third->load_state({});
  EXPECT_TRUE(third->state().empty());
  train(resumed, *third, 4, 5);
  EXPECT_EQ(third->state().at("0.bias.step").item<float>(), 1);
}

TEST_P(OffloadTest, LiesOutsideTheTensorsMemory) {
  std::vector<at::Tensor> weights;
  std::vector<NamedParameter> parameters;
  for (int i = 0; i < 8; ++i) {
    weights.push_back(at::ones({64, 64}).requires_grad_());
    weights.back().mutable_grad() = at::ones({64, 64});
    parameters.push_back({std::to_string(i), weights.back()});
  }
  trace::PeakMeter meter;
  const record::Recorder recorder(meter);
  const auto optimizer = offloaded(adamw({{.parameters = parameters, .learning_rate = 0.1}}), options(GetParam()));
  optimizer->step();
  constexpr std::int64_t kState = 2 * 64 * 64 * 4;
  EXPECT_LE(recorder.live().count(), 0);
  EXPECT_LE(recorder.peak().count(), 2 * kState + 1024) << "two parameters' of eight";
  EXPECT_GE(recorder.peak().count(), 2 * kState);
}

TEST_P(OffloadTest, WorksInBackward) {
  auto plain = net(), ours = net();
  const auto reference = adamw(groups(plain));
  const auto optimizer = in_backward(offloaded(adamw(groups(ours)), options(GetParam())));
  for (int i = 0; i < 4; ++i) {
    loss_of(plain, i).backward();
    reference->step();
    reference->zero_grad();
    optimizer->backward(loss_of(ours, i));
  }
  expect_equal(copies(plain), copies(ours));
  EXPECT_EQ(optimizer->state().size(), 18u);
}

TEST_P(OffloadTest, PassesOverWhatHasNoGradient) {
  auto model = net();
  const auto optimizer = offloaded(adamw(groups(model)), options(GetParam()));
  EXPECT_EQ(optimizer->step({.max_grad_norm = 1}).grad_norm.item<float>(), 0);
  model->parameters()[3].mutable_grad() = at::ones({96});
  optimizer->step();
  EXPECT_TRUE(optimizer->state().contains("1.bias.exp_avg"));
  EXPECT_TRUE(optimizer->state().contains("0.bias.no_state"));
  train(model, *optimizer, 0, 1);
  EXPECT_EQ(optimizer->state().at("1.bias.step").item<float>(), 2);
  EXPECT_EQ(optimizer->state().at("0.bias.step").item<float>(), 1);
}

INSTANTIATE_TEST_SUITE_P(Places, OffloadTest, ::testing::Values(OffloadPlace::kHost, OffloadPlace::kDisk),
                         [](const auto& info) { return info.param == OffloadPlace::kHost ? "Host" : "Disk"; });

using OffloadFaults = OffloadTest;

/// A limit on file sizes refuses the reservation as a full disk does.
TEST_F(OffloadFaults, AFullDiskFailsBeforeAnyWeightChanges) {
  auto model = net();
  const auto optimizer = offloaded(adamw(groups(model)), options());
  const auto before = copies(model);
  loss_of(model, 0).backward();
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  try {
    optimizer->step();
    ADD_FAILURE() << "stepped";
  } catch (const IoError& error) {
    EXPECT_THAT(error.what(), HasSubstr("reserve"));
    EXPECT_THAT(error.what(), HasSubstr(folder_.string()));
  }
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, handler);
  expect_equal(copies(model), before);
  EXPECT_TRUE(optimizer->state().empty());
  auto plain = net();
  train(plain, *adamw(groups(plain)), 0, 1);
  optimizer->step({.max_grad_norm = 1.0});  // There is room again; the gradients are still there.
  expect_equal(copies(model), copies(plain));
}

TEST_F(OffloadFaults, ADiskThatFailsMidwayStopsTheOptimizerUntilStateIsLoaded) {
  auto model = net(), plain = net();
  const auto reference = adamw(groups(plain));
  train(plain, *reference, 0, 2);
  const auto optimizer = offloaded(adamw(groups(model)), options());
  train(model, *optimizer, 0, 2);
  int writes = 0;
  internal::disk_hook() = [&writes](std::string_view what) {
    if (what == "write" && ++writes == 3) throw IoError("disk", "write", EIO);
  };
  loss_of(model, 2).backward();
  EXPECT_THROW(optimizer->step(), IoError);
  internal::disk_hook() = {};
  EXPECT_THROW(optimizer->step(), Error) << "half of it is of another step";
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < 6; ++i) model->parameters()[i].copy_(plain->parameters()[i]);
  optimizer->load_state(reference->state());
  optimizer->zero_grad();
  {
    const at::AutoGradMode grad(true);
    train(model, *optimizer, 2, 3);
    train(plain, *reference, 2, 3);
  }
  expect_equal(copies(model), copies(plain));
}

/// A slow disk changes nothing but the time.
TEST_F(OffloadFaults, ASlowDiskGivesTheSame) {
  auto model = net(), plain = net();
  train(plain, *adamw(groups(plain)), 0, 2);
  internal::disk_hook() = [](std::string_view) { ::usleep(2000); };
  train(model, *offloaded(adamw(groups(model)), options()), 0, 2);
  expect_equal(copies(model), copies(plain));
}

/// Killed while it writes state back: nothing stays on the disk, and a run from saved state goes on as if never killed.
TEST_F(OffloadFaults, AKilledStepLeavesNothingBehind) {
  at::set_num_threads(1);
  const pid_t child = ::fork();
  if (child == 0) {
    auto model = net();
    const auto optimizer = offloaded(adamw(groups(model)), options());
    for (auto& parameter : model->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
    int writes = 0;
    internal::disk_hook() = [&writes](std::string_view what) {
      if (what == "write" && ++writes == 25) ::kill(::getpid(), SIGKILL);
    };
    for (int i = 0; i < 100; ++i) optimizer->step();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(OffloadFaults, RefusesNonsense) {
  auto model = net();
  EXPECT_THROW(offloaded(nullptr), UsageError);
  EXPECT_THROW(offloaded(adamw(groups(model)), {OffloadPlace::kDisk, folder_ / "none"}), UsageError);
  EXPECT_THROW(offloaded(offloaded(adamw(groups(model)))), UsageError);
  const auto elsewhere = at::empty({8, 8}, at::TensorOptions(at::kMeta));
  EXPECT_THROW(offloaded(adamw({{.parameters = {{"w", elsewhere}}, .learning_rate = 1}})), UnsupportedError);
  auto stepped = adamw(groups(model));
  train(model, *stepped, 0, 1);
  EXPECT_THROW(offloaded(std::move(stepped)), UsageError);
}
}  // namespace
}  // namespace cinch::optim
