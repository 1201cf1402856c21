#pragma once
// The facade of all that stands on LibTorch, without a LibTorch header: what the command line calls.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "cinch/device/device_spec.h"
#include "cinch/job/job.h"
#include "cinch/plan/cost_model.h"
#include "cinch/plan/solver.h"
#include "cinch/report/summaries.h"
#include "cinch/report/verification.h"

namespace cinch::train {

/// "2.11.0". Throws UsageError when the LibTorch loaded is not the one compiled against.
std::string libtorch_version();
/// LibTorch's intra-op threads of the process; 0 leaves the default. Returns what is in force.
int set_threads(int threads);

struct Plain {
  plan::Problem problem;
  trace::Trace trace;
  std::vector<std::string> bounded, by_shape_alone;  ///< Ops whose memory is not exact: as DryRun's.
};
/// Plain training, dry: what a planner may change of it, and what it needs as it is. On a card the problem counts what
/// its allocator reserves and the context. Planners may use every technique that is not lossy, on the CPU none that
/// needs the host's memory, and what job.memory.allow names.
Plain plain_run(const job::Job& job, const device::DeviceSpec& device, Bytes budget);
/// Its problem alone.
plan::Problem make_problem(const job::Job& job, const device::DeviceSpec& device, Bytes budget);
/// The callback for plan::solve. Each call is a dry run of initialization, two steps, an evaluation and a save, if the job
/// evaluates and saves.
plan::Simulate simulator(const job::Job& job, const device::DeviceSpec& device);
/// The same in less time where a plan divides the batch: of many equal micro-batches one runs (Session::abridge). Same
/// peak and step time; what a search may use.
plan::Simulate abridged_simulator(const job::Job& job, const device::DeviceSpec& device);
struct CalibrateOptions {
  bool afresh = false;                ///< Also if there are figures of an earlier measurement.
  std::filesystem::path disk = {};    ///< A folder, where a plan would keep tensors: how fast its disk is, too.
};
/// What ops take on this machine, with this LibTorch and number of threads: of an earlier measurement that lies in the
/// cache folder (cinch/core/cache_file.h), else measured, in some seconds, and kept there if the machine was quiet. It
/// makes dry runs and an arena of its own, so never inside a Recorder, a DryRun or an Arena. Throws IoError of `disk`.
plan::Calibration calibrate(const CalibrateOptions& options = {});

struct Progress {
  std::int64_t step = 0, steps = 0;
  double loss = 0;
  std::optional<double> evaluation;      ///< Just measured.
  Bytes live, peak;
  double samples_per_second = 0, seconds_left = 0;
};
struct FitOptions {
  std::optional<Bytes> cap{};
  bool resume = false;                   ///< From the newest whole checkpoint of job.train.run_dir. UsageError if none.
  std::function<void(const Progress&)> on_progress{};  ///< Training thread; keep it short.
  std::function<void(const std::string&)> on_note{};   ///< A sentence worth reading: weights that begin at random.
  std::stop_token stop{};                ///< Saves after the running step, and leaves.
};
/// Whether fit() could begin in the job's run_dir, or go on there. Returns the steps done there. Throws UsageError: it
/// holds a training already, or none to resume; DataError for a checkpoint that is damaged.
std::int64_t check_run_dir(const job::Job& job, bool resume);

/// Trains, and sets what was predicted beside what was measured. Checkpoints are written to a temporary folder, synced,
/// renamed. To resume a training that has all its steps does nothing, and says so: FitSummary::already_done. Throws
/// OutOfMemoryError, DataError, IoError; Error naming the step for a loss that is not finite.
report::FitSummary fit(const job::Job& job, const plan::Plan& plan, const FitOptions& options = {});

struct VerifyOptions {
  std::int64_t steps = 5;
  std::function<void(const report::VerifyCheck&)> on_check{};  ///< As each is done; same thread.
};
/// Trains the job's first steps in several ways at once and compares. Of the plan's techniques the bitwise ones: weights
/// after each step; the reassociating ones: the gradient of one step, dropout off, within 1e-6 in norm (2e-2 under
/// autocast); the lossy ones: the loss, within what other seeds make of it. Also a training that is saved and resumed, and
/// a divided batch. Holds two models at a time; writes nothing but a temporary folder. Throws as fit() does.
std::vector<report::VerifyCheck> verify(const job::Job& job, const plan::Plan& plan, const VerifyOptions& options = {});
}  // namespace cinch::train
