// Techniques on activations, on whole models with dropout: gradients are plain training's, bit for bit where it is
// promised; the dry run is the recording; the device's peak falls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <regex>
#include <string>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include "cinch/techniques/call.h"
#include "cinch/techniques/compress.h"
#include "cinch/techniques/offload.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {

namespace nn = torch::nn;
using techniques::Codec;
using techniques::Compress;
using techniques::DeterminismCheck;
using techniques::Offload;
using techniques::OffloadOptions;

enum class Net : std::uint8_t { kGpt, kResNet, kLstm };

/// A language model of two LSTM layers.
class LstmModel final : public models::Model {
 public:
  LstmModel() {
    embedding_ = register_module("embedding", nn::Embedding(50, 48));
    first_ = register_module("first", nn::LSTM(nn::LSTMOptions(48, 64).batch_first(true)));
    second_ = register_module("second", nn::LSTM(nn::LSTMOptions(64, 64).batch_first(true)));
    dropout_ = register_module("dropout", nn::Dropout(0.2));
    head_ = register_module("head", nn::Linear(64, 50));
  }
  at::Tensor loss_sum(const data::Batch& batch) override {
    auto x = dropout_->forward(embedding_->forward(batch.inputs));
    x = dropout_->forward(std::get<0>(call(first_, x)));
    x = std::get<0>(call(second_, x));
    return at::cross_entropy_loss(head_->forward(x).flatten(0, 1), batch.targets.flatten(), {}, at::Reduction::Sum);
  }

 private:
  nn::Embedding embedding_{nullptr};
  nn::LSTM first_{nullptr}, second_{nullptr};
  nn::Dropout dropout_{nullptr};
  nn::Linear head_{nullptr};
};

struct ConvBlockImpl final : nn::Module {
  ConvBlockImpl() {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(12, 12, 3).padding(1).bias(false)));
    conv2 = register_module("conv2", nn::Conv2d(nn::Conv2dOptions(12, 12, 3).padding(1).bias(false)));
    norm1 = register_module("norm1", nn::BatchNorm2d(12));
    norm2 = register_module("norm2", nn::BatchNorm2d(12));
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto y = norm1->forward(conv1->forward(x)).relu_();
    return (norm2->forward(conv2->forward(y)) + x).relu_();
  }
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(ConvBlock);

/// A residual network of three blocks, with batch norm and ops in place.
class SmallResNet final : public models::Model {
 public:
  SmallResNet() {
    stem_ = register_module("stem", nn::Conv2d(nn::Conv2dOptions(3, 12, 3).padding(1)));
    auto layers = register_module("layers", nn::ModuleList());
    for (int i = 0; i < 3; ++i) {
      blocks_.emplace_back(ConvBlock());
      layers->push_back(blocks_.back());
    }
    dropout_ = register_module("dropout", nn::Dropout(0.2));
    head_ = register_module("head", nn::Linear(12, 10));
  }
  at::Tensor loss_sum(const data::Batch& batch) override {
    auto x = stem_->forward(batch.inputs);
    for (auto& block : blocks_) x = call(block, x);
    return at::cross_entropy_loss(head_->forward(dropout_->forward(x.mean({2, 3}))), batch.targets, {},
                                  at::Reduction::Sum);
  }

 private:
  nn::Conv2d stem_{nullptr};
  std::vector<ConvBlock> blocks_;
  nn::Dropout dropout_{nullptr};
  nn::Linear head_{nullptr};
};

std::shared_ptr<models::Model> build(Net net) {
  at::manual_seed(5);
  if (net == Net::kLstm) return std::make_shared<LstmModel>();
  if (net == Net::kResNet) return std::make_shared<SmallResNet>();
  return models::build(small_model(ModelKind::kGpt));
}

data::Batch batch_of(Net net) {
  const auto classes = [](std::int64_t count, at::IntArrayRef sizes) { return at::randint(count, sizes, at::kLong); };
  switch (net) {
    case Net::kGpt:
      return {classes(300, {4, 80}), classes(300, {4, 80}), 320};
    case Net::kResNet:
      return {at::randn({4, 3, 16, 16}), classes(10, {4}), 4};
    case Net::kLstm:
      return {classes(50, {6, 40}), classes(50, {6, 40}), 240};
  }
  throw std::logic_error("no such net");
}

/// What is done with activations.
struct Technique {
  std::string name;
  bool bitwise = true;
  bool checkpoints = false, selective = false;
  DeterminismCheck determinism = DeterminismCheck::kNone;
  std::optional<Codec> codec = {};
  std::optional<OffloadOptions> offload = {};
};

