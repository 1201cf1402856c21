// How fast is the dry run of a large training step, beside PyTorch's own estimate of the same step: FakeTensorMode with
// MemTracker (dry_run_peers.py)? And does its time grow with the layers alone?
//
// The peer runs where CINCH_PEER_TORCH names a folder with PyTorch for Python:
//   pip install --target DIR torch==2.11.0 numpy;  CINCH_PEER_TORCH=DIR dry_run
// CINCH_PEER_PYTHON: the interpreter, python3 if it is not set.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "benchmarks/measure.h"
#include "cinch/data/source.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"

namespace cinch::benchmarks {
namespace {

constexpr int kRepetitions = 9;

job::Job gpt(std::int64_t layers) {
  job::Job job;
  job.model = job::GptConfig{.layers = layers, .hidden_size = 4096, .heads = 32, .context_length = 2048, .vocab_size = 50257};
  job.data = job::SyntheticData{};
  job.train.batch_size = 8;
  job.train.steps = 2;
  job.train.learning_rate = 1e-4;
  return job;
}

struct DryStep {
  double model = 0, first = 0, second = 0;  ///< Seconds: the model is built, step 1 (with the optimizer's state), step 2.
  Bytes peak;
  std::size_t ops = 0, events = 0;
};

DryStep dry_run(const job::Job& job) {
  DryStep result;
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, device::find("cpu"));
    std::optional<train::Session> session;
    result.model = seconds_of([&] {
      const trace::PhaseScope init(trace::Phase::kInit, 0);
      session.emplace(job, plan::Plan{});
    });
    const auto next = [&] { return data::example_batch(job.data, job.model, job.train.batch_size); };
    result.first = seconds_of([&] { train::run_step(*session, next, 1); });
    result.second = seconds_of([&] { train::run_step(*session, next, 2); });
  }
  result.peak = trace::Timeline(trace).peak().bytes;
  result.ops = trace.ops().size();
  result.events = trace.events().size();
  return result;
}

DryStep median_run(const job::Job& job) {
  std::vector<double> model, first, second;
  DryStep last;
  for (int i = 0; i < kRepetitions; ++i) {
    last = dry_run(job);
    model.push_back(last.model);
    first.push_back(last.first);
    second.push_back(last.second);
  }
  last.model = median(model);
  last.first = median(first);
  last.second = median(second);
  return last;
}

void print(const char* what, const DryStep& run) {
  std::printf("  %-22s model %7.1f ms, step 1 %7.1f ms, step 2 %7.1f ms; %zu ops, %zu events, peak %s\n", what,
              run.model * 1e3, run.first * 1e3, run.second * 1e3, run.ops, run.events, to_string(run.peak).c_str());
  std::fflush(stdout);
}

/// Seconds of the peer's step, from its last line "step SECONDS"; nothing where it cannot run.
std::optional<double> peer() {
  const char* folder = std::getenv("CINCH_PEER_TORCH");
  if (folder == nullptr) {
    std::puts("  the peer did not run: pip install --target DIR torch==2.11.0 numpy, then CINCH_PEER_TORCH=DIR");
    return std::nullopt;
  }
  const char* named = std::getenv("CINCH_PEER_PYTHON");
  const std::string python = named == nullptr ? "python3" : named;
  ::setenv("PYTHONPATH", folder, 1);
  ::unsetenv("LD_LIBRARY_PATH");
  const std::string command = python + " " CINCH_SOURCE_DIR "/benchmarks/dry_run_peers.py";
  std::FILE* out = ::popen(command.c_str(), "r");
  if (out == nullptr) throw std::runtime_error("cannot start " + python);
  std::optional<double> seconds;
  char line[512];
  while (std::fgets(line, sizeof line, out) != nullptr) {
    std::printf("  peer: %s", line);
    double value = 0;
    if (std::sscanf(line, "step %lf", &value) == 1) seconds = value;
  }
  if (::pclose(out) != 0 || !seconds) throw std::runtime_error("the peer failed: " + command);
  return seconds;
}

int run() {
  const DryStep first = dry_run(gpt(32));
  print("32 layers, first run:", first);
  const DryStep later = median_run(gpt(32));
  print("32 layers, medians:", later);
  const double whole = later.model + later.first;
  std::printf("  model and whole step %.1f ms: %s (at most 100 ms after start-up)\n", whole * 1e3, verdict(whole, 0.1));
  std::printf("  process memory %s: %s (below 1 GiB)\n", to_string(record::resident_peak()).c_str(),
              verdict(static_cast<double>(record::resident_peak().count()), 1 << 30));
  for (const std::int64_t layers : {8, 16, 64, 128}) {
    const DryStep scaled = median_run(gpt(layers));
    print((std::to_string(layers) + " layers, medians:").c_str(), scaled);
    std::printf("    a layer, step 1: %.3f ms\n", scaled.first * 1e3 / static_cast<double>(layers));
  }
  if (const auto seconds = peer()) {
    const double ratio = *seconds / later.first;
    std::printf("  FakeTensor + MemTracker, the step alone: %.2f s, %.0f times as long: %s (at least 50)\n", *seconds, ratio,
                ratio >= 50 ? "held" : "MISSED");
  }
  return 0;
}
}  // namespace
}  // namespace cinch::benchmarks

int main() try {
  cinch::benchmarks::print_conditions("dry_run");
  return cinch::benchmarks::run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
