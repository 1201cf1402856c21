// Are steps as long as predicted? Every model kind, plain and under each technique, really trained on this CPU, beside
// what the cost model says of its dry run; and are the plans of a model ranked as measured?
//
//   predicted_time [MODEL] [VISITS] [--ops] [--threads=N]
//
// MODEL: one of the names below; --ops: time by op of the plain step as well, real
// (LibTorch's record functions) beside predicted. Sessions take turns; a visit has its own arena, as a training of
// cinch does, two steps to fill it and three that count. Of all of a plan's steps the lower quartile stands for it:
// other programs make steps longer, never shorter. The batch is made once: what data takes is nobody's prediction.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/record_function.h>

#include "benchmarks/measure.h"
#include "cinch/data/source.h"
#include "cinch/plan/solver.h"
#include "cinch/record/arena.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"

namespace cinch::benchmarks {
namespace {
using plan::ActivationPolicy;
using plan::Plan;

constexpr double kMostOff = 0.15, kLeastRanked = 0.95;
constexpr double kTold = 0.03;  ///< Measured times that differ by less are no order to agree with.
constexpr int kSettling = 2, kCounted = 3;

struct Case {
  std::string name;
  job::Job job;
};

Case of(std::string name, job::ModelConfig model, std::int64_t batch_size,
        job::Precision precision = job::Precision::kFp32) {
  job::Job job;
  job.model = std::move(model);
  job.data = job::SyntheticData{};
  job.train.batch_size = batch_size;
  job.train.steps = 1000000;
  job.train.learning_rate = 1e-5;
  job.train.precision = precision;
  job.train.seed = 1;
  job.memory.divide_batch_norm = true;
  return {std::move(name), std::move(job)};
}

std::vector<Case> cases() {
  const job::GptConfig gpt{
      .layers = 4, .hidden_size = 192, .heads = 6, .context_length = 128, .vocab_size = 2048, .dropout = 0.1};
  const job::VitConfig vit{.layers = 4,
                           .hidden_size = 192,
                           .heads = 6,
                           .intermediate_size = 768,
                           .patch_size = 8,
                           .image_size = 64,
                           .classes = 100};
  const job::BertConfig bert{
      .layers = 3, .hidden_size = 192, .heads = 6, .intermediate_size = 768, .context_length = 128, .vocab_size = 4096};
  const job::LlamaConfig llama{.layers = 4,
                               .hidden_size = 192,
                               .heads = 6,
                               .intermediate_size = 512,
                               .key_value_heads = 2,
                               .head_size = 32,
                               .context_length = 128,
                               .vocab_size = 4096};
  using enum job::Precision;
  return {of("gpt", gpt, 8),
          of("gpt-bf16", gpt, 8, kBf16),
          of("bert", bert, 8),
          of("bert-bf16", bert, 8, kBf16),
          of("vit", vit, 16),
          of("vit-bf16", vit, 16, kBf16),
          of("llama", llama, 8),
          of("llama-bf16", llama, 8, kBf16),
          of("resnet-18", job::ResNetConfig{.depth = 18, .classes = 100, .image_size = 64}, 8),
          of("resnet-18-bf16", job::ResNetConfig{.depth = 18, .classes = 100, .image_size = 64}, 8, kBf16),
          of("resnet-50", job::ResNetConfig{.depth = 50, .classes = 100, .image_size = 64}, 8),
          of("unet", job::UnetConfig{.base_channels = 16, .levels = 3, .classes = 4, .image_size = 64}, 4),
          of("mlp", job::MlpConfig{.sizes = {784, 1024, 1024, 10}, .dropout = 0.1}, 256),
          of("lstm",
             job::LstmConfig{.layers = 2, .hidden_size = 192, .context_length = 64, .vocab_size = 2048, .dropout = 0.1},
             16)};
}

/// Plain, and each technique by itself and with some others; those that the job excludes left out.
std::vector<Plan> plans_for(const plan::Problem& problem) {
  const auto policy = [&](ActivationPolicy policy, std::size_t every = 1) {
    std::map<std::string, ActivationPolicy> result;
    for (std::size_t i = 0; i < problem.modules.size(); i += every) result[problem.modules[i]] = policy;
    return result;
  };
  const auto checkpoints = policy(ActivationPolicy::kCheckpoint);
  std::vector<Plan> all{
      {},
      {.activations = checkpoints},
      {.activations = policy(ActivationPolicy::kCheckpoint, 2)},
      {.activations = policy(ActivationPolicy::kSelective)},
      {.activations = policy(ActivationPolicy::kOffload)},
      {.loss_chunk_size = 128},
      {.optimizer = {.in_backward = true}},
      {.optimizer = {.state = plan::OptimizerState::k8Bit}},
      {.optimizer = {.place = plan::StatePlace::kHost}},
      {.optimizer = {.place = plan::StatePlace::kDisk}},
      {.micro_batch_size = problem.batch_size / 2},
      {.micro_batch_size = problem.batch_size / 4},
      {.micro_batch_size = problem.batch_size / 2, .activations = checkpoints},
      {.micro_batch_size = problem.batch_size / 4,
       .activations = policy(ActivationPolicy::kSelective),
       .loss_chunk_size = 256},
  };
  std::erase_if(all, [&](const Plan& plan) {
    return !plan::conflicts(plan, problem.facts).empty() || !plan::validate(problem, plan).empty();
  });
  return all;
}

struct Timed {
  Plan plan;
  double predicted = 0;
  std::unique_ptr<train::Session> session;
  std::vector<double> seconds{};
  double measured() const { return quantile(seconds, 0.25); }
};

class Training {
 public:
  Training(const job::Job& job, const plan::CostModel& costs)
      : job_(job),
        costs_(costs),
        simulate_(train::simulator(job, costs.device())),
        problem_(train::make_problem(job, costs.device(), Bytes(1))) {
    for (Plan& plan : plans_for(problem_)) {
      const double predicted = costs_.step_time(simulate_(plan)).count();
      all_.push_back({std::move(plan), predicted, nullptr});
    }
    recorder_ = std::make_unique<record::Recorder>(meter_);
    batch_ = data::open(job.data, job.model, job.train.batch_size, job.train.seed)->next();
    for (Timed& timed : all_) {
      timed.session = std::make_unique<train::Session>(job, timed.plan);
      step(timed);  // Makes the optimizer's state.
    }
  }

