#pragma once
// The folder of a run: job.toml, plan.toml, checkpoints/, log.jsonl. One training at a time writes into it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "cinch/job/job.h"
#include "cinch/plan/plan.h"
#include "cinch/report/summaries.h"

namespace cinch::train {

/// A lock on a run's folder, held until destroyed, or until the process is no more.
class RunLock {
 public:
  /// Makes the folder if need be. Throws UsageError if a training is writing there, IoError.
  explicit RunLock(const std::filesystem::path& run_dir);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_;
};

/// One line a step, in JSON: {"step", "loss", "learning_rate", "seconds", "live_bytes", "peak_bytes", "evaluation"}. The
/// line of step 0 has an evaluation only; a step that was not evaluated has none.
struct LogLine {
  std::int64_t step = 0;
  double loss = 0, learning_rate = 0, seconds = 0;
  Bytes live{}, peak{};
  std::optional<double> evaluation{};
};

class RunLog {
 public:
  /// Opens `run_dir`/log.jsonl to append. Lines after `step` (-1: all), and whatever a killed process left half written,
  /// are cut off; what the others say is appended to `losses` and `evaluations`. Throws IoError.
  RunLog(const std::filesystem::path& run_dir, std::int64_t step, std::vector<report::FitSummary::StepLoss>& losses,
         std::vector<report::FitSummary::StepLoss>& evaluations);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  void append(const LogLine& line);
  /// What was appended is on the disk: before the checkpoint that relies on it.
  void sync();

 private:
  std::filesystem::path file_;
  int descriptor_;
};
}  // namespace cinch::train
