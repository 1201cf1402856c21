#include "cinch/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "cinch/core/error.h"

namespace cinch::train {
namespace {
namespace fs = std::filesystem;
using Losses = std::vector<report::FitSummary::StepLoss>;

int open_or_throw(const fs::path& file, int flags) {
  const int descriptor = ::open(file.c_str(), flags | O_CLOEXEC, 0644);
  if (descriptor < 0) throw IoError(file, "open", errno);
  return descriptor;
}

int lock_or_throw(const fs::path& run_dir) {
  std::error_code error;
  fs::create_directories(run_dir, error);
  if (error) throw IoError(run_dir, "create", error.value());
  const int descriptor = open_or_throw(run_dir / "lock", O_RDWR | O_CREAT);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int reason = errno;
  ::close(descriptor);
  if (reason != EWOULDBLOCK) throw IoError(run_dir / "lock", "lock", reason);
  throw UsageError("another training is writing into " + run_dir.string(),
                   "Wait for it, or give this one a folder of its own: --set train.run_dir=DIR.");
}

/// Takes over one line; false for one that ends the usable part of the log.
bool take_line(const std::string& text, std::int64_t last_step, Losses& losses, Losses& evaluations) {
  const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return false;
  const auto step = line["step"].get<std::int64_t>();
  if (step > last_step) return false;
  if (line.contains("loss") && line["loss"].is_number()) losses.push_back({step, line["loss"].get<double>()});
  if (line.contains("evaluation") && line["evaluation"].is_number()) {
    evaluations.push_back({step, line["evaluation"].get<double>()});
  }
  return true;
}
}  // namespace

RunLock::RunLock(const fs::path& run_dir) : descriptor_(lock_or_throw(run_dir)) {}
RunLock::~RunLock() { ::close(descriptor_); }

RunLog::RunLog(const fs::path& run_dir, std::int64_t step, Losses& losses, Losses& evaluations)
    : file_(run_dir / "log.jsonl"), descriptor_(open_or_throw(file_, O_WRONLY | O_CREAT | O_APPEND)) {
  std::ifstream in(file_, std::ios::binary);
  std::int64_t kept = 0;
  // getline() meets the end of the file only in a line without '\n': one that was not finished.
  for (std::string text; std::getline(in, text) && !in.eof(); kept += static_cast<std::int64_t>(text.size()) + 1) {
    if (!take_line(text, step, losses, evaluations)) break;
  }
  if (::ftruncate(descriptor_, kept) == 0) return;
  const int reason = errno;
  ::close(descriptor_);
  throw IoError(file_, "cut", reason);
}

RunLog::~RunLog() { ::close(descriptor_); }

void RunLog::append(const LogLine& line) {
  nlohmann::ordered_json document{{"step", line.step}};
  if (line.step > 0) {
    document["loss"] = line.loss;
    document["learning_rate"] = line.learning_rate;
    document["seconds"] = line.seconds;
    document["live_bytes"] = line.live.count();
    document["peak_bytes"] = line.peak.count();
  }
  if (line.evaluation) document["evaluation"] = *line.evaluation;
  std::string text = document.dump() + "\n";
  for (std::string_view left = text; !left.empty();) {
    const ::ssize_t written = ::write(descriptor_, left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw IoError(file_, "write", errno);
    left.remove_prefix(static_cast<std::size_t>(written));
  }
}

void RunLog::sync() {
  if (::fsync(descriptor_) < 0) throw IoError(file_, "sync", errno);
}
}  // namespace cinch::train
