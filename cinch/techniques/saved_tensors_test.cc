#include "cinch/techniques/saved_tensors.h"

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "cinch/core/error.h"
#include "cinch/trace/scope.h"

namespace cinch::techniques {
namespace {

using testing::HasSubstr;

/// Keeps copies and counts what passes.
class Counting final : public SavedTensorPolicy {
 public:
  std::unique_ptr<SavedHandle> pack(const at::Tensor& tensor) override {
    ++packed;
    bytes += tensor.nbytes();
    return std::make_unique<Copy>(*this, tensor.detach().clone());
  }
  int packed = 0, unpacked = 0, alive = 0;
  std::size_t bytes = 0;

 private:
  class Copy final : public SavedHandle {
   public:
    Copy(Counting& counter, at::Tensor copy) : counter_(counter), copy_(std::move(copy)) { ++counter_.alive; }
    ~Copy() override { --counter_.alive; }
    at::Tensor unpack() override {
      ++counter_.unpacked;
      return copy_;
    }

   private:
    Counting& counter_;
    at::Tensor copy_;
  };
};

at::Tensor leaf() { return at::arange(1, 5, at::kFloat).requires_grad_(); }

TEST(SavedTensors, PassThroughThePolicyOfTheInnermostScope) {
  const auto x = leaf();
  Counting outer, inner;
  at::Tensor y;
  {
    const SavedTensorScope outer_scope(outer);
    y = x * x;  // saves both factors
    {
      const SavedTensorScope inner_scope(inner);
      y = y.exp();  // saves its result
    }
  }
  y = y.sin();  // no scope: autograd keeps its input
  EXPECT_EQ(outer.packed, 2);
  EXPECT_EQ(inner.packed, 1);
  EXPECT_EQ(inner.bytes, 16u);
  y.sum().backward();
  EXPECT_EQ(outer.unpacked, 2);
  EXPECT_EQ(inner.unpacked, 1);
  EXPECT_EQ(outer.alive + inner.alive, 0) << "backward without retain_graph lets go of what it used";
  const auto square = x.detach().square();
  EXPECT_TRUE(at::allclose(x.grad(), square.exp().cos() * square.exp() * 2 * x.detach()));
}

TEST(SavedTensors, AreUnpackedAgainByASecondBackward) {
  const auto x = leaf();
  Counting policy;
  at::Tensor y;
  {
    const SavedTensorScope scope(policy);
    y = x.exp().sum();
  }
  y.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(policy.alive, 1);
  y.backward();
  EXPECT_EQ(policy.unpacked, 2);
  EXPECT_EQ(policy.alive, 0);
  EXPECT_TRUE(at::allclose(x.grad(), 2 * x.detach().exp()));
}

TEST(SavedTensors, AreReleasedWithAGraphThatIsNeverRun) {
  Counting policy;
  {
    const SavedTensorScope scope(policy);
    const auto y = leaf().exp();
    EXPECT_EQ(policy.alive, 1);
  }
  EXPECT_EQ(policy.alive, 0);
}

TEST(SavedTensors, ChangedInPlaceAreAnErrorThatNamesThem) {
  const auto x = leaf();
  Counting policy;
  const std::string path = "layers.3";
  at::Tensor y;
  {
    const trace::ModuleScope module(path);
    const SavedTensorScope scope(policy);
    y = x.exp();
  }
  y.detach().mul_(2);
  try {
    y.sum().backward();
    FAIL() << "a changed result was used";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("Float [4], saved in layers.3"));
    EXPECT_THAT(error.hint(), HasSubstr("in-place"));
  }
}

TEST(SavedTensors, AllowDoubleBackward) {
  const auto x = leaf();
  Counting policy;
  const SavedTensorScope scope(policy);
  const auto y = (x * x * x).sum();
  const auto first = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
  first.sum().backward();
  EXPECT_TRUE(at::allclose(x.grad(), 6 * x.detach()));
}

TEST(SavedTensor, OutsideAnyScopeIsTheTensorItself) {
  const auto x = leaf();
  const SavedTensor saved(x);
  EXPECT_EQ(saved.unpack().data_ptr(), x.data_ptr());
  EXPECT_FALSE(saved.unpack().requires_grad());
  x.detach().add_(1);
  EXPECT_THROW(static_cast<void>(saved.unpack()), Error);
}

}  // namespace
}  // namespace cinch::techniques