  void time(int visits) {
    std::mt19937 random(1);
    std::vector<Timed*> order;
    for (Timed& timed : all_) order.push_back(&timed);
    for (int visit = 0; visit < visits; ++visit) {
      std::shuffle(order.begin(), order.end(), random);
      for (Timed* timed : order) in_arena(*timed, [&] { timed->seconds.push_back(seconds_of([&] { step(*timed); })); });
    }
  }

  /// Steps that count, after those that fill the arena.
  template <class Work>
  void in_arena(Timed& timed, const Work& work) {
    record::Arena arena;
    for (int i = 0; i < kSettling; ++i) {
      const record::Arena::Step inside(arena);
      step(timed);
    }
    for (int i = 0; i < kCounted; ++i) {
      const record::Arena::Step inside(arena);
      work();
    }
  }

  void step(Timed& timed) {
    train::run_step(
        *timed.session, [&] { return batch_; }, static_cast<std::uint32_t>(timed.session->steps_done() + 1));
  }

  std::vector<Timed>& all() { return all_; }
  std::size_t modules() const { return problem_.modules.size(); }
  trace::Trace simulate(const Plan& plan) {
    recorder_.reset();
    trace::Trace trace = simulate_(plan);
    recorder_ = std::make_unique<record::Recorder>(meter_);
    return trace;
  }

 private:
  const job::Job& job_;
  const plan::CostModel& costs_;
  plan::Simulate simulate_;
  plan::Problem problem_;
  trace::PeakMeter meter_;
  std::unique_ptr<record::Recorder> recorder_;
  data::Batch batch_;
  std::vector<Timed> all_;
};

/// Real time by the ops of a trace: of calls inside one another the outermost that the trace knows counts.
class OpClock {
 public:
  struct Sum {
    std::size_t calls = 0;
    double seconds = 0;
  };
  explicit OpClock(const std::map<std::string, Sum>& known) : sums_(known) {
    for (auto& [name, sum] : sums_) sum = {};
    active_ = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::FUNCTION}));
  }
  ~OpClock() {
    at::removeCallback(handle_);
    active_ = nullptr;
  }
  OpClock(const OpClock&) = delete;
  OpClock& operator=(const OpClock&) = delete;
  const std::map<std::string, Sum>& sums() const { return sums_; }

 private:
  struct Call final : at::ObserverContext {
    Sum* sum = nullptr;
    double begin = 0;
  };
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    if (active_->inside_) return nullptr;
    const auto found = active_->sums_.find(function.name());
    if (found == active_->sums_.end()) return nullptr;
    active_->inside_ = true;
    auto call = std::make_unique<Call>();
    call->sum = &found->second;
    call->begin = now();
    return call;
  }
  static void end(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
    if (context == nullptr) return;
    auto& call = static_cast<Call&>(*context);
    call.sum->seconds += now() - call.begin;
    ++call.sum->calls;
    active_->inside_ = false;
  }

  static inline OpClock* active_ = nullptr;
  std::map<std::string, Sum> sums_;
  bool inside_ = false;
  at::CallbackHandle handle_{};
};

