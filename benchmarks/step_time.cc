// How much slower is a step in cinch than in a plain LibTorch loop, and how much of it is the recorder?
//
//   step_time             both questions, for a GPT and a small MLP
//   step_time SIDE MODEL  one side, one burst of steps for each byte on standard input: what the above starts
//
// The two sides run in two processes, since cinch's CPU allocator stays once it is installed, and take turns.

#include <memory>
#include <optional>
#include <string>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "benchmarks/measure.h"
#include "benchmarks/process.h"
#include "cinch/data/source.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/train/internal/run_recording.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"

namespace cinch::benchmarks {
namespace {

constexpr double kMostAgainstPlain = 1.02, kMostOfRecorder = 1.03;
constexpr int kProcessPairs = 5;

struct Case {
  std::string name;
  job::Job job;
  int rounds;  ///< Bursts of each side in one pair of processes.
  int burst;   ///< Steps in a burst; its median counts.
};

job::Job job_of(job::ModelConfig model, std::int64_t batch_size) {
  job::Job job;
  job.model = std::move(model);
  job.data = job::SyntheticData{};
  job.train.batch_size = batch_size;
  job.train.steps = 1000000;
  job.train.learning_rate = 1e-4;
  job.train.optimizer.weight_decay = 0.1;
  job.train.seed = 1;
  return job;
}

std::vector<Case> cases() {
  return {
      {"gpt",
       job_of(job::GptConfig{.layers = 6, .hidden_size = 384, .heads = 6, .context_length = 256, .dropout = 0.1}, 8),
       /*rounds=*/8, /*burst=*/1},
      {"mlp", job_of(job::MlpConfig{.sizes = {784, 512, 512, 10}, .dropout = 0.1}, 128), /*rounds=*/15, /*burst=*/25}};
}

class Side {
 public:
  virtual ~Side() = default;
  virtual void step() = 0;
};

/// What a user of LibTorch writes: no Session, no recorder, c10's own allocator.
class PlainLoop final : public Side {
 public:
  explicit PlainLoop(const job::Job& job) : train_(job.train) {
    at::manual_seed(train_.seed);
    model_ = models::build(job.model);
    source_ = data::open(job.data, job.model, train_.batch_size, train_.seed);
    parameters_ = model_->parameters();
    for (const auto& parameter : parameters_) {
      averages_.push_back(at::zeros_like(parameter));
      squares_.push_back(at::zeros_like(parameter));
      steps_.push_back(at::zeros({}, at::kFloat));
    }
  }

  void step() override {
    const data::Batch batch = source_->next();
    model_->train();
    const auto loss = model_->loss_sum(batch).div(static_cast<double>(batch.target_count));
    loss.backward();
    update();
    for (auto& parameter : parameters_) parameter.mutable_grad().reset();
    (void)loss.item<double>();
  }

 private:
  void update() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : parameters_) gradients.push_back(parameter.grad());
    at::_foreach_add_(steps_, 1);
    const auto& options = train_.optimizer;
    at::_fused_adamw_(parameters_, gradients, averages_, squares_, /*max_exp_avg_sqs=*/{}, steps_, train_.learning_rate,
                      options.beta1, options.beta2, options.weight_decay, options.eps, /*amsgrad=*/false,
                      /*maximize=*/false);
  }

  job::TrainConfig train_;
  std::shared_ptr<models::Model> model_;
  std::unique_ptr<data::Source> source_;
  std::vector<at::Tensor> parameters_, averages_, squares_, steps_;
};

/// As train::fit() trains: a Session under a recorder with a cap, into the sink that fit() uses.
class Cinch final : public Side {
 public:
  explicit Cinch(const job::Job& job) : source_(data::open(job.data, job.model, job.train.batch_size, job.train.seed)) {
    start_recorder();
    const trace::PhaseScope init(trace::Phase::kInit, 0);
    session_.emplace(job, plan::Plan{});
  }
  ~Cinch() override {
    session_.reset();
    stop_recorder();
  }

