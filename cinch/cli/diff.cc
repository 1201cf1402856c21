// cinch diff: what grew between two recordings.

#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "cinch/cli/output.h"
#include "cinch/cli/recording.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/inspect/diff.h"
#include "cinch/report/diff.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/trace.h"

namespace cinch::cli {
namespace {

struct DiffOptions {
  std::string before, after;
  std::optional<std::string> threshold;
  bool json = false;
};

/// Allowed growth: bytes, or a share of the peak before.
struct Threshold {
  Bytes bytes;
  std::optional<double> percent;

  Bytes of(Bytes peak) const {
    return percent ? Bytes(std::llround(static_cast<double>(peak.count()) * *percent / 100)) : bytes;
  }
};

Threshold parse_threshold(const std::string& text) {
  constexpr const char* hint = "Give a size, such as 100MiB, or a share of the peak before, such as 2%.";
  if (text.empty() || text.back() != '%') return {Bytes::parse(text), std::nullopt};
  double percent = 0;
  const char* end = text.data() + text.size() - 1;
  const auto [rest, error] = std::from_chars(text.data(), end, percent);
  const bool sensible = error == std::errc() && rest == end && percent >= 0 && percent <= 1e6;
  if (!sensible) throw UsageError("--threshold " + text + " is not a share", hint);
  return {Bytes(), percent};
}

inspect::Holdings holdings(const std::string& file, report::Environment& environment) {
  if (!is_trace(file)) {
    const snapshot::Snapshot snapshot = snapshot::Snapshot::open(file);
    const auto devices = snapshot.devices();
    environment.device = devices.size() == 1 ? "cuda:" + std::to_string(devices.front().index) : "cuda";
    return inspect::holdings(snapshot);
  }
  trace::Trace trace;
  trace::load(file, trace);
  trace::classify(trace);
  environment.device = trace.header().device_name;
  environment.threads = trace.header().threads;
  return inspect::holdings(trace);
}
}  // namespace

Run add_diff(CLI::App& program) {
  auto options = std::make_shared<DiffOptions>();
  CLI::App* verb = program.add_subcommand("diff", "What grew between two recordings, by category, module, call path.");
  verb->add_option("before", options->before, "A PyTorch memory snapshot, or a trace of cinch's")
      ->required()
      ->type_name("SNAPSHOT|TRACE");
  verb->add_option("after", options->after, "Another of the same program")->required()->type_name("SNAPSHOT|TRACE");
  verb->add_option("--threshold", options->threshold,
                   "Exit with 1 if the peak or the end grew by more: bytes, or a share of the peak before")
      ->type_name("SIZE|PERCENT%");
  verb->add_flag("--json", options->json, "One JSON document on standard output and nothing else");
  return [options](Stage& stage) {
    std::optional<Threshold> threshold;
    if (options->threshold) threshold = parse_threshold(*options->threshold);
    report::Comparison result;
    result.before = options->before;
    result.after = options->after;
    const inspect::Holdings before = holdings(options->before, result.environment);
    const inspect::Holdings after = holdings(options->after, result.environment);
    stage = Stage::kWorking;
    result.environment.libtorch = libtorch_version();
    result.diff = inspect::compare(before, after);
    if (threshold) {
      result.threshold = threshold->of(before.peak.total.bytes);
      result.beyond = result.diff.peak.grown() > *result.threshold || result.diff.end.grown() > *result.threshold;
    }
    print(options->json ? report::json(result) : report::text(result, colour_on_stdout()));
    return result.beyond ? kFailed : kDone;
  };
}
}  // namespace cinch::cli
