// How much faster is a training step whose tensors come from an arena, and what does the arena take?
//
//   arena             GPTs of a small and of a large vocabulary, a ResNet, an MLP
//   arena SIDE MODEL  one side, a step for each byte on standard input: what the above starts
//
// One side is a Session as train::fit runs it: recorder, cap, arena. The other is the same Session on LibTorch's own
// allocator, with no recorder. They run in two processes, since cinch's allocator stays once it is installed, and take
// turns.

#include <sys/resource.h>
#include <time.h>

#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/measure.h"
#include "benchmarks/process.h"
#include "cinch/data/source.h"
#include "cinch/record/arena.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/sink.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"

namespace cinch::benchmarks {
namespace {

constexpr double kMostTime = 0.95, kMostReserved = 1.05;
constexpr int kProcessPairs = 2;

struct Case {
  std::string name;
  job::Job job;
  int rounds;  ///< Steps of each side in one pair of processes.
  int burst;   ///< Steps that are measured as one.
};

job::Job job_of(job::ModelConfig model, std::int64_t batch_size) {
  job::Job job;
  job.model = std::move(model);
  job.data = job::SyntheticData{};
  job.train.batch_size = batch_size;
  job.train.steps = 1000000;
  job.train.learning_rate = 1e-4;
  job.train.max_grad_norm = 1.0;
  job.train.seed = 1;
  return job;
}

std::vector<Case> cases() {
  using job::GptConfig;
  return {
      {"gpt", job_of(GptConfig{.layers = 6, .hidden_size = 384, .heads = 6, .context_length = 256, .dropout = 0.1}, 8),
       /*rounds=*/8, /*burst=*/1},
      {"gpt-50257",
       job_of(GptConfig{.layers = 4, .hidden_size = 256, .heads = 4, .context_length = 256, .vocab_size = 50257}, 4),
       /*rounds=*/8, /*burst=*/1},
      {"resnet18", job_of(job::ResNetConfig{.classes = 10, .image_size = 64}, 32), /*rounds=*/8, /*burst=*/1},
      {"mlp", job_of(job::MlpConfig{.sizes = {784, 512, 512, 10}, .dropout = 0.1}, 128), /*rounds=*/20, /*burst=*/10}};
}

struct Answer {
  double wall = 0, processor = 0, faults = 0;  ///< Of one step.
  double peak = 0, reserved = 0;               ///< Bytes, so far.
};

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

class Side {
 public:
  Side(const job::Job& job, bool in_arena)
      : source_(data::open(job.data, job.model, job.train.batch_size, job.train.seed)) {
    if (in_arena) {
      recorder_.emplace(meter_, record::RecorderOptions{.cap = Bytes::parse("1TiB")});
      arena_.emplace();
    }
    session_.emplace(job, plan::Plan{});
  }

  void step() {
    std::optional<record::Arena::Step> step;
    if (arena_) step.emplace(*arena_);
    const auto number = static_cast<std::uint32_t>(session_->steps_done() + 1);
    train::run_step(
        *session_, [&] { return source_->next(); }, number);
  }

  Answer burst(int steps) {
    rusage before{}, after{};
    timespec begin{}, end{};
    ::getrusage(RUSAGE_SELF, &before);
    ::clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < steps; ++i) step();
    ::clock_gettime(CLOCK_MONOTONIC, &end);
    ::getrusage(RUSAGE_SELF, &after);
    Answer answer;
    answer.wall =
        static_cast<double>(end.tv_sec - begin.tv_sec) + static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-9;
    answer.processor =
        seconds(after.ru_utime) + seconds(after.ru_stime) - seconds(before.ru_utime) - seconds(before.ru_stime);
    answer.faults = static_cast<double>(after.ru_minflt - before.ru_minflt);
    for (double* figure : {&answer.wall, &answer.processor, &answer.faults}) *figure /= steps;
    if (recorder_) {
      answer.peak = static_cast<double>(recorder_->peak().count());
      answer.reserved = static_cast<double>(recorder_->reserved_peak().count());
    }
    return answer;
  }

 private:
  std::unique_ptr<data::Source> source_;
  trace::PeakMeter meter_;
  std::optional<record::Recorder> recorder_;
  std::optional<record::Arena> arena_;
  std::optional<train::Session> session_;
};

int serve(const std::string& which, const std::string& model) {
  for (const Case& c : cases()) {
    if (c.name != model) continue;
    Side side(c.job, which == "arena");
    for (int i = 0; i < 3; ++i) side.step();
    return answer_with([&] { return side.burst(c.burst); });
  }
  return 2;
}

std::vector<double> column(const std::vector<Answer>& answers, double Answer::*figure) {
  std::vector<double> values;
  for (const Answer& answer : answers) values.push_back(answer.*figure);
  return values;
}

void print_time(const char* what, const std::vector<Answer>& arena, const std::vector<Answer>& stock,
                double Answer::*figure) {
  const auto with = column(arena, figure), without = column(stock, figure);
  const auto pairs = ratios(with, without);
  std::printf("  %-12s %9.2f ms  %9.2f ms   pairs: median %.3f, quartiles %.3f to %.3f, %zu   at most %.2f: %s\n", what,
              median(with) * 1e3, median(without) * 1e3, median(pairs), quantile(pairs, 0.25), quantile(pairs, 0.75),
              pairs.size(), kMostTime, verdict(median(pairs), kMostTime));
}

void compare(const Case& c) {
  std::vector<Answer> arena, stock;
  for (int pair = 0; pair < kProcessPairs; ++pair) {
    const Process<Answer> a({"arena", c.name}), b({"stock", c.name});
    for (int round = 0; round < c.rounds; ++round) {
      const bool arena_first = (pair + round) % 2 == 0;
      if (arena_first) arena.push_back(a.ask());
      stock.push_back(b.ask());
      if (!arena_first) arena.push_back(a.ask());
    }
  }
  std::printf("%s: a step in the arena | on LibTorch's allocator\n", c.name.c_str());
  print_time("wall clock", arena, stock, &Answer::wall);
  print_time("processor", arena, stock, &Answer::processor);
  std::printf("  %-12s %9.0f     %9.0f\n", "page faults", median(column(arena, &Answer::faults)),
              median(column(stock, &Answer::faults)));
  const double peak = arena.back().peak, reserved = arena.back().reserved;
  std::printf("  reserved %.0f B of a live peak of %.0f B: ratio %.4f   at most %.2f: %s\n", reserved, peak,
              reserved / peak, kMostReserved, verdict(reserved / peak, kMostReserved));
  std::fflush(stdout);
}
}  // namespace
}  // namespace cinch::benchmarks

int main(int argc, char** argv) {
  using namespace cinch::benchmarks;
  if (argc == 3) return serve(argv[1], argv[2]);
  print_conditions("arena");
  for (const auto& c : cases()) compare(c);
  return 0;
}
