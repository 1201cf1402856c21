// How fast the allocator's model replays a recording, under the recording's own settings and others. An event is what
// the snapshot calls one: alloc, free_requested and free_completed each count.
//
// Run: replay [SNAPSHOT] [SECONDS]     without one, the recorded step of tests/data; benchmarks/make_snapshot.py makes
// larger ones. Each row is played for SECONDS (default 2), from opened snapshots: what play() costs alone stands first.

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "cinch/allocator/replay.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/sink.h"

namespace {

using namespace cinch;
using allocator::Machine;
using allocator::Settings;

/// Processor time: other programs lengthen it less than the wall clock's.
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Median seconds of one run.
double seconds_of(const std::function<void()>& run, double budget) {
  std::vector<double> samples;
  for (double spent = 0; spent < budget || samples.size() < 3;) {
    const double begin = now();
    run();
    samples.push_back(now() - begin);
    spent += samples.back();
  }
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

void row(const std::string& name, double seconds, std::size_t events) {
  std::printf("%-62s %10.1f ms %8.1f million events/s %6.1f ns an event\n", name.c_str(), seconds * 1e3,
              static_cast<double>(events) / seconds * 1e-6, seconds / static_cast<double>(events) * 1e9);
  std::fflush(stdout);
}

void replay(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Settings& settings) {
  const auto addresses = make_addresses(allocator::AddressOrder::kDriver);
  allocator::Replay replay({.settings = settings}, *addresses);
  snapshot.play(device, replay);
  if (replay.events() != device.events) std::printf("  stopped early\n");
}
}  // namespace

int main(int argc, char** argv) {
  const std::string file =
      argc > 1 ? argv[1] : CINCH_SOURCE_DIR "/tests/data/snapshots/gpt2.7b-b4-s128-fp32-step.pickle.zst";
  const double budget = argc > 2 ? std::atof(argv[2]) : 2;
  const snapshot::Snapshot snapshot = snapshot::Snapshot::open(file);
  const snapshot::Device& device = snapshot.devices().front();
  double load = 0;
  ::getloadavg(&load, 1);
  std::printf("replay: %s, %zu events, processor time, load before %.2f\n", file.c_str(), device.events, load);
  row("play alone",
      seconds_of(
          [&] {
            trace::PeakMeter meter;
            snapshot.play(device, meter);
          },
          budget),
      device.events);
  row("verify", seconds_of([&] { static_cast<void>(allocator::verify(snapshot, device)); }, budget), device.events);
  for (const char* conf : {"", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:8"}) {
    const Settings settings = Settings::parse(conf);
    row(*conf == '\0' ? "defaults" : conf, seconds_of([&] { replay(snapshot, device, settings); }, budget),
        device.events);
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::printf("resident at most %.1f MiB\n", static_cast<double>(usage.ru_maxrss) / 1024);
}
