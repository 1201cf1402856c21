#pragma once
// Ctrl-C and SIGTERM as a stop_token.

#include <functional>
#include <stop_token>
#include <thread>

namespace cinch::cli {

/// While it lives, the first SIGINT and the first SIGTERM request a stop instead of ending the process; a second one of
/// the same kind ends it at once. One at a time.
class StopOnSignal {
 public:
  /// `on_stop` runs on a thread of its own, once, when the first signal comes.
  explicit StopOnSignal(std::function<void()> on_stop);
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  std::stop_token token() const { return source_.get_token(); }

 private:
  std::stop_source source_;
  std::jthread watcher_;
};
}  // namespace cinch::cli
