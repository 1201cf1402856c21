// What runs in the midst of backward, and tensors whose memory changes hands: dry and recorded, to the byte.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cinch/dryrun/internal/run_both_test.h"
#include "cinch/trace/scope.h"

namespace cinch::dryrun {
namespace {
using internal::expect_same;
using internal::expect_same_memory;
using internal::run_both;

class Both : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Threads, Both, ::testing::Values(1, 2));

at::Tensor leaf(at::IntArrayRef sizes) { return at::rand(sizes).set_requires_grad(true); }

/// In steps with phases, so that what lives after each is compared too.
template <class Forward>
void train(
    std::uint32_t steps, const Forward& forward, const std::function<void()>& update = [] {}) {
  for (std::uint32_t step = 1; step <= steps; ++step) {
    at::Tensor loss;
    {
      const trace::PhaseScope phase(trace::Phase::kForward, step);
      loss = forward();
    }
    {
      const trace::PhaseScope phase(trace::Phase::kBackward, step);
      loss.backward();
    }
    const trace::PhaseScope phase(trace::Phase::kOptimizer, step);
    update();
  }
}

// ---- hooks of tensors -----------------------------------------------------------------------------------------------

TEST_P(Both, HooksOfTensorsMakeOthers) {
  expect_same_memory([] {
    const auto w = leaf({80, 90}), x = at::rand({70, 80});
    std::vector<at::Tensor> kept;
    w.register_hook([&](const at::Tensor& gradient) { kept.push_back(gradient.abs().to(at::kDouble)); });
    w.register_hook([](const at::Tensor& gradient) { return gradient / gradient.norm().clamp_min(1e-3); });
    train(2, [&] {
      const auto y = x.matmul(w).tanh();
      y.register_hook([](const at::Tensor& gradient) { return gradient.clone().mul_(2); });
      y.register_hook([&](const at::Tensor& gradient) { kept.push_back(gradient.sum(0)); });
      return y.square().mean();
    });
  });
}

TEST_P(Both, AHookThatWasRemovedDoesNothing) {
  expect_same_memory([] {
    const auto w = leaf({80, 90});
    const auto hook = w.register_hook([](const at::Tensor& gradient) {
      return at::cat({gradient, gradient}).narrow(0, 0, 80);
    });
    train(1, [&] { return w.square().sum(); });
    w.remove_hook(hook);
    train(1, [&] { return w.square().sum(); });
  });
}

TEST_P(Both, RetainedGradientsStay) {
  expect_same_memory([] {
    const auto w = leaf({80, 90}), x = at::rand({70, 80});
    std::vector<at::Tensor> middle;
    train(2, [&] {
      middle.assign({x.matmul(w)});
      middle.push_back(middle.front().relu());
      for (const auto& tensor : middle) tensor.retain_grad();
      return middle.back().square().sum();
    });
  });
}

TEST_P(Both, HooksOfTheGraphsNodes) {
  struct Doubled final : torch::autograd::FunctionPostHook {
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      torch::autograd::variable_list doubled;
      for (const auto& output : outputs) doubled.push_back(output.defined() ? output * 2 : output);
      return doubled;
    }
  };
  expect_same_memory([] {
    const auto w = leaf({80, 90}), x = at::rand({70, 80});
    train(2, [&] {
      const auto y = x.matmul(w);
      y.grad_fn()->add_post_hook(std::make_unique<Doubled>());
      return y.sum();
    });
  });
}

// ---- hooks of accumulated gradients ---------------------------------------------------------------------------------

struct OnGradient final : torch::autograd::PostAccumulateGradHook {
  explicit OnGradient(std::function<void(const at::Tensor&)> work) : work(std::move(work)) {}
  void operator()(const at::Tensor& parameter) override { work(parameter); }
  std::function<void(const at::Tensor&)> work;
};

/// Each parameter steps as soon as its gradient is there, and lets it go.
void step_in_backward(const at::Tensor& parameter) {
  auto momentum = std::make_shared<at::Tensor>();
  torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                 std::make_unique<OnGradient>([momentum](const at::Tensor& of) {
                                                   const at::NoGradGuard no_grad;
                                                   if (!momentum->defined()) *momentum = at::zeros_like(of);
                                                   momentum->mul_(0.9).add_(of.grad());
                                                   of.sub_(*momentum, 1e-3);
                                                   of.mutable_grad().reset();
                                                 }));
}

/// A chain of layers, and how it ends.
template <class Prepare>
auto chain(Prepare prepare, bool updates_after) {
  return [=] {
    std::vector<torch::nn::Linear> layers;
    {
      const trace::PhaseScope init(trace::Phase::kInit, 0);
      for (int i = 0; i < 4; ++i) layers.emplace_back(100, 100);
    }
    for (auto& layer : layers)
      for (const auto& parameter : layer->parameters()) prepare(parameter);
    const auto x = at::rand({60, 100});
    train(
        3,
        [&] {
          auto y = x;
          for (auto& layer : layers) y = layer->forward(y).tanh();
          return y.square().mean();
        },
        [&] {
          if (!updates_after) return;
          const at::NoGradGuard no_grad;
          for (auto& layer : layers)
            for (const auto& parameter : layer->parameters()) {
              parameter.sub_(parameter.grad(), 1e-3);
              parameter.mutable_grad().reset();
            }
        });
  };
}

