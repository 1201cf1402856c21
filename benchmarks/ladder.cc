// How far do the techniques cut the peak together, and at what price? A GPT with a large head (6 × 512, context 512,
// 50,257 words, batch 4, AdamW), one technique more on each rung, as torchtune's README does it: autocast, chunked
// loss, checkpoints, optimizer in backward, offloading of what checkpoints keep, 8-bit optimizer state. Its own ladder
// (a 3 B model on an A100) goes from 60.0 to 17.6 GiB and loses 24 % of its speed from the fastest rung to the last.
//
//   ladder [ROUNDS]     3 rounds: each takes one step of every rung

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "benchmarks/measure.h"
#include "cinch/data/source.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/offload.h"
#include "cinch/techniques/saved_tensors.h"
#include "cinch/trace/trace.h"
#include "cinch/train/session.h"
#include "cinch/train/train.h"

namespace cinch::benchmarks {
namespace {

constexpr double kPeakCut = 60.0 / 17.6, kSpeedLoss = 1.24;

job::Job gpt() {
  job::Job job;
  job.model = job::GptConfig{
      .layers = 6, .hidden_size = 512, .heads = 8, .context_length = 512, .vocab_size = 50257, .dropout = 0.1};
  job.data = job::SyntheticData{};
  job.train.batch_size = 4;
  job.train.steps = 1'000'000;
  job.train.learning_rate = 1e-4;
  job.train.seed = 1;
  return job;
}

struct Rung {
  std::string name;
  job::Job job;
  plan::Plan plan = {};
  bool offloads = false;
  Bytes peak = {};
  std::vector<double> seconds = {};
};

/// A training on one rung. Offloading here is of all that is saved: with checkpoints, of their inputs.
class Training {
 public:
  explicit Training(const Rung& rung)
      : source_(data::open(rung.job.data, rung.job.model, rung.job.train.batch_size, rung.job.train.seed)),
        session_(rung.job, rung.plan) {
    if (rung.offloads) offload_.emplace();
  }
  void step() {
    const auto batch = source_->next();
    std::optional<techniques::SavedTensorScope> scope;
    if (offload_) scope.emplace(*offload_);
    static_cast<void>(session_.step(batch).loss.item<double>());
  }

 private:
  std::optional<techniques::Offload> offload_;
  std::unique_ptr<data::Source> source_;
  train::Session session_;
};

std::vector<Rung> rungs() {
  Rung rung{.name = "float32", .job = gpt()};
  std::vector<Rung> all{rung};
  const auto add = [&](const char* name, auto&& change) {
    rung.name = name;
    change(rung);
    all.push_back(rung);
  };
  add("+ autocast to bfloat16", [](Rung& next) { next.job.train.precision = job::Precision::kBf16; });
  add("+ loss in chunks of 256", [](Rung& next) { next.plan.loss_chunk_size = 256; });
  add("+ checkpoints of all blocks", [](Rung& next) {
    const plan::Problem problem = train::make_problem(next.job, device::find("cpu"), Bytes());
    for (const auto& module : problem.modules) next.plan.activations[module] = plan::ActivationPolicy::kCheckpoint;
  });
  add("+ optimizer in backward", [](Rung& next) { next.plan.optimizer.in_backward = true; });
  add("+ offloading of saved tensors", [](Rung& next) { next.offloads = true; });
  add("+ 8-bit optimizer state", [](Rung& next) { next.plan.optimizer.state = plan::OptimizerState::k8Bit; });
  return all;
}

void measure_peak(Rung& rung) {
  trace::Trace trace;
  const record::Recorder recorder(trace);
  Training training(rung);
  for (int step = 0; step < 2; ++step) training.step();
  rung.peak = recorder.peak();
}

int run(int rounds) {
  print_conditions("ladder");
  auto all = rungs();
  for (auto& rung : all) measure_peak(rung);
  std::vector<std::unique_ptr<Training>> trainings;
  for (const auto& rung : all) {
    trainings.push_back(std::make_unique<Training>(rung));
    trainings.back()->step();  // Makes the optimizer's state.
  }
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i].seconds.push_back(seconds_of([&] { trainings[i]->step(); }));
  }
  double fastest = median(all.front().seconds);
  for (const auto& rung : all) fastest = std::min(fastest, median(rung.seconds));
  std::printf("  %-32s %15s %9s %9s %12s\n", "", "peak, bytes", "of first", "step, s", "of fastest");
  const auto first = static_cast<double>(all.front().peak.count());
  for (const auto& rung : all) {
    std::printf("  %-32s %15lld %9.3f %9.3f %12.3f\n", rung.name.c_str(), static_cast<long long>(rung.peak.count()),
                static_cast<double>(rung.peak.count()) / first, median(rung.seconds), median(rung.seconds) / fastest);
  }
  const double cut = first / static_cast<double>(all.back().peak.count());
  const double loss = median(all.back().seconds) / fastest;
  std::printf("  the peak falls by a factor of %.2f: %s (at least %.2f)\n", cut, verdict(kPeakCut, cut), kPeakCut);
  std::printf("  the last rung's step takes %.2f times the fastest's: %s (at most %.2f)\n", loss,
              verdict(loss, kSpeedLoss), kSpeedLoss);
  return 0;
}
}  // namespace
}  // namespace cinch::benchmarks

int main(int argc, char** argv) { return cinch::benchmarks::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 3); }
