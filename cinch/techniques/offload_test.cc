#include "cinch/techniques/offload.h"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "cinch/core/error.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/activation_checkpoint.h"
#include "cinch/trace/sink.h"
#include "cinch/trace/trace.h"

namespace cinch::techniques {
namespace {

namespace nn = torch::nn;
using testing::HasSubstr;

/// Convolution with batch norm, an LSTM, linear layers, dropout: views, in-place ops, one storage saved by several ops.
class Net {
 public:
  Net() {
    at::manual_seed(3);
    conv_ = nn::Conv1d(nn::Conv1dOptions(8, 16, 3).padding(1));
    norm_ = nn::BatchNorm1d(16);
    lstm_ = nn::LSTM(nn::LSTMOptions(16, 32).batch_first(true));
    up_ = nn::Linear(32, 64);
    down_ = nn::Linear(64, 32);
    drop_ = nn::Dropout(0.2);
  }
  at::Tensor forward(const at::Tensor& x) {  // [batch, 8, length]
    auto y = norm_->forward(conv_->forward(x)).relu_();
    y = std::get<0>(lstm_->forward(y.transpose(1, 2)));
    const auto halves = up_->forward(y).chunk(2, -1);
    y = y + halves[0] * halves[1].sigmoid();
    return y + drop_->forward(down_->forward(at::cat({y, y.tanh()}, -1)));
  }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    const auto add = [&all](const nn::Module& module) {
      for (const auto& parameter : module.parameters()) all.push_back(parameter);
    };
    add(*conv_), add(*norm_), add(*lstm_), add(*up_), add(*down_);
    return all;
  }
  nn::BatchNorm1d norm() const { return norm_; }

 private:
  nn::Conv1d conv_{nullptr};
  nn::BatchNorm1d norm_{nullptr};
  nn::LSTM lstm_{nullptr};
  nn::Linear up_{nullptr}, down_{nullptr};
  nn::Dropout drop_{nullptr};
};

at::Tensor batch() { return at::randn({4, 8, 24}); }

/// Gradients of two steps, and the loss.
std::vector<at::Tensor> train(SavedTensorPolicy* policy) {
  Net net;
  std::vector<at::Tensor> all;
  for (int step = 0; step < 2; ++step) {
    at::Tensor loss;
    {
      std::optional<SavedTensorScope> scope;
      if (policy != nullptr) scope.emplace(*policy);
      loss = net.forward(batch()).square().mean();
    }
    loss.backward();
    all.push_back(loss.detach());
    for (auto& parameter : net.parameters()) {
      all.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
  }
  return all;
}

void expect_equal(const std::vector<at::Tensor>& left, const std::vector<at::Tensor>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) EXPECT_TRUE(at::equal(left[i], right[i])) << "tensor " << i;
}

/// Waits that differ from copy to copy, without a clock to depend on.
std::function<void()> uneven_delays() {
  return [count = std::make_shared<std::atomic<int>>(0)] {
    std::this_thread::sleep_for(std::chrono::microseconds((*count)++ % 5 * 700));
  };
}

OffloadOptions options(const std::string& name) {
  OffloadOptions options;
  if (name.find("Disk") != std::string::npos) options.folder = std::filesystem::temp_directory_path();
  if (name.find("Waiting") != std::string::npos) options.in_flight = Bytes();
  if (name.find("Wide") != std::string::npos) options.in_flight = Bytes(1 << 20);
  if (name.find("Delayed") != std::string::npos) options.before_copy = uneven_delays();
  return options;
}

class OffloadedTraining : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Media, OffloadedTraining,
                         testing::Values("Host", "HostWaiting", "HostWide", "HostDelayed", "HostWideDelayed", "Disk",
                                         "DiskWaiting", "DiskDelayed"),
                         [](const auto& info) { return info.param; });

TEST_P(OffloadedTraining, GivesBitwiseTheSameGradients) {
  Offload offload(options(GetParam()));
  expect_equal(train(nullptr), train(&offload));
  const auto stats = offload.stats();
  EXPECT_GT(stats.sent, Bytes(100 << 10));
  EXPECT_EQ(stats.away, Bytes()) << "no graph is left";
  EXPECT_GT(stats.away_peak, Bytes());
  EXPECT_LE(stats.fetched, stats.sent);
}

