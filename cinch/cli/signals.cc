#include "cinch/cli/signals.h"

#include <semaphore.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <utility>

namespace cinch::cli {
namespace {

// A handler may do next to nothing: it raises a semaphore, on which a thread waits.
sem_t arrived;
struct sigaction before_int, before_term;

extern "C" void raise_semaphore(int /*signal*/) {
  const int error = errno;
  sem_post(&arrived);
  errno = error;
}

void wait_for_semaphore() {
  while (sem_wait(&arrived) != 0 && errno == EINTR) {
  }
}
}  // namespace

StopOnSignal::StopOnSignal(std::function<void()> on_stop) {
  sem_init(&arrived, 0, 0);
  watcher_ = std::jthread([source = source_, on_stop = std::move(on_stop)](std::stop_token leaving) mutable {
    wait_for_semaphore();
    if (leaving.stop_requested()) return;
    source.request_stop();
    on_stop();
  });
  struct sigaction action {};
  action.sa_handler = raise_semaphore;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);  // The second one finds the default: it kills.
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_int);
  sigaction(SIGTERM, &action, &before_term);
}

StopOnSignal::~StopOnSignal() {
  sigaction(SIGINT, &before_int, nullptr);
  sigaction(SIGTERM, &before_term, nullptr);
  watcher_.request_stop();
  sem_post(&arrived);
  watcher_.join();
  sem_destroy(&arrived);
}
}  // namespace cinch::cli
