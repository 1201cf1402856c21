#include "cinch/techniques/activation_checkpoint.h"

#include <string>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/saved_tensors.h"
#include "cinch/trace/scope.h"

namespace cinch::techniques {
namespace {

using testing::HasSubstr;
namespace nn = torch::nn;

/// Bytes that reach this policy: what a graph would hold.
class Weighing final : public SavedTensorPolicy {
 public:
  std::unique_ptr<SavedHandle> pack(const at::Tensor& tensor) override {
    bytes += tensor.nbytes();
    return std::make_unique<Held>(tensor.detach());
  }
  std::size_t bytes = 0;

 private:
  class Held final : public SavedHandle {
   public:
    explicit Held(at::Tensor tensor) : tensor_(std::move(tensor)) {}
    at::Tensor unpack() override { return tensor_; }

   private:
    at::Tensor tensor_;
  };
};

enum class How { kPlain, kCheckpointed, kNested, kTwoInOne };

/// Four residual blocks with dropout, trained by plain gradient descent.
class Blocks {
 public:
  Blocks() {
    at::manual_seed(1);
    for (int i = 0; i < 4; ++i) {
      blocks_.push_back(nn::Sequential(nn::Linear(16, 32), nn::GELU(), nn::Dropout(0.25), nn::Linear(32, 16)));
    }
  }

  at::Tensor block(int i, const at::Tensor& x) {
    ++runs;
    return x + blocks_[i]->forward(x);
  }

  at::Tensor forward(at::Tensor x, How how) {
    const auto one = [this](int i, const at::Tensor& t) { return block(i, t); };
    const auto one_apart = [one](int i, const at::Tensor& t) { return checkpoint(one, i, t); };
    for (int i = 0; i < 4; i += how >= How::kNested ? 2 : 1) {
      switch (how) {
        case How::kPlain:
          x = one(i, x);
          break;
        case How::kCheckpointed:
          x = one_apart(i, x);
          break;
        case How::kNested:
          x = checkpoint([=](const at::Tensor& t) { return one_apart(i + 1, one_apart(i, t)); }, x);
          break;
        case How::kTwoInOne:
          x = checkpoint([=](const at::Tensor& t) { return one(i + 1, one_apart(i, t)); }, x);
          break;
      }
    }
    return x;
  }

  void step(How how) {
    const auto loss = forward(at::randn({8, 16}), how).square().mean();
    loss.backward();
    const at::NoGradGuard no_grad;
    for (auto& p : parameters()) {
      p.sub_(p.grad(), 0.1);
      p.mutable_grad().reset();
    }
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const auto& block : blocks_) {
      for (const auto& p : block->parameters()) all.push_back(p);
    }
    return all;
  }

  int runs = 0;

 private:
  std::vector<nn::Sequential> blocks_;
};

void expect_equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << "tensor " << i;
}

