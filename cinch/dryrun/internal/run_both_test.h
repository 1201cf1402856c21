#pragma once
// For tests: the same program, dry and real.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/dryrun/dry_run.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/trace.h"

namespace cinch::dryrun::internal {

struct Runs {
  trace::Trace predicted, recorded;
  std::vector<std::string> bounded;
};

template <class Program>
Runs run_both(const Program& program) {
  Runs runs;
  {
    const DryRun dry(runs.predicted, device::find("cpu"));
    program();
    runs.bounded = dry.bounded();
  }
  {
    const record::Recorder recorder(runs.recorded);
    program();
  }
  return runs;
}

inline void expect_same(const Runs& runs) {
  const auto fault = trace::compare_phase_ends(runs.predicted, runs.recorded);
  EXPECT_EQ(fault.value_or("none"), "none");
  const auto predicted = trace::Timeline(runs.predicted).peak().bytes;
  EXPECT_EQ(predicted, trace::Timeline(runs.recorded).peak().bytes);
  EXPECT_GT(predicted, Bytes());
  if (::testing::Test::HasFailure())
    if (const auto first = trace::first_divergence(runs.predicted, runs.recorded)) ADD_FAILURE() << first->sentence;
}

template <class Program>
void expect_same_memory(const Program& program) {
  const auto runs = run_both(program);
  expect_same(runs);
  EXPECT_THAT(runs.bounded, ::testing::IsEmpty());
}
}  // namespace cinch::dryrun::internal
