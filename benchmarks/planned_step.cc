// Is the plan that the planner picks as fast as the fastest that fits? Against every combination of micro-batch size
// and number of checkpointed modules, each really timed.
//
//   planned_step [ROUNDS]
//
// Of the sets of k modules the one of least peak stands for its number.

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <variant>

#include "benchmarks/measure.h"
#include "cinch/data/source.h"
#include "cinch/plan/internal/search.h"
#include "cinch/plan/solver.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"

namespace cinch::benchmarks {
namespace {

constexpr double kMost = 1.05;
constexpr double kTold = 0.03;  ///< Measured times that differ by less are no order to agree with.

job::Job small_gpt() {
  job::Job job;
  job.model = job::GptConfig{.layers = 4, .hidden_size = 192, .heads = 6, .context_length = 128, .dropout = 0.1};
  job.data = job::SyntheticData{};
  job.train.batch_size = 16;
  job.train.steps = 1000000;
  job.train.learning_rate = 1e-4;
  job.train.max_grad_norm = 1.0;
  job.train.seed = 1;
  return job;
}

/// One combination, with a session of its own.
struct Timed {
  plan::Candidate candidate;
  std::unique_ptr<train::Session> session;
  std::vector<double> seconds{};
  std::vector<double> faults{};  ///< Pages that the system had to clear for a step.
};

/// For each size of micro-batch and each number of modules: the set of least peak.
std::vector<plan::Candidate> combinations(const plan::Problem& problem, const plan::CostModel& costs,
                                          const plan::Simulate& simulate) {
  std::vector<plan::Candidate> result;
  const std::size_t n = problem.modules.size();
  for (const std::int64_t size : plan::internal::micro_batch_sizes(problem.batch_size, problem.may_divide_batch)) {
    std::vector<std::optional<plan::Candidate>> by_count(n + 1);
    for (std::size_t set = 0; set < std::size_t{1} << n; ++set) {
      plan::Plan plan{.micro_batch_size = size == problem.batch_size ? 0 : size, .activations = {}};
      for (std::size_t k = 0; k < n; ++k)
        if (set >> k & 1) plan.activations[problem.modules[k]] = plan::ActivationPolicy::kCheckpoint;
      const trace::Trace trace = simulate(plan);
      auto& smallest = by_count[plan.activations.size()];
      const Bytes peak = trace::Timeline(trace).peak().bytes;
      if (!smallest || peak < smallest->peak) smallest = {std::move(plan), peak, costs.step_time(trace)};
    }
    for (auto& candidate : by_count) result.push_back(std::move(*candidate));
  }
  return result;
}

double page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_minflt);
}

/// Rounds over all combinations, each in another order. The first step of a visit settles the heap and is not counted.
void time_all(std::vector<Timed>& all, const job::Job& job, int rounds) {
  const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
  std::mt19937 random(1);
  std::vector<Timed*> order;
  for (Timed& timed : all) order.push_back(&timed);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (Timed* timed : order) {
      const auto step = [&] {
        train::run_step(
            *timed->session, [&] { return source->next(); },
            static_cast<std::uint32_t>(timed->session->steps_done() + 1));
      };
      step();
      const double before = page_faults();
      timed->seconds.push_back(seconds_of(step));
      timed->faults.push_back(page_faults() - before);
    }
  }
}

struct Asked {
  int percent;
  Bytes budget;
  plan::Candidate chosen;
};

Bytes floor_of(plan::Problem problem, const plan::CostModel& costs, const plan::Simulate& simulate) {
  problem.budget = Bytes(1);
  return std::get<plan::Infeasible>(plan::solve(problem, costs, simulate)).smallest.peak;
}

std::vector<Asked> ask(plan::Problem problem, const plan::CostModel& costs, const plan::Simulate& simulate, Bytes floor,
                       Bytes unconstrained) {
  std::vector<Asked> all;
  for (const int percent : {10, 25, 50, 75, 100}) {
    problem.budget = floor + Bytes((unconstrained - floor).count() * percent / 100);
    const auto result = plan::solve(problem, costs, simulate);
    all.push_back({percent, problem.budget, std::get<plan::Solution>(result).best});
  }
  return all;
}

