// train::calibrate: how fast this machine is at the ops that a training step consists of.
//
// Each op is timed for real, and dry-run for what a trace says of it: so sizes are those that the cost model will meet.
// Results go into an arena, as those of training do: no pages are fresh.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cinch/core/cache_file.h"
#include "cinch/core/error.h"
#include "cinch/core/version.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/record/arena.h"
#include "cinch/train/internal/calibrated_ops.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
using internal::CalibratedPoint;
using internal::Work;
using plan::Calibration;

constexpr int kFormat = 1;  ///< Raised whenever the same machine would measure something else.

constexpr int kPasses = 3;          ///< At least, over all measurements: what disturbs one seldom disturbs the next.
constexpr double kSettled = 0.02;   ///< No further pass when the last one was faster in sum by less than this,
constexpr double kEnough = 6;       ///< or after so many seconds, on a machine that others keep busy.
constexpr int kAlike = 3;           ///< A measurement ends when so many were as fast as the fastest,
constexpr double kAsFast = 1.03;    ///< but for this,
constexpr double kLongest = 0.03;   ///< or after so many seconds.
constexpr double kShortest = 2e-5;  ///< What takes less is run several times in each, for the clock to be fine enough.

double read_clock(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}
double wall() { return read_clock(CLOCK_MONOTONIC); }
/// With one thread the processor's time: what others take of it does not count. Threads that wait for one another spin.
double now() { return at::get_num_threads() == 1 ? read_clock(CLOCK_PROCESS_CPUTIME_ID) : wall(); }

double seconds_of(const Work& work, int times) {
  const double begin = now();
  for (int i = 0; i < times; ++i) work();
  return (now() - begin) / times;
}

/// The least disturbed of several: other programs only ever make it slower, and not equally so at all sizes.
double fastest(const Work& work) {
  const double begin = wall();
  work();  // Warms up.
  const int times = std::clamp(static_cast<int>(kShortest / std::max(seconds_of(work, 1), 1e-9)), 1, 20);
  record::Arena arena;
  std::vector<double> all;
  double least = std::numeric_limits<double>::infinity();
  const auto is_alike = [&](double seconds) { return seconds <= least * kAsFast; };
  do {
    const record::Arena::Step step(arena);
    all.push_back(seconds_of(work, times));
    if (all.size() > 1) least = std::min(least, all.back());  // The first step is watched.
  } while (std::count_if(all.begin(), all.end(), is_alike) < kAlike && (all.size() < 2 || wall() - begin < kLongest));
  return least;
}

double sum(const std::vector<double>& numbers) { return std::accumulate(numbers.begin(), numbers.end(), 0.0); }

/// A point to be: what its works move or compute together, in how long.
struct Measurement {
  CalibratedPoint point;
  double flops = 0, bytes = 0;    ///< Of all works.
  std::vector<double> seconds{};  ///< Of each work, at best.
};

void measure(std::vector<Measurement>& all) {
  const double begin = wall();
  double total = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass == 0 || wall() - begin < kEnough; ++pass) {
    double now = 0;
    for (Measurement& m : all) {
      m.seconds.resize(m.point.works.size(), std::numeric_limits<double>::infinity());
      for (std::size_t i = 0; i < m.seconds.size(); ++i)
        m.seconds[i] = std::min(m.seconds[i], fastest(m.point.works[i]));
      now += sum(m.seconds);
    }
    if (pass + 1 >= kPasses && now > total * (1 - kSettled)) break;
    total = now;
  }
}

/// Puts the default generator back where it was.
class SameGenerator {
 public:
  SameGenerator() : generator_(at::detail::getDefaultCPUGenerator()), state_(generator_.get_state()) {}
  ~SameGenerator() { generator_.set_state(state_); }
  SameGenerator(const SameGenerator&) = delete;
  SameGenerator& operator=(const SameGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor state_;
};

/// What a trace says of `op` in `work`.
trace::OpCall dry_cost(const std::string& op, const Work& work) {
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, device::find("cpu", at::get_num_threads()));
    work();
  }
  for (const trace::OpCall& call : trace.ops())
    if (trace.name(call.name) == op) return call;
  throw std::logic_error("a calibration does not run " + op);
}

Measurement prepare(CalibratedPoint point) {
  Measurement m{.point = std::move(point)};
  m.bytes = m.point.bytes;
  for (const Work& work : m.point.works) {
    if (m.point.op.empty()) continue;
    work();  // What is made at the first call is made for real.
    const trace::OpCall cost = dry_cost(m.point.op, work);
    m.flops += cost.flops;
    m.bytes += static_cast<double>((cost.read + cost.written).count());
  }
  return m;
}

/// What an op of a training step costs beyond its arithmetic: dispatch, views, autograd's nodes. From a chain of small
/// ops of several kinds, forward and backward: nothing else is left there. Between two of them much memory is read, as
/// large ops do in a step: neither code nor data wait in the nearest cache.
plan::Seconds measure_launch(internal::Memory& memory) {
  constexpr int kLinks = 4, kTimes = 20;
  const at::AutoGradMode trains(true);
  const at::Tensor x = at::ones({4, 16}), weight = at::eye(16).set_requires_grad(true);
  const auto step = [&] {
    at::Tensor y = x;
    for (int i = 0; i < kLinks; ++i) {
      y = at::gelu(at::linear(at::layer_norm(y, {16}), weight)).view({4, 4, 4}).transpose(1, 2).softmax(-1);
      y = y.reshape({4, 16}).mul(0.5).add(x);
    }
    y.sum().backward();
    weight.mutable_grad().reset();
  };
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, device::find("cpu", at::get_num_threads()));
    step();
  }
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i) {
    memory.cold(1 << 20).sum();
    least = std::min(least, seconds_of(step, 1));
  }
  return plan::Seconds(least / static_cast<double>(std::max<std::size_t>(trace.ops().size(), 1)));
}