void print_ops(Training& training, const plan::CostModel& costs, Timed& timed) {
  const trace::Trace trace = training.simulate(timed.plan);
  std::map<std::string, OpClock::Sum> predicted, measured;
  costs.for_each_op(
      [&](const trace::OpCall& call, plan::Seconds seconds) {
        auto& sum = predicted[std::string(trace.name(call.name))];
        ++sum.calls;
        sum.seconds += seconds.count();
      },
      trace);
  double whole = 0;
  training.in_arena(timed, [&] {
    const OpClock clock(predicted);
    const double seconds = seconds_of([&] { training.step(timed); });
    if (whole != 0 && seconds > whole) return;
    whole = seconds;
    measured = clock.sums();
  });
  std::vector<std::pair<double, std::string>> order;
  double rest = whole;
  for (const auto& [name, sum] : measured) {
    order.emplace_back(-std::abs(sum.seconds - predicted[name].seconds), name);
    rest -= sum.seconds;
  }
  std::sort(order.begin(), order.end());
  std::printf("  by op: %s\n    %-56s %6s %6s %9s %9s %7s\n", plan::describe(timed.plan, training.modules()).c_str(),
              "", "calls", "real", "ms", "predicted", "ratio");
  for (const auto& [off, name] : order) {
    const auto &real = measured[name], &said = predicted[name];
    std::printf("    %-56s %6zu %6zu %9.3f %9.3f %7.2f\n", name.c_str(), said.calls, real.calls, real.seconds * 1e3,
                said.seconds * 1e3, said.seconds / real.seconds);
  }
  std::printf("    %-56s %6s %6s %9.3f\n", "outside them", "", "", rest * 1e3);
}

struct Ranking {
  int pairs = 0, agree = 0;
  double share() const { return pairs == 0 ? 1 : static_cast<double>(agree) / pairs; }
};

Ranking rank(const std::vector<Timed>& all) {
  Ranking ranking;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double measured = std::log(all[i].measured() / all[j].measured());
      if (std::abs(measured) < kTold) continue;
      ++ranking.pairs;
      ranking.agree += (measured > 0) == (all[i].predicted > all[j].predicted);
    }
  }
  return ranking;
}

void print(const std::string& name, const std::vector<Timed>& all, std::size_t modules) {
  for (const Timed& t : all) {
    const double ratio = t.predicted / t.measured();
    std::printf("  %-15s %10.2f %10.2f  %6.2f%s  %s\n", name.c_str(), t.predicted * 1e3, t.measured() * 1e3, ratio,
                std::abs(ratio - 1) <= kMostOff ? " " : "*", plan::describe(t.plan, modules).c_str());
  }
  std::fflush(stdout);
}

void run(std::string_view model, int visits, bool ops, int threads) {
  const double begin = now();
  const device::DeviceSpec cpu = device::find("cpu", train::set_threads(threads));
  const plan::CostModel costs(cpu, train::calibrate());
  std::printf("  calibrated in %.1f s\n  %-15s %10s %10s  %6s   plan\n", now() - begin, "", "predicted", "measured ms",
              "ratio");
  std::fflush(stdout);
  Ranking total;
  std::size_t held = 0, plans = 0;
  for (const Case& c : cases()) {
    if (!model.empty() && c.name != model) continue;
    Training training(c.job, costs);
    training.time(visits);
    print(c.name, training.all(), training.modules());
    const Ranking ranking = rank(training.all());
    total.pairs += ranking.pairs;
    total.agree += ranking.agree;
    plans += training.all().size();
    held += static_cast<std::size_t>(std::count_if(training.all().begin(), training.all().end(), [](const Timed& t) {
      return std::abs(t.predicted / t.measured() - 1) <= kMostOff;
    }));
    std::printf("  %-15s %d of %d pairs ranked as measured\n", c.name.c_str(), ranking.agree, ranking.pairs);
    if (ops) print_ops(training, costs, training.all().front());
    std::fflush(stdout);
  }
  std::printf(
      "  within %.0f %%: %zu of %zu; of %d pairs whose measured times differ by more than %.0f %%, %d (%.1f %%) "
      "are ranked right, at least %.0f %%: %s\n",
      kMostOff * 100, held, plans, total.pairs, kTold * 100, total.agree, 100 * total.share(), kLeastRanked * 100,
      total.share() >= kLeastRanked ? "held" : "MISSED");
}
}  // namespace
}  // namespace cinch::benchmarks

int main(int argc, char** argv) {
  std::string model;
  int visits = 3;
  bool ops = false;
  int threads = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ops")
      ops = true;
    else if (word.starts_with("--threads="))
      threads = std::atoi(argv[i] + 10);
    else if (word.find_first_not_of("0123456789") == std::string::npos)
      visits = std::max(1, std::atoi(argv[i]));
    else
      model = word;
  }
  cinch::benchmarks::print_conditions("predicted_time");
  cinch::benchmarks::run(model, visits, ops, threads);
  return 0;
}