void print_combinations(const std::vector<Timed>& all, std::size_t modules) {
  std::puts("  peak MiB   measured ms  (quartiles)        predicted ms  predicted/measured  page faults  plan");
  for (const Timed& t : all) {
    const double measured = median(t.seconds), predicted = t.candidate.step_time.count();
    std::printf("  %8.1f  %12.1f  (%.1f to %.1f)  %12.1f  %18.2f  %11.0f  %s\n",
                static_cast<double>(t.candidate.peak.count()) / (1 << 20), measured * 1e3,
                quantile(t.seconds, 0.25) * 1e3, quantile(t.seconds, 0.75) * 1e3, predicted * 1e3, predicted / measured,
                median(t.faults), plan::describe(t.candidate.plan, modules).c_str());
  }
}

void print_ranking(const std::vector<Timed>& all) {
  int pairs = 0, agree = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double measured = std::log(median(all[i].seconds) / median(all[j].seconds));
      if (std::abs(measured) < kTold) continue;
      ++pairs;
      agree += (measured > 0) == (all[i].candidate.step_time > all[j].candidate.step_time);
    }
  }
  std::printf(
      "  of %d pairs whose measured times differ by more than %.0f %%, the prediction orders %d (%.0f %%) as "
      "measured\n",
      pairs, kTold * 100, agree, 100.0 * agree / std::max(pairs, 1));
}

const Timed& find(const std::vector<Timed>& all, const plan::Plan& plan) {
  return *std::find_if(all.begin(), all.end(), [&](const Timed& t) { return t.candidate.plan == plan; });
}

void print_choices(const std::vector<Timed>& all, const std::vector<Asked>& asked, std::size_t modules) {
  std::puts(
      "  budget          chosen: plan, ms                          fastest that fits: plan, ms               ratio  "
      "demand");
  for (const Asked& a : asked) {
    const Timed* fastest = nullptr;
    for (const Timed& t : all) {
      if (t.candidate.peak > a.budget) continue;
      if (fastest == nullptr || median(t.seconds) < median(fastest->seconds)) fastest = &t;
    }
    const Timed& chosen = find(all, a.chosen.plan);
    const double ratio = median(chosen.seconds) / median(fastest->seconds);
    std::printf("  %3d %% %6.1f MiB  %-33s %6.1f  %-33s %6.1f  %.3f  at most %.2f: %s\n", a.percent,
                static_cast<double>(a.budget.count()) / (1 << 20),
                plan::describe(chosen.candidate.plan, modules).c_str(), median(chosen.seconds) * 1e3,
                plan::describe(fastest->candidate.plan, modules).c_str(), median(fastest->seconds) * 1e3, ratio, kMost,
                verdict(ratio, kMost));
  }
}

void run(int rounds) {
  const job::Job job = small_gpt();
  const device::DeviceSpec cpu = device::find("cpu", train::set_threads(0));
  const plan::CostModel costs(cpu, train::calibrate());
  const plan::Simulate simulate = train::simulator(job, cpu);
  const plan::Problem problem = train::make_problem(job, cpu, Bytes(1));
  const auto candidates = combinations(problem, costs, simulate);
  const auto asked = ask(problem, costs, simulate, floor_of(problem, costs, simulate), candidates.front().peak);

  trace::PeakMeter meter;
  const record::Recorder recorder(meter);  // As every training of cinch runs.
  std::vector<Timed> all;
  const auto add = [&](const plan::Candidate& candidate) {
    const auto same = [&](const Timed& t) { return t.candidate.plan == candidate.plan; };
    if (std::any_of(all.begin(), all.end(), same)) return;
    all.push_back({candidate, std::make_unique<train::Session>(job, candidate.plan)});
  };
  for (const auto& candidate : candidates) add(candidate);
  for (const Asked& a : asked) add(a.chosen);
  std::printf("  GPT of 4 layers, 192 wide, context 128, batch 16: %zu combinations, %d rounds\n", all.size(), rounds);
  time_all(all, job, rounds);

  print_combinations(all, problem.modules.size());
  print_ranking(all);
  print_choices(all, asked, problem.modules.size());
}
}  // namespace
}  // namespace cinch::benchmarks

int main(int argc, char** argv) {
  cinch::benchmarks::print_conditions("planned_step");
  cinch::benchmarks::run(argc > 1 ? std::atoi(argv[1]) : 15);
  return 0;
}
