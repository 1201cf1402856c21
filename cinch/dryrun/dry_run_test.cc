#include "cinch/dryrun/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "cinch/dryrun/internal/check_rules.h"
#include "cinch/dryrun/op_rules.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"

namespace cinch::dryrun {
namespace {
namespace nn = torch::nn;

/// The same program, dry and real.
template <class Program>
void expect_same_memory(const Program& program) {
  trace::Trace predicted, recorded;
  {
    DryRun dry(predicted, device::find("cpu"));
    program();
  }
  {
    record::Recorder recorder(recorded);
    program();
  }
  const auto fault = trace::compare_phase_ends(predicted, recorded);
  EXPECT_EQ(fault.value_or("none"), "none");
  EXPECT_EQ(trace::Timeline(predicted).peak().bytes, trace::Timeline(recorded).peak().bytes);
  EXPECT_GT(trace::Timeline(predicted).peak().bytes, Bytes());
  trace::Trace checked;
  internal::CheckRules check;
  {
    DryRun dry(checked, device::find("cpu"));
    program();
  }
  EXPECT_THAT(internal::CheckRules::faults(), ::testing::IsEmpty());
}

/// Two training steps of a network built inside; `inputs` makes a batch, `loss` ends in a scalar.
template <class MakeNet, class MakeInputs, class Loss>
auto training(MakeNet make_net, MakeInputs make_inputs, Loss loss_of, bool adamw = false) {
  return [=] {
    auto net = [&] {
      trace::PhaseScope phase(trace::Phase::kInit, 0);
      return make_net();
    }();
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    if (adamw) optimizer = std::make_unique<torch::optim::AdamW>(net->parameters());
    else optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    for (std::uint32_t step = 1; step <= 2; ++step) {
      at::Tensor x, loss;
      {
        trace::PhaseScope phase(trace::Phase::kData, step);
        x = make_inputs();
      }
      optimizer->zero_grad();
      {
        trace::PhaseScope phase(trace::Phase::kForward, step);
        loss = loss_of(net, x);
      }
      {
        trace::PhaseScope phase(trace::Phase::kBackward, step);
        loss.backward();
      }
      trace::PhaseScope phase(trace::Phase::kOptimizer, step);
      optimizer->step();
    }
  };
}

const auto cross_entropy = [](auto& net, const at::Tensor& x) {
  const auto y = net->forward(x);
  return nn::functional::cross_entropy(y.flatten(0, -2), at::zeros({y.numel() / y.size(-1)}, at::kLong));
};
const auto mean_square = [](auto& net, const at::Tensor& x) { return net->forward(x).square().mean(); };
auto random(std::vector<std::int64_t> sizes) {
  return [=] { return at::rand(sizes); };
}

class DryRunOf : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { at::set_num_threads(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Threads, DryRunOf, ::testing::Values(1, 2));

TEST_P(DryRunOf, AnMlp) {
  const auto net = [] {
    return nn::Sequential(nn::Linear(784, 512), nn::ReLU(), nn::Dropout(0.1), nn::Linear(512, 300), nn::GELU(), nn::Linear(300, 10));
  };
  expect_same_memory(training(net, random({64, 784}), cross_entropy));
  expect_same_memory(training(net, random({33, 784}), cross_entropy, /*adamw=*/true));
}

TEST_P(DryRunOf, AConvolutionalNet) {
  const auto net = [] {
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(3, 16, 3).padding(1)), nn::BatchNorm2d(16), nn::ReLU(true), nn::MaxPool2d(2),
                          nn::Conv2d(nn::Conv2dOptions(16, 32, 3).stride(2)), nn::BatchNorm2d(32), nn::ReLU(),
                          nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(32, 10));
  };
  expect_same_memory(training(net, random({8, 3, 32, 32}), cross_entropy));
}

TEST_P(DryRunOf, ATransformerLayer) {
  const auto net = [] {
    return nn::Sequential(nn::Linear(64, 64), nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(64, 4).dim_feedforward(256)),
                          nn::LayerNorm(nn::LayerNormOptions({64})), nn::Linear(64, 100));
  };
  expect_same_memory(training(net, random({96, 2, 64}), cross_entropy, /*adamw=*/true));
}

TEST_P(DryRunOf, OtherLayers) {
  expect_same_memory(training([] { return nn::Sequential(nn::ConvTranspose2d(8, 12, 3), nn::GroupNorm(3, 12), nn::SiLU(), nn::AvgPool2d(2)); },
                              random({4, 8, 20, 20}), mean_square));
  expect_same_memory(training([] { return nn::Sequential(nn::Linear(90, 120), nn::LeakyReLU(), nn::BatchNorm1d(120), nn::Tanh(), nn::Linear(120, 90), nn::Sigmoid()); },
                              random({50, 90}), mean_square));
  expect_same_memory(training([] { return nn::Sequential(nn::Conv1d(20, 30, 5), nn::ELU(), nn::Softplus(), nn::Softmax(1)); },
                              random({6, 20, 100}), mean_square));
}