TEST_P(Both, SteppingInBackwardFreesEachGradient) {
  expect_same_memory(chain(step_in_backward, false));
  const auto stepping = run_both(chain(step_in_backward, false)),
             after = run_both(chain([](const at::Tensor&) {}, true));
  expect_same(after);
  const trace::Timeline left(stepping.predicted), right(after.predicted);
  EXPECT_LT(left.peak(2).bytes - Bytes(4 * 40400), right.peak(2).bytes) << "momentum aside, no four gradients at once";
}

TEST_P(Both, AHookOfAGradientMayKeepACastOfIt) {
  expect_same_memory([] {
    const auto w = leaf({80, 90});
    std::vector<at::Tensor> kept;
    torch::autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<OnGradient>([&](const at::Tensor& of) {
                                                     kept.push_back(of.grad().to(at::kBFloat16));
                                                     of.mutable_grad() = at::Tensor();
                                                   }));
    train(3, [&] { return (w * w).exp().sum(); });
    torch::autograd::impl::post_acc_grad_hooks(w).reset();
  });
}

// ---- memory that changes hands --------------------------------------------------------------------------------------

TEST_P(Both, SetTakesOverTheMemoryOfAnother) {
  expect_same_memory([] {
    auto a = at::rand({60, 70});
    {
      const auto b = at::rand({90, 80});
      a.set_(b);  // Its own memory goes, the other's stays.
    }
    const auto c = at::rand({50, 50});
    a.set_(c.storage(), 100, {20, 30}, {30, 1});
    const auto d = at::rand({50, 60}), e = a + 1;
    a.set_(d.storage());
    a.add_(1);
    a.set_();
    const auto f = at::rand({100, 100});
    a.set_(f, 50, {10, 900}, {900, 1});
    const auto g = a.clone();
  });
}

TEST_P(Both, SetBetweenSmallAndLarge) {
  expect_same_memory([] {
    auto small = at::rand({10}), large = at::rand({80, 90});
    const auto other = at::rand({70, 70});
    small.set_(other);
    large.set_(at::rand({5}));
    const auto sum = small + 1, half = large * 0.5;
    auto flat = at::rand({10000});
    std::vector<at::Tensor> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(at::empty({0}).set_(flat.storage(), i * 2500, {50, 50}, {50, 1}));
    flat = at::Tensor();
    parts.resize(1);
    const auto product = parts[0].matmul(parts[0]);
  });
}

TEST_P(Both, SetGrowsMemoryThatIsTooSmall) {
  expect_same_memory([] {
    const auto source = at::rand({60, 60});
    auto a = at::empty({0});
    a.set_(source.storage(), 0, {100, 100}, {100, 1});
    const auto b = a + 1;
  });
}

TEST_P(Both, DataIsSwapped) {
  expect_same_memory([] {
    auto layer = torch::nn::Linear(90, 80);
    const auto x = at::rand({70, 90});
    const auto full = layer->weight.detach();
    for (int step = 0; step < 2; ++step) {
      layer->weight.set_data(full.to(at::kDouble).to(at::kFloat));  // The weight it computes with; the master is kept.
      train(1, [&] { return layer->forward(x).square().mean(); });
      layer->weight.set_data(at::empty({80, 90}));
      layer->weight.set_data(full);
      layer->weight.mutable_grad().reset();
    }
    auto a = at::rand({60, 60}), b = at::rand({90, 90});
    const auto kept = a.detach();
    a.set_data(b);
    b.set_data(kept);
    const auto c = a + 1, d = b + 1;
    auto moved = at::rand({80, 80});
    moved.set_data(moved.to(at::kBFloat16));
    moved.set_data(at::rand({3}));
    const auto e = moved + 1;
  });
}

TEST_P(Both, AWeightShrinksAndComesBack) {
  expect_same_memory([] {
    auto w = leaf({90, 80});
    for (int step = 0; step < 2; ++step) {
      train(1, [&] { return (w * w).sum(); });
      const at::NoGradGuard no_grad;
      w.set_data(at::empty({0}));
      w.mutable_grad().reset();
      w.set_data(at::rand({90, 80}));
    }
  });
}

TEST_P(Both, ResizeAndOut) {
  expect_same_memory([] {
    auto a = at::empty({0}), b = at::rand({70, 80}), c = at::empty({70, 80}), index = at::empty({0}, at::kLong);
    a.resize_({50, 60}).resize_({10, 10}).resize_({90, 90});
    a.resize_as_(b);
    a.resize_({30, 3, 20, 5}, at::MemoryFormat::ChannelsLast);
    at::mul_out(c, b, b);
    at::exp_out(c, c);
    at::matmul_out(a = at::empty({0}), b, b.t());
    at::stack_out(a = at::empty({0}), {b, b, b});
    at::sum_out(a = at::empty({70}), b, at::IntArrayRef{1});
    at::max_out(a = at::empty({0}), index, b, 1);
    at::sort_out(a = at::empty({0}), index, b, 1);
    at::index_select_out(a = at::empty({0}), b, 0, at::arange(60));
    at::addmm_out(a = at::empty({70, 70}), at::zeros({70}), b, b.t());
    at::arange_out(a = at::empty({0}), 5000);
    at::randn_out(a = at::empty({0}), {60, 70});
    at::gather_out(a = at::empty({0}), b, 1, at::zeros({70, 40}, at::kLong));
    at::where_out(a = at::empty({0}), b > 0.5, b, c);
    at::softmax_out(a = at::empty({0}), b, 1);
    at::bmm_out(a = at::empty({0}), at::rand({3, 40, 50}), at::rand({3, 50, 60}));
    at::cumsum_out(a = at::empty({0}), b, 0);
    at::clamp_out(a = at::empty({0}), b, 0.2, 0.8);
  });
}
}  // namespace
}  // namespace cinch::dryrun
