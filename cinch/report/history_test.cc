#include "cinch/report/history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/report/internal/history_data.h"
#include "cinch/trace/builder.h"

namespace cinch::report {
namespace {

using namespace cinch::literals;
using trace::Category;
using trace::Phase;

/// A parameter, and steps that each make, free and make again.
trace::Trace training(std::uint32_t steps, Bytes size = Bytes(4096)) {
  trace::TraceBuilder builder;
  builder.phase(Phase::kInit, 0);
  builder.label(builder.alloc(1_KiB), Category::kParameter, "weight");
  for (std::uint32_t step = 1; step <= steps; ++step) {
    builder.phase(Phase::kForward, step).module("layers.0").op("aten::addmm");
    const auto kept = builder.alloc(size);
    builder.phase(Phase::kBackward, step).module("layers.0").op("aten::mm");
    builder.free(builder.alloc(2_KiB)).free(kept);
  }
  trace::Trace trace = builder.build();
  trace::classify(trace);
  return trace;
}

trace::CategoryBytes live_after(const History& history, std::size_t event) {
  trace::CategoryBytes live = history.before;
  for (std::size_t i = 0; i <= event; ++i) {
    const History::Kind& kind = history.kinds[history.events[i]];
    live[kind.category] += kind.change;
  }
  return live;
}

TEST(History, HasWhatLivesAfterEveryEvent) {
  const trace::Trace trace = training(3);
  const History history = report::history(trace);
  const trace::Timeline timeline(trace);
  ASSERT_EQ(history.events.size(), trace.events().size());
  for (std::size_t i = 0; i < history.events.size(); ++i) {
    EXPECT_EQ(live_after(history, i), timeline.live_by_category(i)) << i;
    EXPECT_EQ(history.names[history.kinds[history.events[i]].module], trace.name(trace.events()[i].module));
    EXPECT_EQ(history.names[history.kinds[history.events[i]].op], trace.op_name(trace.events()[i].op));
  }
}

TEST(History, StepsThatAreAlikeShareTheirKinds) {
  const History few = history(training(2)), many = history(training(200));
  EXPECT_EQ(few.kinds, many.kinds);
  EXPECT_EQ(few.names, many.names);
  EXPECT_GT(many.events.size(), 50 * few.kinds.size());
}

TEST(History, RunsBeginWhereStepOrPhaseChange) {
  const trace::Trace trace = training(2);
  const History history = report::history(trace);
  ASSERT_EQ(history.runs.size(), 5u);  // Initialization, and twice forward and backward.
  for (std::size_t i = 0; i < history.runs.size(); ++i) {
    const std::size_t begin = history.runs[i].begin;
    EXPECT_EQ(history.runs[i], (History::Run{begin, trace.events()[begin].step, trace.events()[begin].phase}));
  }
}

TEST(History, ListsAllThatLivesAtThePeak) {
  const History history = report::history(training(2));
  ASSERT_EQ(history.tensors.size(), 3u);
  EXPECT_EQ(history.tensors[0].bytes, 4_KiB);
  EXPECT_EQ(history.tensors[2].name, "weight");
}

TEST(History, OfNothingIsEmpty) { EXPECT_TRUE(history(trace::Trace()).events.empty()); }

TEST(History, CompareByStepsAndPhasesAlone) {
  EXPECT_TRUE(internal::comparable(history(training(2)), history(training(2, 8_KiB))));
  EXPECT_FALSE(internal::comparable(history(training(2)), history(training(3))));
}

TEST(HistoryData, IsNothingButDigitsInTheHtml) {
  const std::string script = internal::history_script("x", history(training(9)));
  const std::string head = "<script type=\"application/octet-stream\" id=\"history-x\">", tail = "</script>";
  ASSERT_THAT(script, testing::AllOf(testing::StartsWith(head), testing::EndsWith(tail)));
  const std::string text = script.substr(head.size(), script.size() - head.size() - tail.size());
  EXPECT_EQ(text.size() % 4, 0u);
  EXPECT_EQ(text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="),
            std::string::npos);
}

TEST(HistoryData, HardlyGrowsWithStepsThatAreAlike) {
  const std::size_t few = internal::history_script("x", history(training(10))).size();
  EXPECT_LT(internal::history_script("x", history(training(10'000))).size(), few + 2000);
}
}  // namespace
}  // namespace cinch::report
