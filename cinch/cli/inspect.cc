// cinch inspect: what a recording, a folder of them, or the text of an error says.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "cinch/cli/output.h"
#include "cinch/cli/recording.h"
#include "cinch/cli/verbs.h"
#include "cinch/core/error.h"
#include "cinch/inspect/inspect.h"
#include "cinch/inspect/oom_text.h"
#include "cinch/inspect/ranks.h"
#include "cinch/report/inspection.h"
#include "cinch/report/oom_text.h"
#include "cinch/snapshot/write.h"

namespace cinch::cli {
namespace {

constexpr std::uint64_t kStreamed = std::uint64_t{1} << 32;

struct InspectOptions {
  std::string source, html;
  std::optional<std::string> capacity, events, out;
  bool json = false;

  std::string recording_flag() const { return events ? "--events" : out ? "--out" : capacity ? "--capacity" : ""; }
};

/// As typed, understood.
struct Question {
  inspect::Options options;
  snapshot::Window window;
  std::optional<snapshot::Format> format;  ///< Of the file to write.
};

std::size_t parse_event(const std::string& text, std::string_view part, std::size_t if_empty) {
  if (part.empty()) return if_empty;
  std::size_t event = 0;
  const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), event);
  if (error != std::errc() || rest != part.data() + part.size()) {
    throw UsageError("--events " + text + " is not a range of events",
                     "Say FIRST:LAST, such as 1000:5000; either may be left out.");
  }
  return event;
}

snapshot::Window parse_events(const std::string& text) {
  const std::size_t colon = text.find(':');
  snapshot::Window window;
  window.first = parse_event(text, std::string_view(text).substr(0, colon), 0);
  if (colon == std::string::npos) {
    throw UsageError("--events " + text + " has no colon",
                     "Say FIRST:LAST, such as 1000:5000; either may be left out.");
  }
  window.last = parse_event(text, std::string_view(text).substr(colon + 1), window.last);
  if (window.first >= window.last)
    throw UsageError("--events " + text + " holds no event", "The first comes before the last, which is not in it.");
  return window;
}

Question read(const InspectOptions& options) {
  Question question;
  if (options.capacity) {
    question.options.capacity = Bytes::parse(*options.capacity);
    if (*question.options.capacity <= Bytes(0)) {
      throw UsageError("--capacity is 0", "Give what the process may reserve, such as 23GiB.");
    }
  }
  if (options.events) question.window = parse_events(*options.events);
  if (options.out) question.format = snapshot::format_of(*options.out);
  return question;
}

const snapshot::Device& busiest(const snapshot::Snapshot& snapshot, const inspect::Ranks& ranks) {
  return snapshot.devices()[ranks.largest.value_or(0)];
}

report::Inspected inspect_snapshot(const snapshot::Snapshot& snapshot, const InspectOptions& options,
                                   const Question& question) {
  if (snapshot.devices().empty()) {
    throw UsageError(options.source + " holds no segment and no event of any GPU",
                     "Record with torch.cuda.memory._record_memory_history(), then _dump_snapshot().");
  }
  const bool history = std::any_of(snapshot.devices().begin(), snapshot.devices().end(),
                                   [](const auto& device) { return device.events > 0 || device.first_event > 0; });
  if (question.options.capacity && !history) {
    throw UsageError(options.source + " has no history: where it would run out, --capacity, cannot be said",
                     "Call torch.cuda.memory._record_memory_history() at the program's start, then dump again.");
  }
  report::Inspected result;
  const inspect::Ranks ranks = inspect::ranks_of(snapshot, options.source);
  const snapshot::Device& device = busiest(snapshot, ranks);
  result.inspection = inspect::inspect(snapshot, device, question.options);
  result.environment.device = "cuda:" + std::to_string(device.index);
  if (ranks.all.size() > 1) result.devices = ranks;
  if (question.format) {
    snapshot::write(snapshot, *options.out, *question.format);
    result.written = *options.out;
  }
  return result;
}

report::Inspected inspect_trace(const InspectOptions& options, const Question& question) {
  if (options.events) throw UsageError("--events is for snapshots; " + options.source + " is a trace of cinch's");
  trace::Trace trace;
  trace::load(options.source, trace);
  trace::classify(trace);
  report::Inspected result;
  result.inspection = inspect::inspect(trace, question.options);
  result.environment.device = trace.header().device_name;
  result.environment.threads = trace.header().threads;
  if (question.format) {
    snapshot::write(trace, *options.out, *question.format);
    result.written = *options.out;
  }
  return result;
}

ExitCode show(const InspectOptions& options, report::Inspected result) {
  result.inspection.source = options.source == "-" ? "standard input" : options.source;
  result.environment.libtorch = libtorch_version();
  present(options, result);
  return options.capacity && result.inspection.oom ? kDoesNotFit : kDone;
}

/// Flags that a folder or a text has no use for.
void refuse_flags(const InspectOptions& options, const std::string& what) {
  const std::string flag = options.recording_flag();
  if (!flag.empty()) throw UsageError(flag + " is for one recording; " + what);
}

ExitCode show_folder(const InspectOptions& options, Stage& stage) {
  refuse_flags(options, options.source + " is a folder");
  report::InspectedRanks result;
  result.source = options.source;
  result.ranks = inspect::inspect_folder(options.source);
  result.environment.device = "cuda";
  result.environment.libtorch = libtorch_version();
  stage = Stage::kWorking;
  present(options, result);
  return kDone;
}