std::vector<Technique> techniques_tried() {
  const auto disk = std::filesystem::temp_directory_path();
  return {{.name = "Checkpoint", .checkpoints = true},
          {.name = "Selective", .selective = true},
          {.name = "Host", .offload = OffloadOptions{}},
          {.name = "HostWaiting", .offload = OffloadOptions{.in_flight = Bytes()}},
          {.name = "HostWide", .offload = OffloadOptions{.in_flight = Bytes(64 << 10)}},
          {.name = "Disk", .offload = OffloadOptions{.folder = disk}},
          {.name = "CheckpointHost", .checkpoints = true, .offload = OffloadOptions{}},
          {.name = "SelectiveHost", .selective = true, .offload = OffloadOptions{}},
          {.name = "Bf16", .bitwise = false, .codec = Codec::kBf16},
          {.name = "Int8", .bitwise = false, .codec = Codec::kInt8},
          {.name = "CheckpointInt8", .bitwise = false, .checkpoints = true, .codec = Codec::kInt8},
          {.name = "Int8Host", .bitwise = false, .codec = Codec::kInt8, .offload = OffloadOptions{}},
          {.name = "CheckpointBf16Disk",
           .bitwise = false,
           .checkpoints = true,
           .codec = Codec::kBf16,
           .offload = OffloadOptions{.folder = disk}}};
}

struct Run {
  std::vector<at::Tensor> gradients, buffers;
  std::vector<double> losses;
};

/// Two steps of gradient descent, and an exact loss each.
class Training {
 public:
  Training(Net net, const Technique& technique) : net_(net), technique_(technique) {
    {
      const trace::PhaseScope init(trace::Phase::kInit, 0);
      model_ = build(net);
    }
    for (const auto& item : model_->named_parameters())
      record::label(item.value(), trace::Category::kParameter, item.key());
    if (technique.offload) {
      auto options = *technique.offload;
      options.keep = model_->buffers();
      offload_.emplace(std::move(options));
    }
    if (technique.codec)
      compress_.emplace(*technique.codec,
                        techniques::CompressOptions{offload_ ? &*offload_ : nullptr, model_->buffers()});
    std::map<std::string, plan::ActivationPolicy> activations;
    if (technique.checkpoints) {
      for (const auto& path : checkpointed()) activations[path] = plan::ActivationPolicy::kCheckpoint;
    }
    policies_.emplace(*model_, activations);
  }

  at::Tensor step(std::uint32_t number) {
    at::Tensor loss;
    const auto batch = [&] {
      const trace::PhaseScope phase(trace::Phase::kData, number);
      return batch_of(net_);
    }();
    {
      const trace::PhaseScope phase(trace::Phase::kForward, number);
      const techniques::UseCallPolicies use(*policies_);
      std::optional<techniques::SavedTensorScope> scope;
      if (compress_)
        scope.emplace(*compress_);
      else if (offload_)
        scope.emplace(*offload_);
      loss = loss_of(batch).div(static_cast<double>(batch.target_count));
    }
    const trace::PhaseScope phase(trace::Phase::kBackward, number);
    loss.backward();
    return loss.detach();
  }

  models::Model& model() { return *model_; }

 private:
  at::Tensor loss_of(const data::Batch& batch) {
    if (!technique_.selective) return model_->loss_sum(batch);
    CheckpointPolicy policy;
    policy.keep = techniques::OpSet::matmuls_and_attention();
    policy.updated = model_->buffers();
    policy.determinism = technique_.determinism;
    return checkpoint(
        policy,
        [model = model_, count = batch.target_count](const at::Tensor& inputs, const at::Tensor& targets) {
          return model->loss_sum({inputs, targets, count});
        },
        batch.inputs, batch.targets);
  }
  /// The repeated blocks: "layers.0" and so on, or the LSTM's two layers.
  std::vector<std::string> checkpointed() const {
    if (net_ == Net::kLstm) return {"first", "second"};
    std::vector<std::string> paths;
    for (const auto& item : model_->named_modules()) {
      if (std::regex_match(item.key(), std::regex("layers\\.[0-9]+"))) paths.push_back(item.key());
    }
    return paths;
  }

  const Net net_;
  const Technique technique_;
  std::shared_ptr<models::Model> model_;
  std::optional<Offload> offload_;
  std::optional<Compress> compress_;
  std::optional<techniques::CallPolicies> policies_;
};

Run train(Net net, const Technique& technique) {
  Training training(net, technique);
  Run run;
  for (std::uint32_t step = 1; step <= 2; ++step) {
    run.losses.push_back(training.step(step).item<double>());
    const at::NoGradGuard no_grad;
    for (auto& parameter : training.model().parameters()) {
      if (!parameter.grad().defined()) continue;
      run.gradients.push_back(parameter.grad());
      if (technique.bitwise) parameter.sub_(parameter.grad(), 0.05);  // else both steps start from the same weights
      parameter.mutable_grad().reset();
    }
  }
  run.buffers = training.model().buffers();
  return run;
}

