#pragma once
// A thread for copies, beside the one that computes.

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

namespace cinch::techniques::internal {

/// Runs jobs in order on a thread of its own, which the first job starts. A destroyed Worker ends what it was given.
class Worker {
 public:
  /// `before_job` runs before each job, on its thread.
  explicit Worker(std::function<void()> before_job);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// The result holds what `job` threw.
  std::future<void> run(std::function<void()> job);

 private:
  void work();

  const std::function<void()> before_job_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::packaged_task<void()>> jobs_;
  bool ends_ = false;
  std::thread thread_;
};
}  // namespace cinch::techniques::internal