c10::weak_intrusive_ptr<c10::StorageImpl> storage_of(const at::Tensor& tensor) {
  return c10::weak_intrusive_ptr<c10::StorageImpl>(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
}

class AutocastBf16 {
 public:
  AutocastBf16() {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~AutocastBf16() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
};

class CheckpointTraining : public testing::TestWithParam<How> {};
INSTANTIATE_TEST_SUITE_P(Nesting, CheckpointTraining,
                         testing::Values(How::kCheckpointed, How::kNested, How::kTwoInOne));

TEST_P(CheckpointTraining, TrainsToTheSameWeightsAsPlainTraining) {
  Blocks plain;
  for (int i = 0; i < 20; ++i) plain.step(How::kPlain);
  const auto generator = at::detail::getDefaultCPUGenerator().get_state();
  Blocks checkpointed;
  for (int i = 0; i < 20; ++i) checkpointed.step(GetParam());
  expect_equal(plain.parameters(), checkpointed.parameters());
  EXPECT_TRUE(at::equal(generator, at::detail::getDefaultCPUGenerator().get_state()));
}

TEST_P(CheckpointTraining, TrainsToTheSameWeightsUnderAutocast) {
  const auto train = [](How how) {
    Blocks blocks;
    for (int i = 0; i < 5; ++i) {
      at::Tensor loss;
      {
        const AutocastBf16 autocast;
        loss = blocks.forward(at::randn({8, 16}), how).square().mean();
      }
      loss.backward();
      const at::NoGradGuard no_grad;
      for (auto& p : blocks.parameters()) {
        p.sub_(p.grad(), 0.1);
        p.mutable_grad().reset();
      }
    }
    return blocks.parameters();
  };
  expect_equal(train(How::kPlain), train(GetParam()));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(Checkpoint, RunsEachBlockOnceMore) {
  Blocks blocks;
  blocks.step(How::kCheckpointed);
  EXPECT_EQ(blocks.runs, 8);
  blocks.runs = 0;
  blocks.step(How::kTwoInOne);  // the inner ones: forward, outer's second run, their own second run
  EXPECT_EQ(blocks.runs, 2 * (2 + 3));
}

TEST(Checkpoint, RunsOnceMoreForEachBackward) {
  Blocks blocks;
  const auto loss = blocks.forward(at::randn({8, 16}), How::kCheckpointed).sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(blocks.runs, 8);
  std::vector<at::Tensor> once;
  for (const auto& p : blocks.parameters()) once.push_back(2 * p.grad());
  loss.backward();
  EXPECT_EQ(blocks.runs, 12);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(at::equal(once[i], blocks.parameters()[i].grad()));
}

TEST(Checkpoint, SavesItsInputsOnly) {
  Weighing weighing;
  const SavedTensorScope scope(weighing);
  Blocks blocks;
  static_cast<void>(blocks.forward(at::randn({8, 16}), How::kCheckpointed));
  EXPECT_EQ(weighing.bytes, 4u * 8 * 16 * 4);
  weighing.bytes = 0;
  static_cast<void>(blocks.forward(at::randn({8, 16}), How::kNested));
  EXPECT_EQ(weighing.bytes, 2u * 8 * 16 * 4) << "an inner checkpoint's input is the outer one's business";
}

TEST(Checkpoint, StopsWhenAllThatIsNeededIsThere) {
  int ends = 0;
  const auto x = at::randn({4}).requires_grad_();
  const auto y = checkpoint(
      [&ends](const at::Tensor& t) {
        auto result = t.exp() + 1;  // exp saves its result; nothing after it saves anything
        ++ends;
        return result;
      },
      x);
  EXPECT_EQ(ends, 1);
  y.sum().backward();
  EXPECT_EQ(ends, 1);
  EXPECT_TRUE(at::equal(x.grad(), x.detach().exp()));
}

TEST(Checkpoint, RunsPlainlyWithoutGradMode) {
  const at::NoGradGuard no_grad;
  Weighing weighing;
  const SavedTensorScope scope(weighing);
  EXPECT_FALSE(
      checkpoint([](const at::Tensor& t) { return t.exp(); }, at::randn({4}).requires_grad_()).requires_grad());
  EXPECT_EQ(weighing.bytes, 0u);
}

TEST(Checkpoint, TakesInputsWithoutGradientsAndAnyResult) {
  const auto weight = at::randn({4}).requires_grad_();
  struct Result {
    at::Tensor sum, product;
    std::vector<at::Tensor> more;
  };
  const auto mixed = [weight](const std::vector<at::Tensor>& many, const std::optional<at::Tensor>& none,
                              const std::tuple<at::Tensor, int>& scaled, double factor) {
    EXPECT_FALSE(none.has_value());
    auto sum = (many[0] + many[1]) * weight * factor;
    return Result{sum, (sum * std::get<0>(scaled) * std::get<1>(scaled)).exp(), {sum.sin(), at::ones({2})}};
  };
  const std::vector<at::Tensor> many{at::randn({4}), at::randn({4})};
  const std::optional<at::Tensor> none;
  const std::tuple<at::Tensor, int> scaled{at::randn({4}).requires_grad_(), 2};
  const auto gradients = [&](const Result& r) {
    return torch::autograd::grad({(r.sum + r.product + r.more[0]).sum()}, {weight, std::get<0>(scaled)});
  };
  expect_equal(gradients(mixed(many, none, scaled, 0.5)), gradients(checkpoint(mixed, many, none, scaled, 0.5)));
}

TEST(Checkpoint, AllowsDoubleBackward) {
  const auto x = at::randn({4}, at::kDouble).requires_grad_();
  const auto penalty = [&x](bool checkpointed) {
    const auto f = [](const at::Tensor& t) { return (t.sin() * t.exp()).tanh(); };
    const auto y = checkpointed ? checkpoint(f, x) : f(x);
    const auto g = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({g.square().sum()}, {x})[0];
  };
  EXPECT_TRUE(at::equal(penalty(false), penalty(true)));
}

TEST(Checkpoint, AllowsABackwardInsideIt) {
  const auto x = at::randn({4}, at::kDouble).requires_grad_();
  const auto slope = [](const at::Tensor& t) {
    const auto y = checkpoint([](const at::Tensor& u) { return u.sin() * u.exp(); }, t.tanh());
    return torch::autograd::grad({y.sum()}, {t}, {}, true, /*create_graph=*/true)[0].exp();
  };
  const auto plain = torch::autograd::grad({slope(x).sum()}, {x})[0];
  EXPECT_TRUE(at::equal(plain, torch::autograd::grad({checkpoint(slope, x).sum()}, {x})[0]));
}

TEST(Checkpoint, KeepsNothingAfterAPartialBackward) {
  const auto x = at::randn({4}).requires_grad_(), z = at::randn({4}).requires_grad_();
  auto held = std::make_shared<std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>>();
  const auto y = checkpoint(
      [held](const at::Tensor& a, const at::Tensor& b) {
        const auto other = b.sin().exp();
        held->push_back(storage_of(other));
        return a.exp() + other;
      },
      x, z);
  // Only x's side is run: what was recomputed for z's must not stay.
  const auto gradient = torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true)[0];
  EXPECT_TRUE(at::equal(gradient, x.detach().exp()));
  ASSERT_EQ(held->size(), 2u);
  EXPECT_TRUE((*held)[1].expired());
  const auto other = torch::autograd::grad({y.sum()}, {z})[0];
  EXPECT_TRUE(at::allclose(other, z.detach().sin().exp() * z.detach().cos()));
}

TEST(Checkpoint, UpdatesNamedStatisticsOnce) {
  at::manual_seed(2);
  nn::BatchNorm1d norm(3);
  const auto x = at::randn({8, 3}).requires_grad_();
  nn::BatchNorm1d plain(3);
  plain->forward(x).square().sum().backward();
  const auto gradient = x.grad().clone();
  x.mutable_grad().reset();

  const auto buffers = norm->buffers();
  const auto y = checkpoint(
      CheckpointPolicy{.updated = buffers}, [norm](const at::Tensor& t) mutable { return norm->forward(t).square(); },
      x);
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), gradient));
  expect_equal(norm->buffers(), plain->buffers());
  EXPECT_EQ(norm->num_batches_tracked.item<int>(), 1);
}

