#include "cinch/snapshot/internal/chrome.h"

#include <string>
#include <string_view>

#include "cinch/snapshot/internal/emitter.h"
#include "cinch/snapshot/internal/phases.h"

namespace cinch::snapshot::internal {
namespace {
using trace::Action;

class ChromeFile {
 public:
  explicit ChromeFile(AtomicFile& file) : file_(file) {
    file_.write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
  }
  void finish() { file_.write("\n]}\n"); }

  void name_process(int process, std::string_view name) {
    add(R"({"ph": "M", "name": "process_name", "pid": )" + std::to_string(process) + R"(, "args": {"name": )" +
        json_text(name) + "}}");
  }
  void slice(int process, bool start, std::string_view name, std::int64_t time_us) {
    add(std::string(R"({"ph": ")") + (start ? "B" : "E") + R"(", "name": )" + json_text(name) + at(process, time_us) +
        "}");
  }
  void instant(int process, std::string_view name, std::int64_t time_us, Bytes asked) {
    add(R"({"ph": "i", "s": "p", "name": )" + json_text(name) + at(process, time_us) + R"(, "args": {"bytes": )" +
        std::to_string(asked.count()) + "}}");
  }
  /// `counts` is what stands between the braces.
  void counter(int process, std::int64_t time_us, const std::string& counts) {
    add(R"({"ph": "C", "name": "bytes")" + at(process, time_us) + R"(, "args": {)" + counts + "}}");
  }

 private:
  static std::string at(int process, std::int64_t time_us) {
    return R"(, "pid": )" + std::to_string(process) + R"(, "tid": 0, "ts": )" + std::to_string(time_us);
  }
  void add(const std::string& event) {
    file_.write(first_ ? "\n" : ",\n");
    first_ = false;
    file_.write(event);
  }

  AtomicFile& file_;
  bool first_ = true;
};

/// One device's events as counters.
class Counters final : public trace::Sink {
 public:
  Counters(ChromeFile& out, int process, bool has_segments)
      : out_(out), process_(process), has_segments_(has_segments) {}

  void on_event(const trace::Event& event) override {
    const std::int64_t time_us = event.time_ns >= 0 ? event.time_ns / 1000 : position_;
    if (!event.before) ++position_;
    if (event.action == Action::kOom) return out_.instant(process_, "out of memory", time_us, event.bytes);
    const Bytes live = meter_.live(), reserved = meter_.reserved();
    meter_.on_event(event);
    if (event.before || (meter_.live() == live && meter_.reserved() == reserved)) return;
    std::string counts = R"("requested": )" + std::to_string(meter_.live().count());
    if (has_segments_) counts += R"(, "reserved": )" + std::to_string(meter_.reserved().count());
    out_.counter(process_, time_us, counts);
  }

 private:
  ChromeFile& out_;
  int process_;
  bool has_segments_;
  std::int64_t position_ = 0;
  trace::PeakMeter meter_;
};
}  // namespace

void write_chrome(const Snapshot& snapshot, AtomicFile& file) {
  ChromeFile out(file);
  const std::int64_t origin = snapshot.origin_us().value_or(0);
  for (const Device& device : snapshot.devices()) {
    out.name_process(device.index, "cuda:" + std::to_string(device.index));
    Counters counters(out, device.index, true);
    snapshot.play(device, counters);
  }
  for (const Annotation& annotation : snapshot.annotations()) {
    out.slice(annotation.device, annotation.start, annotation.name, annotation.time_us - origin);
  }
  out.finish();
}

void write_chrome(const trace::Trace& trace, AtomicFile& file) {
  ChromeFile out(file);
  out.name_process(0, trace.header().device_name);
  for (const PhaseRun& run : phases_of(trace)) {
    out.slice(0, true, run.name, run.begin_us);
    out.slice(0, false, run.name, run.end_us);
  }
  Counters counters(out, 0, false);
  for (const trace::Event& event : trace.events()) counters.on_event(event);
  out.finish();
}
}  // namespace cinch::snapshot::internal