TEST_P(OffloadedTraining, FreesAndFetchesAtTheSamePointsHoweverSlowCopiesAre) {
  const auto events = [](OffloadOptions options) {
    trace::Trace trace;
    {
      Offload offload(std::move(options));
      const record::Recorder recorder(trace);
      train(&offload);
    }
    return trace;
  };
  auto delayed = options(GetParam());
  delayed.before_copy = uneven_delays();
  const auto difference = trace::first_divergence(events(options(GetParam())), events(delayed));
  EXPECT_FALSE(difference) << difference->sentence;
}

TEST(Offload, LowersThePeakOfTheDevice) {
  const auto peak = [](SavedTensorPolicy* policy) {
    at::manual_seed(1);
    nn::Linear linear(256, 256);
    trace::PeakMeter meter;
    const record::Recorder recorder(meter);
    at::Tensor x = at::randn({512, 256});
    {
      std::optional<SavedTensorScope> scope;
      if (policy != nullptr) scope.emplace(*policy);
      for (int i = 0; i < 12; ++i) x = linear->forward(x).tanh();
      x = x.sum();
    }
    x.backward();
    return meter.peak().count();
  };
  constexpr std::int64_t kOne = 512 * 256 * 4;
  Offload waiting({.in_flight = Bytes()}), ahead;
  const auto plain = peak(nullptr);
  EXPECT_GE(plain, 13 * kOne);
  EXPECT_LE(peak(&waiting), 6 * kOne);
  EXPECT_LE(peak(&ahead), 8 * kOne) << "two that leave or come back more";
  EXPECT_EQ(waiting.stats().away_peak, Bytes(12 * kOne)) << "the input and eleven results: the last is at hand";
}

TEST(Offload, LeavesParametersTheirViewsAndSmallTensorsWhereTheyAre) {
  nn::Linear linear(64, 64);
  const auto frozen = at::randn({64, 64});
  const auto buffer = at::randn({32, 64});
  Offload offload({.in_flight = Bytes(), .keep = {frozen, buffer}});
  const SavedTensorScope scope(offload);
  const auto x = at::randn({32, 64}).requires_grad_();
  const auto small = at::randn({15, 16}).requires_grad_();  // 960 bytes
  auto y = (linear->forward(x).mm(frozen.t()) * buffer).sum() + (small * small).sum();
  y = y.exp().exp();
  // Saved: x, the weight's transpose, frozen's, buffer; x and small are leaves that somebody else holds.
  EXPECT_EQ(offload.stats().sent, Bytes());
  const auto z = x.sin();
  static_cast<void>(z.exp().exp().exp());  // saves three results, the last of which may not be whole yet
  EXPECT_EQ(offload.stats().sent, Bytes(2 * 32 * 64 * 4));
}

TEST(Offload, MovesAStorageOnceHoweverManyTensorsShareIt) {
  Offload offload({.in_flight = Bytes()});
  const auto w = at::randn({64, 96}).requires_grad_();
  at::Tensor loss;
  {
    const SavedTensorScope scope(offload);
    const auto qkv = at::randn({32, 64}).mm(w);  // saves its input
    const auto parts = qkv.chunk(3, 1);
    const auto product = parts[0] * parts[1] + parts[1] * parts[2] + parts[2] * parts[0];  // six saves of one storage
    loss = product.exp().sum();
    loss = loss.exp();
    EXPECT_EQ(offload.stats().sent, Bytes((32 * 64 + 32 * 96 + 32 * 32) * 4));
  }
  loss.backward();
  EXPECT_EQ(offload.stats().fetched, Bytes((32 * 64 + 32 * 96 + 32 * 32) * 4)) << "and fetched once";
}

TEST(Offload, SaysWhenATensorWasChangedBetweenSaveAndUse) {
  Offload offload({.in_flight = Bytes()});
  const auto x = at::randn({32, 32}).requires_grad_();
  at::Tensor y, loss;
  {
    const SavedTensorScope scope(offload);
    y = x.exp();
    loss = y.sin().cos().sum();
  }
  y.detach().mul_(2);
  EXPECT_THROW(loss.backward(), Error);
}