TEST(Checkpoint, RefusesInputsThatWereChangedInPlace) {
  const auto x = at::randn({4});
  const auto w = at::randn({4}).requires_grad_();
  const auto y = checkpoint([w](const at::Tensor& t) { return (t * w).exp(); }, x);
  x.add_(1);
  EXPECT_THROW(y.sum().backward(), Error);
}

TEST(Checkpoint, RefusesWeightsThatWereChangedInPlace) {
  const auto x = at::randn({4}).requires_grad_();
  const auto w = at::randn({4}).requires_grad_();
  const auto y = checkpoint([w](const at::Tensor& t) { return t * w; }, x);
  w.detach().add_(1);
  EXPECT_THROW(y.sum().backward(), Error);
}

TEST(Checkpoint, RefusesWhatTheRegionItselfChangedAfterSavingIt) {
  const auto x = at::randn({4}).requires_grad_();
  const auto loss = [&x](int run_that_changes) {
    const auto runs = std::make_shared<int>(0);
    const auto changes = [=](const at::Tensor& t) {
      auto y = t.exp();  // saves its result
      if (++*runs == run_that_changes) y.mul_(2);
      return y.sin();
    };
    return checkpoint(changes, x).sum();
  };
  EXPECT_THROW(loss(1).backward(), Error);
  EXPECT_THROW(loss(2).backward(), Error);
  EXPECT_NO_THROW(loss(3).backward());
}

