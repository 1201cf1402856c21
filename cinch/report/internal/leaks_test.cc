#include "cinch/report/internal/leaks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cinch::report::internal {
namespace {

using inspect::Leak;
using inspect::Leaks;
using inspect::PeriodSource;
using testing::HasSubstr;

Leak kept(const std::string& path, std::int64_t bytes) {
  Leak leak;
  leak.path = path;
  leak.bytes_per_step = Bytes(bytes);
  leak.allocations_per_step = 1;
  leak.held = Bytes(10 * bytes);
  leak.periods = 10;
  return leak;
}

Leaks two() {
  Leaks leaks;
  leaks.source = PeriodSource::kOptimizer;
  leaks.periods = 12;
  leaks.found = {kept("clone, hooks.py:7 keep", 1 << 20), kept("cat, cache.py:9 grow", 256 << 10)};
  leaks.found[1].kind = Leak::Kind::kGrowing;
  leaks.bytes_per_step = Bytes((1 << 20) + (256 << 10));
  leaks.capacity = Bytes(std::int64_t{24} << 30);
  leaks.steps_until_full = 1234;
  return leaks;
}

TEST(LeaksReport, SaysHowMuchAndWhenTheCardIsFull) {
  EXPECT_EQ(leaks_sentence(two()),
            "LEAK: 1.2 MiB more with every step, from 2 call paths (12 steps). 24 GiB is full 1,234 steps later.");
  Leaks leaks = two();
  leaks.steps_until_full = 0;
  EXPECT_THAT(leaks_sentence(leaks), HasSubstr("It is already past 24 GiB."));
}

TEST(LeaksReport, SaysThatNothingLeaksAndOverWhat) {
  Leaks leaks;
  EXPECT_THAT(leaks_sentence(leaks), HasSubstr("no three steps"));
  leaks.source = PeriodSource::kPattern;
  leaks.periods = 40;
  EXPECT_EQ(leaks_text(leaks), "No leak: over 40 periods, by what comes back regularly nothing is kept for good.\n");
}

TEST(LeaksReport, ListsCallPathsAndCutsTheList) {
  const std::string all = leaks_text(two());
  EXPECT_THAT(all, HasSubstr("     1,048,576           1        10 MiB  clone, hooks.py:7 keep\n"));
  EXPECT_THAT(all, HasSubstr("       262,144      larger       2.5 MiB  cat, cache.py:9 grow\n"));
  EXPECT_THAT(leaks_text(two(), 1), HasSubstr("       262,144                            1 more\n"));
}

TEST(LeaksReport, KnowsAKeptGraph) {
  Leaks leaks = two();
  EXPECT_THAT(leaks_text(leaks), testing::Not(HasSubstr("loss.item()")));
  leaks.graph_kept = true;
  EXPECT_THAT(leaks_text(leaks), HasSubstr("loss.item()"));
}

TEST(LeaksReport, JsonHasBytesAsNumbers) {
  const auto array = leaks_array(two());
  ASSERT_EQ(array.size(), 2u);
  EXPECT_EQ(array[0]["bytes_per_step"], 1 << 20);
  EXPECT_EQ(array[1]["kind"], "growing");
  EXPECT_EQ(leaks_summary(two())["steps_until_full"], 1234);
  EXPECT_EQ(leaks_summary(two())["period_source"], "optimizer");
}
}  // namespace
}  // namespace cinch::report::internal