TEST(Offload, WaitsUntilAnOpHasFilledWhatItSavesFirst) {
  // rrelu saves its noise before it draws it.
  const auto gradient = [](SavedTensorPolicy* policy) {
    at::manual_seed(5);
    const auto x = at::randn({64, 64}).requires_grad_();
    at::Tensor loss;
    {
      std::optional<SavedTensorScope> scope;
      if (policy != nullptr) scope.emplace(*policy);
      loss = at::rrelu(at::rrelu(x * 1, 0.1, 0.6, true) * 1, 0.1, 0.6, true).exp().sin().sum();
    }
    return torch::autograd::grad({loss}, {x})[0];
  };
  Offload offload({.in_flight = Bytes()});
  EXPECT_TRUE(at::equal(gradient(nullptr), gradient(&offload)));
  EXPECT_GE(offload.stats().sent, Bytes(5 * 64 * 64 * 4)) << "both noises and what they multiply";
}

TEST(Offload, ServesSeveralBackwardPassesAndDoubleBackward) {
  const auto results = [](SavedTensorPolicy* policy) {
    at::manual_seed(5);
    const auto x = at::randn({32, 32}, at::kDouble).requires_grad_();
    at::Tensor loss;
    std::optional<SavedTensorScope> scope;
    if (policy != nullptr) scope.emplace(*policy);
    loss = (x.sin() * x.exp().tanh() * x.cos()).sum();
    std::vector<at::Tensor> all{torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0]};
    all.push_back(torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0]);
    const auto first = torch::autograd::grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
    all.push_back(torch::autograd::grad({first.square().sum()}, {x})[0]);
    return all;
  };
  for (const auto in_flight : {Bytes(), Bytes(8192), Bytes(1 << 20)}) {
    Offload offload({.in_flight = in_flight});
    expect_equal(results(nullptr), results(&offload));
    EXPECT_EQ(offload.stats().away, Bytes());
  }
}

TEST(Offload, KeepsNothingOnTheDeviceAfterAPartialBackward) {
  Offload offload({.in_flight = Bytes(1 << 20), .before_copy = uneven_delays()});
  const auto x = at::randn({64, 64}).requires_grad_(), z = at::randn({64, 64}).requires_grad_();
  at::Tensor loss;
  trace::PeakMeter meter;
  const record::Recorder recorder(meter);
  {
    OffloadOptions now{.in_flight = Bytes()};
    Offload waiting(now);
    const SavedTensorScope scope(waiting);
    const auto side = z.sin().exp().tanh();
    loss = (x.sin().exp().tanh() * side).sum();
    loss = loss.exp().exp();
  }
  const auto before = recorder.live();
  const auto gradient = torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0];
  EXPECT_EQ(recorder.live(), before + Bytes(static_cast<std::int64_t>(gradient.nbytes())));
}

TEST(Offload, ServesCheckpointsInputs) {
  const auto gradients = [](SavedTensorPolicy* policy) {
    at::manual_seed(6);
    const auto w = at::randn({64, 64}).requires_grad_();
    at::Tensor x = at::randn({32, 64});
    {
      std::optional<SavedTensorScope> scope;
      if (policy != nullptr) scope.emplace(*policy);
      for (int i = 0; i < 6; ++i)
        x = checkpoint([w](const at::Tensor& t) { return at::dropout(t.mm(w).tanh(), 0.3, true); }, x);
      x = x.square().mean();
    }
    return torch::autograd::grad({x}, {w});
  };
  Offload offload({.before_copy = uneven_delays()});
  expect_equal(gradients(nullptr), gradients(&offload));
  EXPECT_EQ(offload.stats().sent, Bytes(6 * 32 * 64 * 4)) << "the inputs and what square() saves, but the last";
}

