#include "cinch/cli/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <future>

namespace cinch::cli {
namespace {

TEST(StopOnSignal, TurnsTheFirstSignalIntoARequest) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::promise<void> told;
    StopOnSignal stop([&] { told.set_value(); });
    EXPECT_FALSE(stop.token().stop_requested());
    raise(signal);
    told.get_future().wait();
    EXPECT_TRUE(stop.token().stop_requested());
  }
}

TEST(StopOnSignal, LetsTheSecondOneKill) {
  EXPECT_EXIT(
      {
        StopOnSignal stop([] {});
        raise(SIGINT);
        raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(StopOnSignal, LeavesWhatWasThereBefore) {
  {
    StopOnSignal stop([] { FAIL(); });
  }
  EXPECT_EXIT(raise(SIGTERM), testing::KilledBySignal(SIGTERM), "");
}
}  // namespace
}  // namespace cinch::cli