TEST_P(DryRunOf, AnEmbedding) {
  expect_same_memory(training([] { return nn::Sequential(nn::Embedding(1000, 48), nn::Linear(48, 1000)); },
                              [] { return at::zeros({16, 40}, at::kLong); }, cross_entropy));
}

TEST_P(DryRunOf, EvaluationWithoutGradients) {
  expect_same_memory([] {
    auto net = nn::Sequential(nn::Linear(300, 400), nn::ReLU(), nn::Linear(400, 300));
    net->eval();
    const at::NoGradGuard no_grad;
    net->forward(at::rand({70, 300}));
    const c10::InferenceMode inference;
    net->forward(at::rand({70, 300}));
  });
}

TEST_P(DryRunOf, ViewsInPlaceAndTransposedOperands) {
  expect_same_memory([] {
    auto a = at::rand({200, 300}).set_requires_grad(true), b = at::rand({200, 300}).set_requires_grad(true);
    auto c = at::matmul(a, b.t()).slice(0, 10, 150).add_(1).transpose(0, 1).contiguous();
    at::cat({c, c}, 0).narrow(1, 3, 100).reshape({-1}).sum().backward();
    auto d = a.detach().clone().t().clone(at::MemoryFormat::Contiguous).expand({2, 300, 200}).mul(2.0).to(at::kDouble);
    at::stack({d, d}).select(0, 1).mean();
  });
}

TEST_P(DryRunOf, Factories) {
  expect_same_memory([] {
    const auto a = at::arange(5000), b = at::linspace(0, 1, 3000), c = at::eye(70), d = at::randperm(4000), e = at::full({60, 60}, 2.0);
    const auto f = at::randn_like(e), g = at::ones({3000}, at::kLong), h = at::randint(9, {2500}), i = at::zeros_like(e, at::kDouble);
    const auto j = at::empty({4, 8, 20, 20}).contiguous(at::MemoryFormat::ChannelsLast), l = at::hardtanh(f);
    const auto k = at::var_mean(f);
  });
}

// ---- what a dry run is ----------------------------------------------------------------------------------------------

struct DryRunRules : ::testing::Test {
  trace::Trace trace;
  DryRun dry{trace, device::find("cpu")};
};

TEST_F(DryRunRules, TensorsAreFakeAndTakeNoMemory) {
  const auto huge = at::empty({1 << 20, 1 << 20});  // 4 TiB
  EXPECT_TRUE(is_fake(huge));
  EXPECT_EQ(trace::Timeline(trace).peak().bytes, Bytes(std::int64_t{4} << 40));
  EXPECT_EQ(fake_bytes_alive(), Bytes(std::int64_t{4} << 40));
}

TEST_F(DryRunRules, ReadingDataOfAFakeTensorThrows) {
  const auto fake = at::rand({100, 100});
  EXPECT_THROW(fake.data_ptr<float>()[0] = 1, std::exception);
  EXPECT_THROW(static_cast<void>(fake.const_data_ptr<float>()), std::exception);
}

TEST_F(DryRunRules, SmallTensorsStayReal) {
  const auto list = at::tensor({1.0, 2.0, 3.0});
  EXPECT_FALSE(is_fake(list));
  EXPECT_EQ((list * 2).sum().item<double>(), 12);
  auto count = at::zeros({});
  count += 1;
  EXPECT_EQ(count.item<float>(), 1);
  EXPECT_EQ(at::rand({100, 100}).mean().item<float>(), 1) << "nobody knows: the documented stand-in";
}

TEST_F(DryRunRules, ASizeThatDependsOnValuesWithoutABoundNamesOpAndModule) {
  const std::string path = "encoder.counts";
  const record::ForwardModule module(path);
  try {
    at::bincount(at::zeros({5000}, at::kLong));
    FAIL() << "it was predicted";
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("aten::bincount"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("module encoder.counts"));
    EXPECT_THAT(error.hint(), ::testing::HasSubstr("add_rule"));
  }
}

TEST_F(DryRunRules, ThereIsOneAtATimeAndNoneInARecorder) {
  trace::Trace other;
  EXPECT_THROW(DryRun(other, device::find("cpu")), UsageError);
  EXPECT_THROW(record::Recorder{other}, UsageError);
}

