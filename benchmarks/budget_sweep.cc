// Under each of ten budgets: is the planned step as fast as the best of what people do by hand, and does it keep the
// cap?
//
//   budget_sweep [MODEL] [ROUNDS]
//
// By hand: nothing, every module checkpointed, every second, every √n-th kept. Each plan first trains under a hard cap
// of its budget; then all are timed side by side, without one.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "benchmarks/measure.h"
#include "cinch/data/source.h"
#include "cinch/plan/solver.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"

namespace cinch::benchmarks {
namespace {

constexpr double kMost = 1.05;  ///< Of the best by hand that fits.
constexpr double kMostAtRoom =
    0.9;  ///< Of checkpointing everything, where the budget leaves three quarters of the room.
constexpr int kBudgets = 10;

struct Model {
  std::string name;
  job::ModelConfig config;
  std::int64_t batch_size;
};

std::vector<Model> models() {
  return {
      {"gpt",
       job::GptConfig{
           .layers = 6, .hidden_size = 256, .heads = 8, .context_length = 128, .vocab_size = 8192, .dropout = 0.1},
       16},
      {"resnet-50", job::ResNetConfig{.depth = 50, .classes = 10, .image_size = 64}, 16},
      {"vit",
       job::VitConfig{.layers = 6, .hidden_size = 192, .heads = 3, .patch_size = 16, .image_size = 128, .classes = 10},
       32},
      {"llama",
       job::LlamaConfig{.layers = 6,
                        .hidden_size = 256,
                        .heads = 8,
                        .intermediate_size = 688,
                        .key_value_heads = 4,
                        .head_size = 32,
                        .context_length = 128,
                        .vocab_size = 8192},
       16},
  };
}

job::Job job_of(const Model& model) {
  job::Job job;
  job.model = model.config;
  job.data = job::SyntheticData{};
  job.train.batch_size = model.batch_size;
  job.train.steps = 1000000;
  job.train.learning_rate = 1e-4;
  job.train.seed = 1;
  return job;
}

/// One plan, with a session of its own.
struct Timed {
  std::string name;
  plan::Candidate candidate;
  std::unique_ptr<train::Session> session{};
  std::vector<double> seconds{};
  double time() const { return median(seconds); }
};

std::vector<Timed> by_hand(const plan::Problem& problem, const plan::CostModel& costs, const plan::Simulate& simulate) {
  const auto root = static_cast<std::size_t>(std::sqrt(static_cast<double>(problem.modules.size())));
  std::vector<Timed> all;
  const auto add = [&](const char* name, auto takes) {
    plan::Plan plan;
    for (std::size_t k = 0; k < problem.modules.size(); ++k)
      if (takes(k)) plan.activations[problem.modules[k]] = plan::ActivationPolicy::kCheckpoint;
    const trace::Trace trace = simulate(plan);
    all.push_back({name, {plan, trace::Timeline(trace).peak().bytes, costs.step_time(trace)}});
  };
  add("nothing", [](std::size_t) { return false; });
  add("every module", [](std::size_t) { return true; });
  add("every second", [](std::size_t k) { return k % 2 == 0; });
  add("all but each root-n-th", [root](std::size_t k) { return k % std::max<std::size_t>(root, 2) != 0; });
  return all;
}

/// The peak of two steps under a hard cap; nothing if it was not kept to.
std::optional<Bytes> peak_under(const job::Job& job, const plan::Plan& plan, Bytes cap) {
  trace::PeakMeter meter;
  try {
    const record::Recorder recorder(meter, {.cap = cap});
    std::optional<train::Session> session;
    {
      const trace::PhaseScope init(trace::Phase::kInit, 0);
      session.emplace(job, plan);
    }
    const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
    for (std::uint32_t step = 1; step <= 2; ++step)
      train::run_step(
          *session, [&] { return source->next(); }, step);
  } catch (const record::OutOfMemoryError&) {
    return std::nullopt;
  }
  return meter.peak();
}

void time_all(std::vector<Timed>& all, const job::Job& job, int rounds) {
  trace::PeakMeter meter;
  const record::Recorder recorder(meter);
  const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
  std::mt19937 random(1);
  std::vector<Timed*> order;
  for (Timed& timed : all) {
    timed.session = std::make_unique<train::Session>(job, timed.candidate.plan);
    order.push_back(&timed);
  }
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (Timed* timed : order) {
      const auto step = [&] {
        train::run_step(
            *timed->session, [&] { return source->next(); },
            static_cast<std::uint32_t>(timed->session->steps_done() + 1));
      };
      step();  // Settles the heap.
      timed->seconds.push_back(seconds_of(step));
    }
  }
  for (Timed& timed : all) timed.session.reset();
}

struct Row {
  int tenths;
  Bytes budget;
  std::size_t chosen;  ///< In the list of all that are timed.
  std::optional<Bytes> measured;
};

void print(const std::vector<Timed>& all, const std::vector<Row>& rows, std::size_t hand, std::size_t modules) {
  std::puts("   room    budget MiB   predicted     measured  ms  by hand: ms                      ratio  plan");
  for (const Row& row : rows) {
    const Timed& chosen = all[row.chosen];
    const Timed* best = nullptr;
    for (std::size_t i = 0; i < hand; ++i)
      if (all[i].candidate.peak <= row.budget && (best == nullptr || all[i].time() < best->time())) best = &all[i];
    const double ratio = best != nullptr ? chosen.time() / best->time() : 0;
    const double of_all = chosen.time() / all[1].time();
    std::printf(
        "  %4d %%  %9.1f  %10lld  %s  %6.1f  %-22s %7.1f  %5.3f %s%s  %s\n", row.tenths * 10,
        static_cast<double>(row.budget.count()) / (1 << 20), static_cast<long long>(chosen.candidate.peak.count()),
        !row.measured                            ? "OVER THE CAP"
        : *row.measured == chosen.candidate.peak ? "       equal"
                                                 : "     DIFFERS",
        chosen.time() * 1e3, best ? best->name.c_str() : "none fits", best ? best->time() * 1e3 : 0.0, ratio,
        best ? verdict(ratio, kMost) : "",
        row.tenths >= 8 ? (of_all <= kMostAtRoom ? ", 10 % under everything" : ", NOT 10 % under everything") : "",
        plan::describe(chosen.candidate.plan, modules).c_str());
  }
}

void run(const Model& model, int rounds) {
  const job::Job job = job_of(model);
  const device::DeviceSpec cpu = device::find("cpu", train::set_threads(0));
  const plan::CostModel costs(cpu, train::calibrate());
  const plan::Simulate simulate = train::simulator(job, cpu), abridged = train::abridged_simulator(job, cpu);
  plan::Problem problem = train::make_problem(job, cpu, Bytes(1));
  std::vector<Timed> all = by_hand(problem, costs, simulate);
  const std::size_t hand = all.size();
  const Bytes plain = all.front().candidate.peak;
  const Bytes floor = std::get<plan::Infeasible>(plan::solve(problem, costs, abridged)).smallest.peak;
  std::vector<Row> rows;
  for (int tenths = 1; tenths <= kBudgets; ++tenths) {
    problem.budget = floor + Bytes((plain - floor).count() * tenths / kBudgets);
    const plan::Candidate best = std::get<plan::Solution>(plan::solve(problem, costs, abridged)).best;
    const auto same = [&](const Timed& timed) { return timed.candidate.plan == best.plan; };
    const auto known = std::ranges::find_if(all, same);
    rows.push_back({tenths, problem.budget, static_cast<std::size_t>(known - all.begin()),
                    peak_under(job, best.plan, problem.budget)});
    if (known == all.end()) all.push_back({"planned", best});
  }
  std::printf("%s, batch %lld: floor %s, plain %s; %zu plans timed, %d rounds\n", model.name.c_str(),
              static_cast<long long>(model.batch_size), to_string(floor).c_str(), to_string(plain).c_str(), all.size(),
              rounds);
  time_all(all, job, rounds);
  print(all, rows, hand, problem.modules.size());
  std::fflush(stdout);
}
}  // namespace
}  // namespace cinch::benchmarks

int main(int argc, char** argv) {
  cinch::benchmarks::print_conditions("budget_sweep");
  for (const auto& model : cinch::benchmarks::models())
    if (argc < 2 || model.name == argv[1]) cinch::benchmarks::run(model, argc > 2 ? std::atoi(argv[2]) : 7);
  return 0;
}