ExitCode show_text(const InspectOptions& options, const inspect::OomReport& report, const std::string& name,
                   Stage& stage) {
  refuse_flags(options, name + " is the text of an error");
  const report::Environment environment{libtorch_version(), "cuda", 0};
  stage = Stage::kWorking;
  if (!options.html.empty()) write_file(options.html, report::html(report, environment, name));
  print(options.json
            ? report::json(report, environment, name)
            : report::text(report, colour_on_stdout()) + (options.html.empty() ? "" : "Wrote " + options.html + "\n"));
  return kDone;
}

/// A pickle, or something compressed. Text can begin with what JSON begins with: "[rank0]: torch.OutOfMemoryError: …".
bool is_binary(std::string_view bytes) {
  constexpr std::array<std::string_view, 3> kBegins = {"\x80", "\x1f\x8b", "\x28\xb5\x2f\xfd"};
  return std::any_of(kBegins.begin(), kBegins.end(), [&](std::string_view begin) { return bytes.starts_with(begin); });
}

bool perhaps_json(std::string_view bytes) {
  const std::size_t begin = bytes.find_first_not_of(" \t\r\n");
  return begin != std::string::npos && (bytes[begin] == '{' || bytes[begin] == '[');
}

/// The error in a text; nothing if these bytes are, or may be, a recording.
std::optional<inspect::OomReport> error_in(std::string_view bytes, const std::string& name) {
  if (is_binary(bytes)) return std::nullopt;
  try {
    return inspect::parse_oom_text(bytes, name);
  } catch (const DataError&) {
    if (!perhaps_json(bytes)) throw;
  }
  return std::nullopt;
}

/// Standard input, a pipe: what can be read once. `name` is for people.
ExitCode show_stream(const InspectOptions& options, const std::string& file, const std::string& name,
                     const Question& question, Stage& stage) {
  const std::string bytes = read_file(file, kStreamed);
  if (bytes.starts_with("CINCHTRC"))
    throw UsageError("a trace of cinch's cannot come from " + name, "Give its file's name.");
  if (const auto report = error_in(bytes, name)) return show_text(options, *report, name, stage);
  const auto snapshot = snapshot::Snapshot::parse(bytes, name, question.window);
  stage = Stage::kWorking;
  return show(options, inspect_snapshot(snapshot, options, question));
}

/// Text has no control characters but those of terminals. A recording in JSON begins with a brace, or with a bracket
/// and a brace; a line of a log with neither: "[rank0]: …".
bool looks_like_text(const std::string& source) {
  std::ifstream file(source, std::ios::binary);
  std::string begin(4096, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<std::size_t>(file.gcount()));
  const auto control = [](unsigned char c) { return c < ' ' && c != '\n' && c != '\t' && c != '\r' && c != '\x1b'; };
  if (begin.empty() || is_binary(begin) || std::any_of(begin.begin(), begin.end(), control)) return false;
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  if (first == std::string::npos || begin[first] == '{') return false;
  const std::size_t next = begin.find_first_not_of(" \t\r\n", first + 1);
  return begin[first] != '[' || (next != std::string::npos && begin[next] != '{' && begin[next] != ']');
}
}  // namespace

Run add_inspect(CLI::App& program) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* verb =
      program.add_subcommand("inspect", "What made the peak? What leaks? What is wasted? Could a setting help?");
  verb->add_option("source", options->source,
                   "A PyTorch memory snapshot, a trace of cinch's, a folder of snapshots (one a rank), the text of an "
                   "out-of-memory error, or - for a snapshot or text on standard input")
      ->required()
      ->type_name("SNAPSHOT|TRACE|TEXT|DIR|-");
  verb->add_option(
          "--capacity", options->capacity,
          "Where would it have run out on a smaller card? What the process may reserve there: the card less its "
          "CUDA context")
      ->type_name("SIZE");
  verb->add_option("--events", options->events, "These events alone, the last not included")->type_name("FIRST:LAST");
  verb->add_flag("--json", options->json, "One JSON document on standard output and nothing else");
  verb->add_option("--html", options->html, "Also a page for a browser")->type_name("FILE");
  verb->add_option("--out", options->out, "Write the recording, or those events, as .pickle, .json or .chrome.json")
      ->type_name("FILE");
  return [options](Stage& stage) {
    const Question question = read(*options);
    if (options->source == "-") return show_stream(*options, "/dev/stdin", "standard input", question, stage);
    std::error_code ignored;  // Whoever reads it says what is wrong.
    const auto kind = std::filesystem::status(options->source, ignored);
    if (std::filesystem::is_directory(kind)) return show_folder(*options, stage);
    if (std::filesystem::is_fifo(kind)) return show_stream(*options, options->source, options->source, question, stage);
    if (is_trace(options->source)) {
      report::Inspected result = inspect_trace(*options, question);
      stage = Stage::kWorking;
      return show(*options, std::move(result));
    }
    if (looks_like_text(options->source)) {
      const auto report = inspect::parse_oom_text(read_file(options->source), options->source);
      return show_text(*options, report, options->source, stage);
    }
    const auto snapshot = snapshot::Snapshot::open(options->source, question.window);
    stage = Stage::kWorking;
    return show(*options, inspect_snapshot(snapshot, *options, question));
  };
}
}  // namespace cinch::cli