/// A file without a name. Throws IoError.
class UnnamedFile {
 public:
  explicit UnnamedFile(const std::filesystem::path& folder) : folder_(folder) {
    std::string name = (folder / ".cinch-rate-XXXXXX").string();
    descriptor_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor_ < 0) throw IoError(folder_, "make a file to measure the disk with in", errno);
    ::unlink(name.c_str());
  }
  ~UnnamedFile() { ::close(descriptor_); }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;
  void write(const std::vector<char>& bytes, std::size_t offset) const {
    if (::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(bytes.size()))
      throw IoError(folder_, "measure the disk by writing to", errno);
  }
  void read(std::vector<char>& bytes, std::size_t offset) const {
    if (::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset)) !=
        static_cast<ssize_t>(bytes.size()))
      throw IoError(folder_, "measure the disk by reading from", errno);
  }

 private:
  std::filesystem::path folder_;
  int descriptor_ = -1;
};

/// As a plan's state on disk moves: through the system's cache of files, pieces of a parameter's size.
double measure_disk(const std::filesystem::path& folder) {
  constexpr std::size_t kPiece = 1 << 20, kBytes = 32 << 20;
  const UnnamedFile file(folder);
  std::vector<char> piece(kPiece, 1);
  double least = std::numeric_limits<double>::infinity();
  for (int pass = 0; pass <= kPasses; ++pass) {
    const double begin = wall();
    for (std::size_t at = 0; at < kBytes; at += kPiece) file.write(piece, at);
    for (std::size_t at = 0; at < kBytes; at += kPiece) file.read(piece, at);
    if (pass > 0) least = std::min(least, wall() - begin);  // Blocks are there from the second pass on.
  }
  return 2 * kBytes / least;
}

/// What took longer than a larger one was disturbed each time: it takes no longer than that.
void faster_when_smaller(std::vector<Calibration::Point>& curve) {
  for (std::size_t i = curve.size(); i-- > 1;) {
    const double longest = curve[i].size / curve[i].per_second;
    curve[i - 1].per_second = std::max(curve[i - 1].per_second, curve[i - 1].size / longest);
  }
}

Calibration measure_ops() {
  const SameGenerator same;
  const at::NoGradGuard no_grad;
  Calibration calibration;
  { const record::Arena installs; }  // `memory` counts as live then: an arena may take 5 % more than is.
  internal::Memory memory;
  std::vector<Measurement> all;
  for (CalibratedPoint& point : internal::calibrated_points(memory)) all.push_back(prepare(std::move(point)));
  measure(all);
  const auto curve_for = [&](const std::string& name) -> auto& {
    if (name == "matrix") return calibration.matrix;
    return name == "elementwise" ? calibration.elementwise : calibration.ops[name];
  };
  for (const Measurement& m : all) {
    if (m.point.curve.ends_with(plan::kBytesBeside)) continue;
    const double amount = m.flops > 0 ? m.flops : m.bytes;
    curve_for(m.point.curve).push_back({amount / static_cast<double>(m.seconds.size()), amount / sum(m.seconds)});
  }
  for (auto& [name, curve] : calibration.ops) faster_when_smaller(curve);
  faster_when_smaller(calibration.matrix);
  faster_when_smaller(calibration.elementwise);
  for (const Measurement& m : all) {  // What is left when the flops have taken their time.
    if (!m.point.curve.ends_with(plan::kBytesBeside)) continue;
    const auto rest = sum(m.seconds) - m.flops / plan::rate_at(calibration.ops.at(m.point.op), m.flops);
    if (rest > 0.1 * sum(m.seconds)) calibration.ops[m.point.curve].push_back({m.bytes, m.bytes / rest});
  }
  calibration.launch = measure_launch(memory);
  return calibration;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();)
    if (line.starts_with("model name")) return line;
  return {};
}

/// Whether other programs left the processor alone for the last minute.
bool machine_is_quiet() {
  double load = 0;
  return ::getloadavg(&load, 1) != 1 || load <= 0.5 * at::get_num_threads();
}

std::optional<CacheFile> cache() {
  const auto folder = cache_folder();
  if (!folder) return std::nullopt;
  return CacheFile(*folder, "calibration",
                   "calibration " + std::to_string(kFormat) + " of cinch " + kVersion + '\n' + processor() + '\n' +
                       libtorch_version() + ' ' + at::get_cpu_capability());
}
}  // namespace

plan::Calibration calibrate(const CalibrateOptions& options) {
  auto kept = cache();
  const bool quiet = machine_is_quiet();  // Before its own measurements make it busy.
  const std::string key = std::to_string(at::get_num_threads()) + " threads";
  std::optional<Calibration> known;
  if (kept && !options.afresh) {
    const std::string* text = kept->find(key);
    if (text != nullptr) known = plan::from_json(*text);
  }
  if (known && (options.disk.empty() || known->disk_bytes_per_second > 0)) return *known;
  Calibration calibration = known ? *std::move(known) : measure_ops();
  if (!options.disk.empty()) calibration.disk_bytes_per_second = measure_disk(options.disk);
  if (kept && (quiet || options.afresh)) {  // What others slowed down serves once, unless it was asked for.
    kept->add(key, plan::to_json(calibration));
    kept->save();
  }
  return calibration;
}
}  // namespace cinch::train