std::string message_of(const at::Tensor& loss) {
  try {
    loss.backward();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Checkpoint, NamesWhatIsRecomputedDifferently) {
  const auto x = at::randn({4, 4}).requires_grad_();
  const std::string path = "layers.2";
  const trace::ModuleScope module(path);
  int runs = 0;
  const auto shape = checkpoint([&](const at::Tensor& t) { return t.narrow(0, 0, ++runs).exp(); }, x).sum();
  const auto message = message_of(shape);
  EXPECT_THAT(message, HasSubstr("Recomputing layers.2"));
  EXPECT_THAT(message, HasSubstr("ExpBackward0"));
  EXPECT_THAT(message, HasSubstr("Float [1, 4] on cpu, now Float [2, 4] on cpu"));

  runs = 0;
  const auto count = checkpoint([&](const at::Tensor& t) { return ++runs == 1 ? t.exp().sin().sin() : t.exp(); }, x);
  EXPECT_THAT(message_of(count.sum()), HasSubstr("Recomputing layers.2 saved 1 tensors, its forward 3."));

  runs = 0;
  const auto dtype =
      checkpoint([&](const at::Tensor& t) { return t.to(++runs == 1 ? at::kFloat : at::kDouble).exp(); }, x);
  EXPECT_THAT(message_of(dtype.sum()), HasSubstr("was Float [4, 4] on cpu, now Double [4, 4] on cpu"));
}

TEST(Checkpoint, SurvivesAnExceptionInTheSecondRun) {
  Blocks blocks;
  int runs = 0;
  const auto loss = checkpoint(
                        [&](const at::Tensor& t) {
                          auto y = blocks.block(0, t);
                          if (++runs == 2) throw std::runtime_error("second run");
                          return blocks.block(1, y);
                        },
                        at::randn({8, 16}))
                        .sum();
  const auto generator = at::detail::getDefaultCPUGenerator().get_state();
  EXPECT_THROW(loss.backward({}, /*retain_graph=*/true), std::runtime_error);
  EXPECT_TRUE(at::equal(generator, at::detail::getDefaultCPUGenerator().get_state()));
  EXPECT_FALSE(trace::current().recompute);
  EXPECT_TRUE(at::GradMode::is_enabled());
  loss.backward();  // the third run works
  for (auto& p : blocks.parameters()) p.mutable_grad().reset();

  Blocks plain;
  plain.step(How::kPlain);
  Blocks later;
  later.step(How::kCheckpointed);
  expect_equal(plain.parameters(), later.parameters());
}

TEST(Checkpoint, SurvivesEveryAllocationThatFails) {
  Blocks blocks;
  trace::PeakMeter meter;
  int failed = 0;
  for (bool done = false; !done; ++failed) {
    const record::Recorder recorder(meter, {.cap = std::nullopt, .clock = false, .fail_at = failed});
    try {
      blocks.forward(at::randn({8, 16}), How::kTwoInOne).square().mean().backward();
      done = true;
    } catch (const record::OutOfMemoryError&) {
    }
    EXPECT_FALSE(trace::current().recompute);
    EXPECT_TRUE(at::GradMode::is_enabled());
    for (auto& p : blocks.parameters()) p.mutable_grad().reset();
  }
  EXPECT_GT(failed, 50);
  Blocks plain;
  plain.step(How::kPlain);
  Blocks later;
  later.step(How::kTwoInOne);
  expect_equal(plain.parameters(), later.parameters());
}

TEST(Checkpoint, LowersThePeak) {
  const auto peak = [](How how) {
    Blocks blocks;
    trace::PeakMeter meter;
    const record::Recorder recorder(meter);
    blocks.forward(at::randn({512, 16}), how).square().mean().backward();
    return meter.peak();
  };
  // A block keeps its input (32 KiB) instead of that, two of twice and one of half its size, and one again.
  EXPECT_LT(peak(How::kCheckpointed).count(), peak(How::kPlain).count() * 6 / 10);
}

TEST(Checkpoint, MarksItsSecondRunInItsModule) {
  const std::string path = "layers.1";
  std::vector<std::string> modules;
  std::vector<trace::Context> seen;
  at::Tensor y;
  {
    const trace::PhaseScope forward(trace::Phase::kForward, 7);
    const trace::ModuleScope module(path);
    const auto noted = [&](const at::Tensor& t) {
      seen.push_back(trace::current());
      modules.push_back(*seen.back().module);
      return t.exp();
    };
    y = checkpoint(noted, at::randn({4}).requires_grad_()).sum();
  }
  const trace::PhaseScope backward(trace::Phase::kBackward, 8);
  y.backward();
  EXPECT_EQ(modules, std::vector<std::string>({path, path}));
  EXPECT_FALSE(seen[0].recompute);
  EXPECT_TRUE(seen[1].recompute);
  EXPECT_EQ(seen[1].phase, trace::Phase::kBackward);
  EXPECT_EQ(seen[1].step, 8u);
}

TEST(Checkpoint, ReleasesItsInputsWithTheGraph) {
  auto x = at::randn({4});
  const auto weak = storage_of(x);
  const auto w = at::randn({4}).requires_grad_();
  auto loss = checkpoint([w](const at::Tensor& t) { return (t * w).exp(); }, std::move(x)).sum();
  EXPECT_FALSE(weak.expired());
  loss.backward();
  EXPECT_TRUE(weak.expired()) << "loss lives, but its graph has been run";
}

}  // namespace
}  // namespace cinch::techniques
