// How long does planning take, beside one real step? No other program plans so, hence no peer: the step is the measure.

#include <string>
#include <variant>

#include "benchmarks/measure.h"
#include "cinch/data/source.h"
#include "cinch/plan/solver.h"
#include "cinch/record/recorder.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"

namespace cinch::benchmarks {
namespace {

constexpr int kRepetitions = 7;

template <class Work>
double median_of(int repetitions, const Work& work) {
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) seconds.push_back(seconds_of(work));
  return median(seconds);
}

/// A job file of the examples, on random data, writing nothing.
job::Job load(const std::string& name) {
  job::Job job = job::load(std::string(CINCH_SOURCE_DIR) + "/examples/" + name + ".toml");
  job.data = job::SyntheticData{};
  job.train.run_dir.clear();
  return job;
}

void print(const char* what, double seconds, double step) {
  std::printf("  %-38s %10.1f ms   %8.4f steps\n", what, seconds * 1e3, seconds / step);
  std::fflush(stdout);
}

/// Of a job under a plan; of the second step, as the first makes the optimizer's state.
double step_seconds(const job::Job& job, const plan::Plan& plan, int steps) {
  trace::PeakMeter meter;
  const record::Recorder recorder(meter);
  train::Session session(job, plan);
  const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
  std::uint32_t done = 0;
  const auto step = [&] {
    train::run_step(
        session, [&] { return source->next(); }, ++done);
  };
  step();
  return median_of(steps, step);
}

plan::Candidate smallest(plan::Problem problem, const plan::CostModel& costs, const plan::Simulate& simulate) {
  problem.budget = Bytes(1);
  return std::get<plan::Infeasible>(plan::solve(problem, costs, simulate)).smallest;
}

void measure(const std::string& name, const plan::Calibration& calibration, int steps) {
  const job::Job job = load(name);
  const device::DeviceSpec cpu = device::find("cpu", train::set_threads(0));
  const plan::CostModel costs(cpu, calibration);
  const plan::Simulate simulate = train::simulator(job, cpu);
  plan::Problem problem;
  const double made = median_of(kRepetitions, [&] { problem = train::make_problem(job, cpu, Bytes(1)); });
  const double dry = median_of(kRepetitions, [&] { (void)simulate({}); });
  const Bytes floor = smallest(problem, costs, simulate).peak;
  const Bytes plain = trace::Timeline(simulate({})).peak().bytes;
  problem.budget = floor + Bytes((plain - floor).count() / 2);
  plan::Solution solution;
  const double solved = seconds_of([&] { solution = std::get<plan::Solution>(plan::solve(problem, costs, simulate)); });
  const double step = step_seconds(job, solution.best.plan, steps);
  std::printf("  %s: a step under the plan for %s (%s) takes %.2f s, predicted %.2f s\n", name.c_str(),
              to_string(problem.budget).c_str(), plan::describe(solution.best.plan, problem.modules.size()).c_str(),
              step, solution.best.step_time.count());
  print("make_problem", made, step);
  print("one dry run (init, 2 steps, evaluation)", dry, step);
  print(("solve, " + std::to_string(solution.simulated) + " plans dry-run").c_str(), solved, step);
}

void run() {
  train::set_threads(0);
  plan::Calibration calibration;
  const double calibrated = seconds_of([&] { calibration = train::calibrate(); });
  std::printf("  calibrate, once a planning: %.0f ms\n", calibrated * 1e3);
  measure("demo", calibration, 5);
  measure("gpt-small", calibration, 1);
}
}  // namespace
}  // namespace cinch::benchmarks

int main() {
  cinch::benchmarks::print_conditions("planning_speed");
  cinch::benchmarks::run();
  return 0;
}
