// How fast is a large snapshot opened and summarized, beside Python's pickle.load alone?
// Usage: snapshot_open FILE.pickle [ROUNDS]
//
// make_snapshot.py makes such files. Each side is a process of its own, so that its peak memory is its own; they take
// turns.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cinch/core/text.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/sink.h"

namespace {
double now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void summarize(const char* file) {
  const double begin = now();
  const auto snapshot = cinch::snapshot::Snapshot::open(file);
  const double opened = now();
  for (const auto& device : snapshot.devices()) {
    cinch::trace::PeakMeter meter;
    snapshot.play(device, meter);
    const auto digits = [](cinch::Bytes bytes) { return cinch::with_thousands(bytes.count()); };
    std::printf("  %s events; peak requested %s B, peak reserved %s B; live at the end %s B\n",
                cinch::with_thousands(static_cast<std::int64_t>(device.events)).c_str(), digits(meter.peak()).c_str(),
                digits(meter.peak_reserved()).c_str(), digits(meter.live()).c_str());
  }
  std::printf("  opened in %.2f s, played in %.2f s\n", opened - begin, now() - opened);
}

// Both sides find the file in the page cache.
void read_once(const char* file) {
  std::ifstream in(file, std::ios::binary);
  std::vector<char> part(1u << 20);
  while (in.read(part.data(), static_cast<std::streamsize>(part.size()))) {
  }
}

struct Run {
  double seconds = 0;
  double processor = 0;  ///< User and system time: a busy machine changes it less.
  double peak_mib = 0;
};

// A process that does one thing, from its start to its end.
template <class Work>
Run measured(const Work& work) {
  std::fflush(stdout);
  const double begin = now();
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("cannot fork");
  if (child == 0) {
    work();
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  rusage usage{};
  if (::wait4(child, &status, 0, &usage) != child || status != 0) throw std::runtime_error("a side failed");
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return {now() - begin, seconds(usage.ru_utime) + seconds(usage.ru_stime),
          static_cast<double>(usage.ru_maxrss) / 1024};
}

void print(const char* side, const Run& run) {
  std::printf("  %-28s %7.2f s, of the processor %6.2f s, peak %6.0f MiB\n", side, run.seconds, run.processor,
              run.peak_mib);
}
}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::fprintf(stderr, "usage: snapshot_open FILE.pickle [ROUNDS]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  double load = 0;
  if (::getloadavg(&load, 1) != 1) load = -1;
  const auto size = std::filesystem::file_size(argv[1]);
  std::printf("%s: %.0f MB, load before %.2f\n", argv[1], static_cast<double>(size) / 1e6, load);
  read_once(argv[1]);
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    const Run ours = measured([&] { summarize(argv[1]); });
    print("cinch, open and summarize:", ours);
    const Run python = measured([&] {
      ::execlp("python3", "python3", "-c", "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))", argv[1],
               nullptr);
      ::_exit(127);
    });
    print("python3, pickle.load alone:", python);
    ratios.push_back(python.seconds / ours.seconds);
    std::printf("  ratio %.1f; of processor time %.1f\n", ratios.back(), python.processor / ours.processor);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("median ratio %.1f: %s (at least 10)\n", ratios[ratios.size() / 2],
              ratios[ratios.size() / 2] >= 10 ? "held" : "MISSED");
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