TEST_F(DryRunRules, EveryEventKnowsItsOpItsTensorAndWhatItCost) {
  const auto a = at::rand({64, 128}), b = at::rand({128, 256});
  const auto c = at::mm(a, b);
  const auto& allocation = trace.allocation(*record::allocation_of(c));
  EXPECT_EQ(trace.op_name(allocation.op), "aten::mm");
  EXPECT_EQ(allocation.tensor->sizes, (std::vector<std::int64_t>{64, 256}));
  const auto& call = trace.ops()[static_cast<std::size_t>(allocation.op)];
  EXPECT_EQ(call.flops, 2.0 * 64 * 128 * 256);
  EXPECT_EQ(call.read, Bytes((64 * 128 + 128 * 256) * 4));
  EXPECT_EQ(call.written, Bytes(64 * 256 * 4));
  const auto small = at::tensor({1.0f, 2.0f}) + 1;
  EXPECT_EQ(trace.op_name(trace.allocation(*record::allocation_of(small)).op), "aten::add") << "run for real";
}

TEST_F(DryRunRules, SmallTensorsHaveShapesToo) {
  const auto small = at::rand({16, 16}), sum = small + small;
  for (const auto& tensor : {small, sum}) {
    const auto& allocation = trace.allocation(*record::allocation_of(tensor));
    ASSERT_TRUE(allocation.tensor.has_value());
    EXPECT_EQ(allocation.tensor->sizes, (std::vector<std::int64_t>{16, 16}));
  }
}

TEST(DryRun, ItsTensorsAreRefusedAfterIt) {
  trace::Trace trace;
  at::Tensor kept;
  {
    const DryRun dry(trace, device::find("cpu"));
    kept = at::rand({100, 100});
  }
  EXPECT_THROW(kept + 1, UsageError);
}

TEST(DryRun, TensorsMadeBeforeAreCountedAndNotWritten) {
  auto net = nn::Linear(100, 100);
  const auto before = net->weight.detach().clone();
  trace::Trace trace;
  {
    const DryRun dry(trace, device::find("cpu"));
    const at::NoGradGuard no_grad;
    net->weight.fill_(3);
    net->weight.add_(at::rand({100, 100}));
    EXPECT_EQ(dry.existing().size(), 1u);
  }
  EXPECT_TRUE(at::equal(net->weight, before));
  EXPECT_EQ(trace::Timeline(trace).peak().bytes, Bytes(2 * 40000));
}

TEST(DryRun, LeavesTheRandomStreamAlone) {
  at::manual_seed(5);
  const auto expected = at::rand({3});
  at::manual_seed(5);
  {
    trace::Trace trace;
    const DryRun dry(trace, device::find("cpu"));
    at::rand({3});
    at::rand({300, 300});
  }
  EXPECT_TRUE(at::equal(at::rand({3}), expected));
}

/// What a small real op throws is not the next op's.
TEST_F(DryRunRules, AnOpThatThrowsIsOver) {
  EXPECT_THROW(at::linalg_cholesky(at::zeros({4, 4})), std::exception);
  const auto next = at::empty({16, 16});
  EXPECT_EQ(trace.allocation(*record::allocation_of(next)).op, trace::kNoOp);
}

// ---- a user's own op ------------------------------------------------------------------------------------------------

/// Twice its argument, by way of a copy. A rule stays for good, so each call makes another op; "own3::twice".
std::string define_op() {
  static int count = 0;
  static std::vector<torch::Library> libraries;
  const std::string name = "own" + std::to_string(++count);
  auto& library = libraries.emplace_back(torch::Library::DEF, name, std::nullopt, __FILE__, __LINE__);
  library.def("twice(Tensor x) -> Tensor");
  library.impl("twice", torch::dispatch(c10::DispatchKey::CPU, [](const at::Tensor& x) {
                 const auto copy = x.clone();
                 return at::add(copy, copy);
               }));
  return name + "::twice";
}

TEST(OpRules, AUsersOwnRuleIsTakenAndASecondRefused) {
  const auto name = define_op();
  const auto twice = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").typed<at::Tensor(const at::Tensor&)>();
  int asked = 0;
  add_rule(name, {.kind = OpRule::Kind::kShape,
                  .shape = [&](const OpArguments& arguments) {
                    ++asked;
                    return std::vector<at::Tensor>{empty_meta_like(arguments.tensor(0))};
                  },
                  .scratch_before = [](const OpArguments& arguments) { return std::vector<Bytes>{bytes_of(arguments.tensor(0))}; }});
  EXPECT_THROW(add_rule(name, {}), UsageError);
  expect_same_memory([&] { const auto y = twice.call(at::rand({60, 70})); });
  EXPECT_GT(asked, 0);
}
}  // namespace
}  // namespace cinch::dryrun
