#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/allocator/replay.h"
#include "cinch/cli/output.h"
#include "cinch/cli/recording.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/report/replay.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/trace.h"

namespace cinch::cli {
namespace {

using allocator::Machine;
using allocator::Settings;
using allocator::WhatIf;

struct ReplayOptions {
  std::string recording;
  std::vector<std::string> alloc_confs;
  std::optional<std::string> capacity;
  bool grid = false, json = false, quiet = false;
};

/// A line on a terminal that counts settings tried.
class Count {
 public:
  explicit Count(bool wanted) : shown_(wanted && isatty(STDERR_FILENO) != 0) {}
  ~Count() {
    if (shown_ && count_ > 0) std::fputs("\r\x1b[K", stderr);
  }
  Count(const Count&) = delete;
  Count& operator=(const Count&) = delete;
  void operator()(const WhatIf& run) {
    ++count_;
    if (shown_) std::fprintf(stderr, "\r\x1b[K%zu settings tried: %s", count_, run.settings.to_string().c_str());
  }
  std::size_t count() const { return count_; }

 private:
  bool shown_ = false;
  std::size_t count_ = 0;
};

/// The verbs on what they are given: a recording's device, or a trace.
struct Subject {
  std::function<WhatIf(const Machine&)> what_if;
  std::function<std::vector<WhatIf>(const Machine&, const std::function<void(const WhatIf&)>&)> grid;
  Settings settings{};
};

std::vector<Settings> named_settings(const std::vector<std::string>& confs) {
  std::vector<Settings> result;
  for (const std::string& conf : confs) {
    const Settings settings = Settings::parse(conf);
    if (std::find(result.begin(), result.end(), settings) == result.end()) result.push_back(settings);
  }
  return result;
}

std::optional<Bytes> capacity_of(const ReplayOptions& options) {
  if (!options.capacity) return std::nullopt;
  const Bytes bytes = Bytes::parse(*options.capacity);
  if (bytes.count() <= 0) throw UsageError("--capacity is 0", "Give what the process may reserve, such as 23GiB.");
  return bytes;
}

void add_new(std::vector<WhatIf>& runs, const WhatIf& run, const Settings& now) {
  const bool known = run.settings == now || std::any_of(runs.begin(), runs.end(), [&](const WhatIf& each) {
                       return each.settings == run.settings;
                     });
  if (!known) runs.push_back(run);
}

void replay(const ReplayOptions& options, const Subject& subject, const std::vector<Settings>& named,
            report::Replayed& result) {
  Machine machine{.settings = subject.settings};
  if (result.capacity) machine.device_memory = *result.capacity;
  result.now = subject.what_if(machine);
  result.tried = 1;
  for (const Settings& settings : named) {
    if (settings == subject.settings) continue;
    machine.settings = settings;
    result.runs.push_back(subject.what_if(machine));
    ++result.tried;
  }
  if (options.grid) {
    Count count(!options.quiet);
    const auto runs = subject.grid(machine, [&](const WhatIf& run) { count(run); });
    for (const WhatIf& run : runs) add_new(result.runs, run, subject.settings);
    result.tried = std::max(result.tried, count.count());
  }
  if (const WhatIf* best = allocator::recommend(result.runs, result.now)) result.recommended = best->settings;
}

void replay_trace(const ReplayOptions& options, const std::vector<Settings>& named, report::Replayed& result) {
  trace::Trace trace;
  trace::load(options.recording, trace);
  result.events = trace.events().size();
  result.environment.device = trace.header().device_name;
  result.environment.threads = trace.header().threads;
  replay(options,
         {.what_if = [&](const Machine& machine) { return what_if(trace, machine); },
          .grid = [&](const Machine& machine, const auto& progress) { return grid(trace, machine, progress); }},
         named, result);
}

void replay_snapshot(const ReplayOptions& options, const std::vector<Settings>& named, report::Replayed& result) {
  const snapshot::Snapshot snapshot = snapshot::Snapshot::open(options.recording);
  const auto devices = snapshot.devices();
  if (devices.empty()) {
    throw UsageError(options.recording + " holds no segment and no event of any GPU",
                     "Record with torch.cuda.memory._record_memory_history(), then _dump_snapshot().");
  }
  const snapshot::Device& device = *std::max_element(devices.begin(), devices.end(),
                                                     [](const auto& a, const auto& b) { return a.events < b.events; });
  result.environment.device = "cuda:" + std::to_string(device.index);
  result.other_devices = devices.size() - 1;
  result.events = device.events;
  result.verdict = allocator::verify(snapshot, device);
  if (!result.capacity) result.capacity = allocator::recorded_memory(snapshot, device);
  replay(
      options,
      {.what_if = [&](const Machine& machine) { return what_if(snapshot, device, machine); },
       .grid = [&](const Machine& machine, const auto& progress) { return grid(snapshot, device, machine, progress); },
       .settings = allocator::recorded_settings(snapshot.settings())},
      named, result);
}
}  // namespace

Run add_replay(CLI::App& program) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* verb = program.add_subcommand("replay", "What if the allocator were set otherwise, or the card smaller?");
  verb->add_option("recording", options->recording, "A PyTorch memory snapshot, or a trace of cinch's")
      ->required()
      ->type_name("SNAPSHOT|TRACE");
  verb->add_option("--alloc-conf", options->alloc_confs, "A PYTORCH_CUDA_ALLOC_CONF to try. May be repeated")
      ->type_name("CONF")
      ->allow_extra_args(false);
  verb->add_flag("--grid", options->grid, "Search for settings and recommend one");
  verb->add_option("--capacity", options->capacity, "What the process may reserve: the card less its CUDA context")
      ->type_name("SIZE");
  verb->add_flag("--json", options->json, "One JSON document on standard output and nothing else");
  verb->add_flag("-q,--quiet", options->quiet, "No progress on standard error");
  return [options](Stage& stage) {
    const auto began = std::chrono::steady_clock::now();
    report::Replayed result;
    const std::vector<Settings> named = named_settings(options->alloc_confs);
    result.environment.libtorch = libtorch_version();
    result.source = options->recording;
    result.searched = options->grid;
    result.capacity = capacity_of(*options);
    result.capacity_given = result.capacity.has_value();
    if (is_trace(options->recording)) {
      replay_trace(*options, named, result);
    } else {
      replay_snapshot(*options, named, result);
    }
    result.elapsed_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    stage = Stage::kWorking;
    print(options->json ? report::json(result) : report::text(result, colour_on_stdout()));
    return result.capacity_given && !result.fits() ? kDoesNotFit : kDone;
  };
}
}  // namespace cinch::cli