TEST(Offload, MayBackwardOnAnotherThreadThanItsForward) {
  Offload offload({.before_copy = uneven_delays()});
  std::vector<std::vector<at::Tensor>> results(3);
  const auto run = [](SavedTensorPolicy* policy, int seed) {
    const auto x = at::full({64, 64}, 0.01 * seed).requires_grad_();
    at::Tensor loss;
    {
      std::optional<SavedTensorScope> scope;
      if (policy != nullptr) scope.emplace(*policy);
      loss = x.sin().exp().tanh().cos().exp().sum();
    }
    std::vector<at::Tensor> gradient;
    std::thread([&] { gradient = torch::autograd::grad({loss}, {x}); }).join();
    return gradient;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back([&, i] { results[i] = run(&offload, i + 1); });
  for (auto& thread : threads) thread.join();
  for (int i = 0; i < 3; ++i) expect_equal(results[i], run(nullptr, i + 1));
  EXPECT_EQ(offload.stats().away, Bytes());
}

TEST(Offload, MayEndBeforeTheGraphsThatItServed) {
  const auto x = at::randn({64, 64}).requires_grad_();
  at::Tensor loss;
  {
    Offload offload({.before_copy = uneven_delays()});
    const SavedTensorScope scope(offload);
    loss = x.sin().exp().tanh().cos().sum();
  }
  EXPECT_TRUE(at::equal(torch::autograd::grad({loss}, {x})[0],
                        torch::autograd::grad({x.sin().exp().tanh().cos().sum()}, {x})[0]));
}

TEST(Offload, DropsAGraphWhoseCopiesAreUnderWay) {
  for (int i = 0; i < 20; ++i) {
    Offload offload({.in_flight = Bytes(1 << 20), .before_copy = uneven_delays()});
    const SavedTensorScope scope(offload);
    static_cast<void>(at::randn({64, 64}).requires_grad_().sin().exp().tanh().cos());
  }
}

TEST(Offload, SurvivesEveryAllocationThatFails) {
  Offload offload;
  trace::PeakMeter meter;
  int failed = 0;
  for (bool done = false; !done; ++failed) {
    const record::Recorder recorder(meter, {.cap = std::nullopt, .clock = false, .fail_at = failed});
    try {
      at::manual_seed(2);
      auto x = at::randn({32, 32}).requires_grad_();
      at::Tensor loss;
      {
        const SavedTensorScope scope(offload);
        loss = x.sin().exp().tanh().cos().exp().sum();
      }
      loss.backward();
      done = true;
    } catch (const record::OutOfMemoryError&) {
    }
  }
  EXPECT_GT(failed, 10);
  expect_equal(train(nullptr), train(&offload));
}

/// Files of this process may not grow beyond `bytes`.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(Offload, SaysThatTheDiskIsFullAndGoesOn) {
  const auto folder = std::filesystem::temp_directory_path();
  Offload offload({.folder = folder, .before_copy = uneven_delays()});
  const auto x = at::randn({64, 64}).requires_grad_();
  const auto forward = [&x] {
    auto y = x.sin();
    for (int i = 0; i < 10; ++i) y = y.exp().tanh();
    return y.sum();
  };
  {
    const FileLimit limit(4 * 64 * 64 * 4);
    try {
      const SavedTensorScope scope(offload);
      static_cast<void>(forward());
      FAIL() << "it wrote more than there is room for";
    } catch (const IoError& error) {
      EXPECT_THAT(error.what(), HasSubstr("16.0 KiB of activations"));
      EXPECT_THAT(error.what(), HasSubstr(folder.string()));
      EXPECT_THAT(error.hint(), HasSubstr("another folder"));
    }
  }
  EXPECT_EQ(offload.stats().away, Bytes());
  at::Tensor loss;
  {
    const SavedTensorScope scope(offload);
    loss = forward();
  }
  EXPECT_TRUE(at::equal(torch::autograd::grad({loss}, {x})[0], torch::autograd::grad({forward()}, {x})[0]));
}

TEST(Offload, WantsAFolderThatItCanWriteTo) {
  EXPECT_THROW(Offload({.folder = "/nonexistent/activations"}), IoError);
  EXPECT_THROW(Offload({.folder = "/dev/null"}), IoError);
}

TEST(Offload, LeavesNoFile) {
  const auto folder = std::filesystem::temp_directory_path() / ("cinch-offload-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  {
    Offload offload({.folder = folder});
    train(&offload);
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << "not even while it is used";
  }
  std::filesystem::remove(folder);
}

}  // namespace
}  // namespace cinch::techniques
