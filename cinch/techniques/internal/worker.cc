#include "cinch/techniques/internal/worker.h"

#include <utility>

namespace cinch::techniques::internal {

Worker::Worker(std::function<void()> before_job) : before_job_(std::move(before_job)) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::future<void> Worker::run(std::function<void()> job) {
  std::packaged_task<void()> task([this, job = std::move(job)] {
    if (before_job_) before_job_();
    job();
  });
  auto result = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    jobs_.push_back(std::move(task));
  }
  wake_.notify_one();
  return result;
}

void Worker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace cinch::techniques::internal
