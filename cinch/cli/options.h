#pragma once
// Flags that all verbs have, and what they come to.

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/device/device_spec.h"
#include "cinch/job/job.h"
#include "cinch/report/summaries.h"

namespace cinch::cli {

/// As typed.
struct Options {
  std::string job, device = "cpu", html;
  std::optional<std::string> budget;
  std::optional<std::int64_t> batch, context, threads;
  std::vector<std::string> set, allow;
  bool json = false, quiet = false;
};

/// Adds the job and the flags that every verb has.
void add_options(CLI::App& verb, Options& options);

/// As understood: everything is read and checked.
struct Request {
  std::string path;  ///< Of the job, as typed.
  job::Job job;      ///< With --set, --batch, --context, --threads in it.
  device::DeviceSpec device;
  std::optional<Bytes> budget;  ///< --budget, else the job's.
  report::Environment environment;
  std::vector<std::string> changes;  ///< Of the job, as --set has them, in the order in which they win.
  std::vector<std::string> allow;    ///< --allow: in job.memory.allow too.
  std::vector<std::string> repeat;   ///< Words the next command needs to mean the same job.

  /// The budget; without one the device's memory less 2 %. On a card it covers the context too.
  Bytes limit() const;
};

/// Also sets the process's threads. Throws UsageError, ConfigError, IoError.
Request read(const Options& options);

/// The same request for another job: with these changes ("train.batch_size=3") after its own. Throws ConfigError where
/// the job refuses them.
Request changed(const Request& request, const std::vector<std::string>& changes);

/// Throws UsageError for a card: training runs on the CPU in this version.
void require_cpu(const Request& request);

/// More than 0 bytes. Throws UsageError that names the flag.
Bytes parse_budget(const std::string& text);

/// Throws UsageError for what is no technique's key.
void check_allowed(const std::vector<std::string>& techniques);
}  // namespace cinch::cli
