#pragma once
// What the program's exit code says.

#include <exception>

namespace cinch::cli {

enum ExitCode : int {
  kDone = 0,
  kFailed = 1,      ///< Or stopped by a signal before the work was done, what was done being saved.
  kBadInput = 2,    ///< Usage or input.
  kDoesNotFit = 3,  ///< The budget.
};

/// How far a verb has come: it tells an unreadable input from a result that cannot be written.
enum class Stage { kReading, kWorking };

/// | error                                         | code |
/// |-----------------------------------------------|------|
/// | UsageError, ConfigError, DataError            | 2    |
/// | OverflowError: sizes past 64 bits             | 2    |
/// | IoError: disk full, read-only or broken       | 1    |
/// | other IoError while reading the input         | 2    |
/// | other IoError while working                   | 1    |
/// | UnsupportedError, OutOfMemoryError, all else  | 1    |
ExitCode exit_code(const std::exception& error, Stage stage);
}  // namespace cinch::cli