/// The events of two steps, until the last backward is over.
template <class Producer>
trace::Trace events(Net net, const Technique& technique, const Producer& producer) {
  trace::Trace trace, until_end;
  {
    const auto active = producer(trace);
    Training training(net, technique);
    for (std::uint32_t step = 1; step <= 2; ++step) {
      training.step(step);
      const trace::PhaseScope phase(trace::Phase::kOptimizer, step);
      for (auto& parameter : training.model().parameters()) parameter.mutable_grad().reset();
    }
    until_end = trace;
  }
  trace::classify(until_end);
  return until_end;
}

using Case = std::tuple<Net, Technique>;
class Activations : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { at::set_num_threads(2); }
  Net net() const { return std::get<0>(GetParam()); }
  const Technique& technique() const { return std::get<1>(GetParam()); }
};
std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  static const char* nets[] = {"Gpt", "ResNet", "Lstm"};
  return nets[static_cast<int>(std::get<0>(info.param))] + std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(All, Activations,
                         ::testing::Combine(::testing::Values(Net::kGpt, Net::kResNet, Net::kLstm),
                                            ::testing::ValuesIn(techniques_tried())),
                         name_of);

TEST_P(Activations, GiveTheGradientsOfPlainTraining) {
  Technique plainly{.name = "Plain", .bitwise = technique().bitwise};
  auto checked = technique();
  checked.determinism = DeterminismCheck::kValues;
  const auto plain = train(net(), plainly), other = train(net(), checked);
  ASSERT_EQ(plain.gradients.size(), other.gradients.size());
  if (technique().bitwise) {
    EXPECT_EQ(plain.losses, other.losses);
    for (std::size_t i = 0; i < plain.gradients.size(); ++i)
      EXPECT_TRUE(at::equal(plain.gradients[i], other.gradients[i])) << i;
    for (std::size_t i = 0; i < plain.buffers.size(); ++i)
      EXPECT_TRUE(at::equal(plain.buffers[i], other.buffers[i])) << i;
    return;
  }
  EXPECT_EQ(plain.losses.front(), other.losses.front()) << "forward is exact";
  double squares = 0, differences = 0;
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    squares += plain.gradients[i].square().sum().item<double>();
    differences += (plain.gradients[i] - other.gradients[i]).square().sum().item<double>();
  }
  EXPECT_GT(differences, 0) << "or nothing was compressed";
  EXPECT_LT(std::sqrt(differences / squares), technique().codec == Codec::kBf16 ? 0.05 : 0.2);
}

TEST_P(Activations, ArePredictedToTheByte) {
  const auto predicted = events(net(), technique(), [](trace::Trace& trace) {
    return std::make_unique<dryrun::DryRun>(trace, device::find("cpu"));
  });
  const auto recorded =
      events(net(), technique(), [](trace::Trace& trace) { return std::make_unique<record::Recorder>(trace); });
  EXPECT_EQ(trace::compare_phase_ends(predicted, recorded).value_or("no difference"), "no difference");
  const trace::Timeline left(predicted), right(recorded);
  EXPECT_EQ(left.peak().bytes, right.peak().bytes);
  for (std::uint32_t step = 1; step <= 2; ++step) EXPECT_EQ(left.peak(step).bytes, right.peak(step).bytes) << step;
  for (int c = 0; c < trace::kCategoryCount; ++c) {
    const auto category = static_cast<trace::Category>(c);
    EXPECT_EQ(left.live_by_category(left.peak().event)[category], right.live_by_category(right.peak().event)[category])
        << trace::name_of(category);
  }
  if (left.peak().bytes != right.peak().bytes)
    if (const auto first = trace::first_divergence(predicted, recorded)) ADD_FAILURE() << first->sentence;
}

TEST_P(Activations, LeaveLessOnTheDeviceWhenForwardIsOver) {
  const auto held = [&](const Technique& technique) {
    const auto trace =
        events(net(), technique, [](trace::Trace& trace) { return std::make_unique<record::Recorder>(trace); });
    for (const auto& end : trace::phase_ends(trace))
      if (end.step == 2 && end.phase == trace::Phase::kForward) return end.live.count();
    return std::int64_t{-1};
  };
  const auto plain = held({.name = "Plain"}), less = held(technique());
  RecordProperty("plain", std::to_string(plain));
  RecordProperty("held", std::to_string(less));
  EXPECT_LT(less, plain);
}

}  // namespace
}  // namespace cinch::tests
