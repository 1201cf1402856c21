// Selective checkpointing, determinism checks, and what checkpoints must bear together.
#include <functional>
#include <string>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/activation_checkpoint.h"
#include "cinch/techniques/compress.h"
#include "cinch/techniques/offload.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/sink.h"

namespace cinch::techniques {
namespace {

using testing::HasSubstr;
using Region = std::function<at::Tensor(const at::Tensor&)>;

void expect_equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << "tensor " << i;
}

CheckpointPolicy selective() {
  CheckpointPolicy policy;
  policy.keep = OpSet::matmuls_and_attention();
  return policy;
}

/// Attention block with dropout: linear layers, attention, views, in-place ops.
struct Block {
  Block() {
    at::manual_seed(4);
    for (auto* weight : {&in, &out, &up, &down}) *weight = at::randn({32, 32}).div_(6).requires_grad_();
    bias = at::randn({32}).requires_grad_();
  }
  at::Tensor operator()(const at::Tensor& x) const {  // [batch, time, 32]
    const auto q = at::linear(at::layer_norm(x, {32}), in).view({x.size(0), x.size(1), 4, 8}).transpose(1, 2);
    auto y = at::scaled_dot_product_attention(q, q, q, {}, 0, true).transpose(1, 2).reshape(x.sizes());
    y = x + at::dropout(at::linear(y, out, bias), 0.2, true);
    return y + at::dropout(at::linear(at::gelu(at::linear(y, up)), down), 0.2, true);
  }
  std::vector<at::Tensor> weights() const { return {in, out, up, down, bias}; }
  at::Tensor in, out, up, down, bias;
};

/// Gradients after three blocks, each run as `how` says, and the generator's state.
std::vector<at::Tensor> gradients(const std::function<at::Tensor(const Block&, const at::Tensor&)>& how) {
  const Block block;
  auto x = at::randn({2, 12, 32});
  for (int i = 0; i < 3; ++i) x = how(block, x);
  auto all = torch::autograd::grad({x.square().mean()}, block.weights());
  all.push_back(at::detail::getDefaultCPUGenerator().get_state());
  return all;
}
std::vector<at::Tensor> plain() {
  return gradients([](const Block& block, const at::Tensor& x) { return block(x); });
}

TEST(SelectiveCheckpoint, GivesBitwiseTheSameGradients) {
  for (const auto check : {DeterminismCheck::kNone, DeterminismCheck::kOps, DeterminismCheck::kValues}) {
    auto policy = selective();
    policy.determinism = check;
    expect_equal(plain(),
                 gradients([&](const Block& block, const at::Tensor& x) { return checkpoint(policy, block, x); }));
  }
}

TEST(SelectiveCheckpoint, BearsNesting) {
  const auto policy = selective();
  const auto inner = [&](const Block& block) {
    return [=](const at::Tensor& t) { return checkpoint(policy, block, t); };
  };
  expect_equal(plain(),
               gradients([&](const Block& block, const at::Tensor& x) { return checkpoint(inner(block), x); }));
  expect_equal(plain(),
               gradients([&](const Block& block, const at::Tensor& x) { return checkpoint(policy, inner(block), x); }));
  expect_equal(plain(), gradients([&](const Block& block, const at::Tensor& x) {
                 return checkpoint(
                     policy, [&](const at::Tensor& t) { return checkpoint(block, t); }, x);
               }));
}

TEST(SelectiveCheckpoint, RunsTheKeptOpsOnce) {
  // Ops that run are seen by what they allocate: a matrix product of this size is like nothing else.
  class Counter final : public trace::Sink {
   public:
    void on_event(const trace::Event& event) override {
      products += event.action == trace::Action::kAlloc && event.bytes == Bytes(7 * 300 * 4);
      others += event.action == trace::Action::kAlloc && event.bytes == Bytes(7 * 301 * 4);
    }
    int products = 0, others = 0;
  };
  const auto count = [](const CheckpointPolicy& policy, bool retain) {
    Counter counter;
    const record::Recorder recorder(counter);
    const auto w = at::randn({5, 300}).requires_grad_();
    const auto y = checkpoint(
        policy,
        [w](const at::Tensor& x) {
          return at::constant_pad_nd(x.mm(w), {0, 1}).exp().narrow(1, 0, 300).sum();
        },
        at::randn({7, 5}));
    counter.products = counter.others = 0;
    y.backward({}, retain);
    if (retain) y.backward();
    return std::pair(counter.products, counter.others);
  };
  const auto [products, others] = count({}, false);
  const auto [kept_products, kept_others] = count(selective(), false);
  EXPECT_EQ(products - kept_products, 1) << "the product is not run again";
  EXPECT_EQ(others, kept_others) << "what follows it is";
  EXPECT_EQ(count({}, true).first - count(selective(), true).first, 2) << "nor in a second backward";
}

TEST(SelectiveCheckpoint, FreesEachKeptOutputWhenItHasBeenGivenBack) {
  const auto w = at::randn({64, 64}).requires_grad_();
  trace::PeakMeter meter;
  const record::Recorder recorder(meter);
  const auto before = recorder.live();
  {
    auto loss = checkpoint(
        selective(), [w](const at::Tensor& x) { return x.mm(w).exp().mm(w).exp().sum(); }, at::randn({64, 64}));
    loss.backward();
  }
  EXPECT_EQ(recorder.live(), before + Bytes(64 * 64 * 4)) << "the gradient";
}

TEST(SelectiveCheckpoint, RunsAnOpAgainWhoseOutputWasChangedInPlace) {
  const auto region = [](const at::Tensor& w) {
    return [w](const at::Tensor& x) { return x.mm(w).mul_(2).relu_().mm(w).exp_(); };
  };
  const auto w = at::randn({16, 16}).requires_grad_();
  const auto x = at::randn({8, 16}).requires_grad_();
  expect_equal(torch::autograd::grad({region(w)(x).sum()}, {w, x}),
               torch::autograd::grad({checkpoint(selective(), region(w), x).sum()}, {w, x}));
}

TEST(SelectiveCheckpoint, KeepsACopyOfAProductToWhichABiasIsAddedInPlace) {
  // As torch::nn::Linear does, by way of a view that its base does not see.
  const auto w = at::randn({16, 16}).requires_grad_(), b = at::randn({16}).requires_grad_();
  const auto x = at::randn({2, 8, 16}).requires_grad_();
  const auto region = [=](const at::Tensor& t) { return t.matmul(w.t()).add_(b).tanh().matmul(w.t()).add_(b).exp(); };
  const auto run = [&](bool checkpointed) {
    const auto loss = (checkpointed ? checkpoint(selective(), region, x) : region(x)).sum();
    auto all = torch::autograd::grad({loss}, {w, b, x}, {}, /*retain_graph=*/true);
    for (auto& gradient : torch::autograd::grad({loss}, {w, b, x})) all.push_back(gradient);
    return all;
  };
  expect_equal(run(false), run(true));
}

TEST(SelectiveCheckpoint, SeesChangesThroughViewsThatTheirBaseDoesNotSee) {
  const auto w = at::randn({16, 16}).requires_grad_();
  const auto x = at::randn({8, 16}).requires_grad_();
  const auto region = [=](const at::Tensor& t) {
    const auto parts = t.mm(w).unsafe_split(8, 1);  // an LSTM cell's gates
    return parts[0].sigmoid_() * parts[1].tanh_();
  };
  expect_equal(torch::autograd::grad({region(x).sum()}, {w, x}),
               torch::autograd::grad({checkpoint(selective(), region, x).sum()}, {w, x}));
}

TEST(SelectiveCheckpoint, BearsSeveralAndPartialAndDoubleBackwards) {
  const auto run = [](bool checkpointed) {
    at::manual_seed(8);
    const auto w = at::randn({16, 16}, at::kDouble).requires_grad_(),
               v = at::randn({16, 16}, at::kDouble).requires_grad_();
    const auto x = at::randn({8, 16}, at::kDouble).requires_grad_();
    const Region region = [=](const at::Tensor& t) { return t.mm(w).tanh() * t.mm(v).sin(); };
    const auto loss = (checkpointed ? checkpoint(selective(), region, x) : region(x)).sum();
    std::vector<at::Tensor> all;
    const auto add = [&all](std::vector<at::Tensor> more) { all.insert(all.end(), more.begin(), more.end()); };
    add(torch::autograd::grad({loss}, {w, v, x}, {}, /*retain_graph=*/true));
    add(torch::autograd::grad({loss}, {v}, {}, /*retain_graph=*/true));
    const auto first = torch::autograd::grad({loss}, {w, x}, {}, true, /*create_graph=*/true);
    add(torch::autograd::grad({first[0].square().sum() + first[1].square().sum()}, {w, v, x}, {}, true));
    add(torch::autograd::grad({loss}, {v}));  // lets go of one side's graph
    add(torch::autograd::grad({loss}, {x}, {}, false, false, /*allow_unused=*/true));
    return all;
  };
  // The last one's graph is partly gone, in plain training too: it must fail alike or agree.
  std::vector<at::Tensor> expected, got;
  std::string expected_error, got_error;
  try {
    expected = run(false);
  } catch (const std::exception& error) {
    expected_error = "throws";
  }
  try {
    got = run(true);
  } catch (const std::exception& error) {
    got_error = "throws";
  }
  EXPECT_EQ(expected_error, got_error);
  expect_equal(expected, got);
}

TEST(SelectiveCheckpoint, KeptOutputsFollowTheEnclosingPolicy) {
  const auto run = [](SavedTensorPolicy& policy) {
    return gradients([&](const Block& block, const at::Tensor& x) {
      const SavedTensorScope scope(policy);
      return checkpoint(selective(), block, x);
    });
  };
  Offload offload({.in_flight = Bytes()});
  expect_equal(plain(), run(offload));
  // Input, five products' and attention's outputs a block, and attention's sums; a few at the end are still at hand.
  EXPECT_GT(offload.stats().sent, Bytes(2 * 12 * 32 * 4 * 12));
  Compress compress(Codec::kBf16, {.into = &offload});
  const auto lossy = run(compress);
  const auto exact = plain();
  for (std::size_t i = 0; i + 1 < exact.size(); ++i)
    EXPECT_LT(((lossy[i] - exact[i]).norm() / exact[i].norm()).item<double>(), 0.02);
}

TEST(SelectiveCheckpoint, RestoresTheGeneratorAfterAnOpThatDraws) {
  CheckpointPolicy policy;
  policy.keep = OpSet({"aten::native_dropout", "aten::bernoulli.p", "aten::mm"});
  const auto w = at::randn({32, 32}).requires_grad_();
  const auto region = [w](const at::Tensor& x) {
    const auto noise = at::bernoulli(x, 0.5);  // kept, and not run again
    return at::dropout((x.mm(w) * noise).exp(), 0.5, true);
  };
  const auto run = [&](bool checkpointed) {
    at::manual_seed(1);
    const auto x = at::randn({16, 32});
    return torch::autograd::grad({(checkpointed ? checkpoint(policy, region, x) : region(x)).square().sum()}, {w});
  };
  expect_equal(run(false), run(true));
}

TEST(SelectiveCheckpoint, NegatesWhatLibTorchHasPutOff) {
  static_cast<void>(OpSet::matmuls_and_attention());
  const auto z = at::randn({4, 4}, at::kComplexFloat);
  const auto negative = at::imag(z.conj());
  ASSERT_TRUE(negative.is_neg());
  EXPECT_TRUE(at::equal(negative.mm(at::eye(4)), -at::imag(z)));
  const auto w = at::eye(4).requires_grad_();
  const auto y = checkpoint(
      selective(), [w](const at::Tensor& t) { return t.mm(w).exp() * t; }, negative);
  EXPECT_TRUE(at::equal(y, (-at::imag(z)).exp() * -at::imag(z)));
  y.sum().backward();
}

TEST(SelectiveCheckpoint, SurvivesEveryAllocationThatFails) {
  const auto expected = plain();
  trace::PeakMeter meter;
  int failed = 0;
  for (bool done = false; !done; ++failed) {
    const record::Recorder recorder(meter, {.cap = std::nullopt, .clock = false, .fail_at = failed * 3});
    try {
      gradients([](const Block& block, const at::Tensor& x) { return checkpoint(selective(), block, x); });
      done = true;
    } catch (const record::OutOfMemoryError&) {
    }
    EXPECT_FALSE(trace::current().recompute);
  }
  EXPECT_GT(failed, 20);
  expect_equal(expected,
               gradients([](const Block& block, const at::Tensor& x) { return checkpoint(selective(), block, x); }));
}

TEST(OpSet, RefusesWhatCannotBeKept) {
  EXPECT_THROW(OpSet({"aten::mn"}), UsageError);
  EXPECT_THROW(OpSet({"aten::view"}), UsageError);
  EXPECT_THROW(OpSet({"aten::relu_"}), UsageError);
  EXPECT_THROW(OpSet({"aten::split.Tensor"}), UsageError);
  EXPECT_TRUE(OpSet().empty());
  EXPECT_FALSE(OpSet::matmuls_and_attention().empty());
}

// ---- determinism
// -----------------------------------------------------------------------------------------------------

/// What the error says when `region`, told how often it has run, does something else the second time.
std::string difference(CheckpointPolicy policy, const std::function<at::Tensor(const at::Tensor&, int run)>& region) {
  const std::string path = "layers.2";
  const trace::ModuleScope module(path);
  const auto runs = std::make_shared<int>(0);
  const auto x = at::randn({4, 4}).requires_grad_();
  const auto loss = checkpoint(
                        policy, [=](const at::Tensor& t) { return region(t, ++*runs); }, x)
                        .sum();
  try {
    loss.backward();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Determinism, NamesTheFirstOpThatIsAnother) {
  CheckpointPolicy policy;
  policy.determinism = DeterminismCheck::kOps;
  const auto region = [](const at::Tensor& t, int run) { return run == 1 ? t.exp().sin().exp() : t.exp().cos().exp(); };
  EXPECT_EQ(difference(policy, region),
            "Recomputing layers.2 did something else than its forward: op 1 was aten::sin, now aten::cos.");
  EXPECT_EQ(difference({}, region), "no error") << "shapes are the same";
}

TEST(Determinism, NamesTheOpWhoseValuesAreOther) {
  CheckpointPolicy policy;
  policy.determinism = DeterminismCheck::kValues;
  const auto region = [](const at::Tensor& t, int run) { return (t * (run == 1 ? 2 : 3)).exp().sin(); };
  EXPECT_EQ(
      difference(policy, region),
      "Recomputing layers.2 did something else than its forward: op 0, aten::mul, gave other values than before.");
  policy.determinism = DeterminismCheck::kOps;
  EXPECT_EQ(difference(policy, region), "no error");
  policy.determinism = DeterminismCheck::kValues;
  policy.preserve_rng_state = false;
  EXPECT_THAT(difference(policy, [](const at::Tensor& t, int) { return at::dropout(t, 0.5, true).exp(); }),
              HasSubstr("aten::dropout"));
}

TEST(Determinism, NamesTheKeptOpThatIsAnother) {
  const auto region = [](const at::Tensor& t, int run) { return run == 1 ? t.mm(t).exp() : at::addmm(t, t, t).exp(); };
  EXPECT_THAT(difference(selective(), region), HasSubstr("kept op 0 was aten::mm, now aten::addmm"));
}

TEST(Determinism, IsSilentWhereAllIsTheSame) {
  CheckpointPolicy policy;
  policy.determinism = DeterminismCheck::kValues;
  const auto region = [](const at::Tensor& t, int) {
    auto buffer = at::empty({4, 4});  // whatever is in it
    buffer.narrow(0, 0, 2).copy_(t.detach().narrow(0, 0, 2));
    buffer.narrow(0, 2, 2).zero_();
    return checkpoint([](const at::Tensor& u) { return u.exp().sin(); }, at::dropout(t.t(), 0.3, true) + buffer).tanh();
  };
  EXPECT_EQ(difference(policy, region), "no error");
}

// ---- together
// --------------------------------------------------------------------------------------------------------

TEST(Checkpoint, RecomputesRreluAsItWas) {
  const auto region = [](const at::Tensor& t) { return at::rrelu(t * 2, 0.1, 0.5, true).exp(); };
  const auto run = [&](int how) {
    at::manual_seed(3);
    const auto x = at::randn({32, 32}).requires_grad_();
    Offload offload({.in_flight = Bytes()});
    at::Tensor y;
    {
      const SavedTensorScope scope(offload);
      y = (how == 0   ? region(x)
           : how == 1 ? checkpoint(region, x)
                      : checkpoint(selective(), region, x)) +
          x.exp().sin();
    }
    return torch::autograd::grad({y.sum()}, {x});
  };
  expect_equal(run(0), run(1));
  expect_equal(run(0), run(2));
}

TEST(Checkpoint, BearsDoubleBackwardWhenNested) {
  const auto x = at::randn({4}, at::kDouble).requires_grad_();
  const auto penalty = [&x](int how) {
    const Region inner = [](const at::Tensor& t) { return (t.sin() * t.exp()).tanh(); };
    const Region outer = [&](const at::Tensor& t) { return (how == 2 ? checkpoint(inner, t) : inner(t)).cos() * t; };
    const auto y = how > 0 ? checkpoint(outer, x) : outer(x);
    const auto g = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    const auto h = torch::autograd::grad({g.square().sum()}, {x}, {}, true, /*create_graph=*/true)[0];
    return torch::autograd::grad({h.sum()}, {x})[0];
  };
  EXPECT_TRUE(at::equal(penalty(0), penalty(1)));
  EXPECT_TRUE(at::equal(penalty(0), penalty(2)));
}

TEST(Checkpoint, GivesGradientsToWhatTheFunctionCaptures) {
  struct Options {
    at::Tensor scale, shift;
    double power;
  };
  const Options options{at::randn({4}).requires_grad_(), at::randn({4}).requires_grad_(), 2.0};
  const auto region = [options](const at::Tensor& t) {
    return (t * options.scale + options.shift).pow(options.power).exp();
  };
  const auto x = at::randn({3, 4});  // needs no gradient itself
  const auto gradients = [&](const at::Tensor& y) {
    return torch::autograd::grad({y.sum()}, {options.scale, options.shift});
  };
  expect_equal(gradients(region(x)), gradients(checkpoint(region, x)));
  expect_equal(gradients(region(x)), gradients(checkpoint(selective(), region, x)));
}

}  // namespace
}  // namespace cinch::techniques