  void step() override {
    const auto next = static_cast<std::uint32_t>(session_->steps_done() + 1);
    train::run_step(
        *session_, [&] { return source_->next(); }, next);
  }

  void start_recorder() {
    recording_.emplace(train::RecordingWindows{.evaluation_step = train::kNoStep, .save_step = train::kNoStep});
    recorder_.emplace(*recording_, record::RecorderOptions{.cap = Bytes::parse("1TiB")});
  }
  void stop_recorder() {
    recorder_.reset();
    recording_.reset();
  }

 private:
  std::unique_ptr<data::Source> source_;
  std::optional<train::RunRecording> recording_;
  std::optional<record::Recorder> recorder_;
  std::optional<train::Session> session_;
};

/// The median of a burst of steps.
double burst_of(Side& side, int burst) {
  std::vector<double> seconds;
  for (int i = 0; i < burst; ++i) seconds.push_back(seconds_of([&] { side.step(); }));
  return median(seconds);
}

int serve(const std::string& which, const std::string& model) {
  for (const Case& c : cases()) {
    if (c.name != model) continue;
    std::unique_ptr<Side> side;
    if (which == "plain")
      side = std::make_unique<PlainLoop>(c.job);
    else
      side = std::make_unique<Cinch>(c.job);
    for (int i = 0; i < 3; ++i) side->step();
    return answer_with([&] { return burst_of(*side, c.burst); });
  }
  return 2;
}

void print_ratio(const char* what, const std::string& name, const std::vector<double>& above,
                 const std::vector<double>& below, double demand) {
  const std::vector<double> pairs = ratios(above, below);
  const double ratio = median(above) / median(below);
  std::printf(
      "  %s  %-24s %9.2f ms  %9.2f ms  ratio %.4f  (pairs: median %.4f, quartiles %.4f to %.4f, %zu)  at most %.2f: "
      "%s\n",
      name.c_str(), what, median(above) * 1e3, median(below) * 1e3, ratio, median(pairs), quantile(pairs, 0.25),
      quantile(pairs, 0.75), pairs.size(), demand, verdict(ratio, demand));
  std::fflush(stdout);
}

void compare_with_plain(const Case& c) {
  std::vector<double> cinch, plain;
  for (int pair = 0; pair < kProcessPairs; ++pair) {
    const Process<double> a({"cinch", c.name}), b({"plain", c.name});
    for (int round = 0; round < c.rounds; ++round) {
      const bool cinch_first = (pair + round) % 2 == 0;
      if (cinch_first) cinch.push_back(a.ask());
      plain.push_back(b.ask());
      if (!cinch_first) cinch.push_back(a.ask());
    }
  }
  print_ratio("cinch | plain loop", c.name, cinch, plain, kMostAgainstPlain);
}

void compare_recorder(const Case& c) {
  Cinch side(c.job);
  for (int i = 0; i < 3; ++i) side.step();
  std::vector<double> with, without;
  for (int round = 0; round < 2 * c.rounds; ++round) {
    const bool with_first = round % 2 == 0;
    if (with_first) with.push_back(burst_of(side, c.burst));
    side.stop_recorder();
    without.push_back(burst_of(side, c.burst));
    side.start_recorder();
    if (!with_first) with.push_back(burst_of(side, c.burst));
  }
  print_ratio("with | without recorder", c.name, with, without, kMostOfRecorder);
}
}  // namespace
}  // namespace cinch::benchmarks

int main(int argc, char** argv) {
  using namespace cinch::benchmarks;
  if (argc == 3) return serve(argv[1], argv[2]);
  print_conditions("step_time");
  std::puts("  medians of one step; sides take turns");
  for (const auto& c : cases()) {
    compare_with_plain(c);
    compare_recorder(c);
  }
  return 0;
}
