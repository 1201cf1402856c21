#include "cinch/techniques/call.h"

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "cinch/core/error.h"
#include "cinch/trace/scope.h"

namespace cinch::techniques {
namespace {

using plan::ActivationPolicy;
using testing::ElementsAre;
using testing::HasSubstr;
namespace nn = torch::nn;

std::vector<std::string> seen;  ///< Module paths that forwards ran in, in order; "+" after those of a second run.

void note() {
  const auto context = trace::current();
  seen.push_back((context.module == nullptr ? "" : *context.module) + (context.recompute ? "+" : ""));
}

struct LeafImpl : nn::Module {
  LeafImpl()
      : linear(register_module("linear", nn::Linear(4, 4))), dropout(register_module("dropout", nn::Dropout(0.5))) {}
  at::Tensor forward(const at::Tensor& x) {
    note();
    return dropout->forward(linear->forward(x).exp());
  }
  nn::Linear linear;
  nn::Dropout dropout;
};
TORCH_MODULE(Leaf);

struct BranchImpl : nn::Module {
  BranchImpl() : norm(register_module("norm", nn::BatchNorm1d(4))), leaf(register_module("leaf", Leaf())) {}
  std::pair<at::Tensor, int> forward(const at::Tensor& x, int times) {
    note();
    auto y = norm->forward(x);
    for (int i = 0; i < times; ++i) y = call(leaf, y).tanh();
    return {y, times};
  }
  nn::BatchNorm1d norm;
  Leaf leaf;
};
TORCH_MODULE(Branch);

struct RootImpl : nn::Module {
  RootImpl() {
    for (const auto* name : {"a", "b"}) branches.push_back(register_module(name, Branch()));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& branch : branches) x = call(branch, x, 2).first;
    return x;
  }
  std::vector<Branch> branches;
};
TORCH_MODULE(Root);

Root root() {
  at::manual_seed(3);
  seen.clear();
  return Root();
}

TEST(Call, OutsideASessionIsAForwardNamedByItsType) {
  const auto model = root();
  const at::Tensor y = call(model, at::randn({8, 4}));
  EXPECT_EQ(y.sizes(), at::IntArrayRef({8, 4}));
  EXPECT_THAT(seen.front(), HasSubstr("BranchImpl"));
  EXPECT_EQ(trace::current().module, nullptr);
}

TEST(Call, TakesModulesHoldersAndSharedPointersAndGivesForwardsOwnType) {
  Branch holder;
  const auto pointer = holder.ptr();
  const auto x = at::randn({8, 4});
  static_assert(std::is_same_v<decltype(call(holder, x, 1)), std::pair<at::Tensor, int>>);
  static_assert(std::is_same_v<decltype(call(*pointer, x, 1)), std::pair<at::Tensor, int>>);
  EXPECT_EQ(call(holder, x, 1).second, 1);
  EXPECT_EQ(call(pointer, x, 2).second, 2);
  EXPECT_EQ(call(*pointer, x, 3).second, 3);
}

TEST(Call, NamesModulesByPathAndRemembersTheOutermost) {
  auto model = root();
  CallPolicies policies(*model, {});
  const UseCallPolicies use(policies);
  for (auto& branch : model->branches) call(branch, at::randn({8, 4}), 1);
  EXPECT_THAT(seen, ElementsAre("a", "a.leaf", "b", "b.leaf"));
  EXPECT_THAT(policies.called(), ElementsAre("a", "b"));
}

struct Trained {
  std::vector<at::Tensor> gradients, buffers;
};

/// One forward and backward under `activations`.
Trained train(const std::map<std::string, ActivationPolicy>& activations, bool policies_end_before_backward = false) {
  auto model = root();
  CallPolicies policies(*model, activations);
  const auto x = at::randn({8, 4});
  at::Tensor loss;
  {
    const UseCallPolicies use(policies);
    loss = model->forward(x).square().sum();
    if (!policies_end_before_backward) loss.backward();
  }
  if (policies_end_before_backward) loss.backward();
  Trained result{.gradients = {}, .buffers = model->buffers()};
  for (const auto& p : model->parameters()) result.gradients.push_back(p.grad());
  return result;
}

void expect_equal(const Trained& left, const Trained& right) {
  for (std::size_t i = 0; i < left.gradients.size(); ++i) EXPECT_TRUE(at::equal(left.gradients[i], right.gradients[i]));
  for (std::size_t i = 0; i < left.buffers.size(); ++i) EXPECT_TRUE(at::equal(left.buffers[i], right.buffers[i]));
}

TEST(Call, CheckpointsTheModulesThatThePlanNames) {
  const auto plain = train({});
  EXPECT_THAT(seen, ElementsAre("a", "a.leaf", "a.leaf", "b", "b.leaf", "b.leaf"));
  expect_equal(plain, train({{"b", ActivationPolicy::kCheckpoint}}));
  EXPECT_THAT(seen, ElementsAre("a", "a.leaf", "a.leaf", "b", "b.leaf", "b.leaf", "b+", "b.leaf+", "b.leaf+"));
}

TEST(Call, UpdatesBatchStatisticsOnce) {
  const auto checkpointed = train({{"a", ActivationPolicy::kCheckpoint}, {"b", ActivationPolicy::kCheckpoint}});
  expect_equal(train({}), checkpointed);
  EXPECT_EQ(checkpointed.buffers.at(2).item<int>(), 1);
}

TEST(Call, NestsCheckpoints) {
  const std::map<std::string, ActivationPolicy> nested{{"a", ActivationPolicy::kCheckpoint},
                                                       {"a.leaf", ActivationPolicy::kCheckpoint},
                                                       {"b.leaf", ActivationPolicy::kCheckpoint}};
  const auto plain = train({});
  expect_equal(plain, train(nested));
  expect_equal(plain, train(nested, /*policies_end_before_backward=*/true));
}

TEST(Call, DoesNotCheckpointWithoutGradMode) {
  auto model = root();
  CallPolicies policies(*model, {{"a", ActivationPolicy::kCheckpoint}});
  const UseCallPolicies use(policies);
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(model->forward(at::randn({8, 4})).requires_grad());
}

TEST(Call, RefusesToCheckpointWhatCannotBeCalledAgain) {
  struct TakerImpl : nn::Module {
    at::Tensor forward(std::unique_ptr<at::Tensor> x) { return *x + 1; }
  };
  auto taker = std::make_shared<TakerImpl>();
  EXPECT_EQ(call(taker, std::make_unique<at::Tensor>(at::ones({}))).item<int>(), 2);
  CallPolicies policies(*taker, {{"", ActivationPolicy::kCheckpoint}});
  const UseCallPolicies use(policies);
  EXPECT_THROW(call(taker, std::make_unique<at::Tensor>(at::ones({}))), UsageError);
}

TEST(CallPolicies, RefuseAPathThatNamesNoModule) {
  const auto model = root();
  try {
    const CallPolicies policies(*model, {{"a.leef", ActivationPolicy::kCheckpoint}});
    FAIL() << "a.leef exists";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"a.leef\""));
    EXPECT_THAT(error.hint(), HasSubstr("\"a.leaf\""));
  }
}

}  // namespace
}  // namespace cinch::techniques
