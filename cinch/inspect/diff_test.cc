#include "cinch/inspect/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "cinch/trace/builder.h"

namespace cinch::inspect {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::SizeIs;
using trace::Category;
using trace::Phase;

Holdings of_snapshot(const std::string& name) {
  return holdings(snapshot::Snapshot::open(std::string(CINCH_SOURCE_DIR) + "/tests/data/snapshots/" + name));
}

Bytes sum(const std::vector<Change>& rows) {
  Bytes total;
  for (const Change& row : rows) total += row.grown();
  return total;
}

void expect_rows_sum_up(const Moment& moment) {
  for (const auto* rows : {&moment.categories, &moment.modules, &moment.paths}) {
    EXPECT_EQ(sum(*rows), moment.grown());
    for (std::size_t i = 1; i < rows->size(); ++i) EXPECT_GE((*rows)[i - 1].grown(), (*rows)[i].grown());
    for (const Change& row : *rows) EXPECT_NE(row.before, row.after) << row.name;
  }
}

trace::Trace step(Bytes hidden, bool extra) {
  trace::TraceBuilder builder;
  builder.phase(Phase::kInit, 0).module("layers.0");
  builder.label(builder.alloc(Bytes(1000)), Category::kParameter, "layers.0.weight");
  builder.phase(Phase::kForward, 1).module("layers.0").op("aten::addmm");
  const auto activation = builder.alloc(hidden);
  if (extra) {
    builder.module("head").op("aten::clone");
    builder.alloc(Bytes(30));
  }
  builder.phase(Phase::kBackward, 1).free(activation);
  trace::Trace trace = builder.build();
  classify(trace);
  return trace;
}

TEST(Diff, OfEqualRecordingsIsEmpty) {
  const Holdings same = holdings(step(Bytes(100), false));
  const Diff diff = compare(same, same);
  for (const Moment* moment : {&diff.peak, &diff.end}) {
    EXPECT_EQ(moment->grown(), Bytes(0));
    EXPECT_THAT(moment->categories, IsEmpty());
    EXPECT_THAT(moment->modules, IsEmpty());
    EXPECT_THAT(moment->paths, IsEmpty());
  }
  EXPECT_EQ(diff.peak.before.bytes, Bytes(1100));
  EXPECT_EQ(diff.end.before.bytes, Bytes(1000));
}

TEST(Diff, NamesWhatGrewAtThePeakAndAtTheEnd) {
  const Diff diff = compare(holdings(step(Bytes(100), false)), holdings(step(Bytes(250), true)));
  EXPECT_EQ(diff.peak.before.bytes, Bytes(1100));
  EXPECT_EQ(diff.peak.after.bytes, Bytes(1280));
  EXPECT_EQ(diff.end.grown(), Bytes(30));
  expect_rows_sum_up(diff.peak);
  expect_rows_sum_up(diff.end);
  ASSERT_THAT(diff.peak.modules, SizeIs(2));
  EXPECT_EQ(diff.peak.modules[0].name, "layers.0");
  EXPECT_EQ(diff.peak.modules[0].grown(), Bytes(150));
  EXPECT_EQ(diff.peak.modules[1].name, "head");
  EXPECT_EQ(diff.peak.modules[1].after.allocations, 1u);
  EXPECT_EQ(diff.peak.paths[0].name, "layers.0 aten::addmm");
  ASSERT_THAT(diff.end.paths, SizeIs(1));
  EXPECT_EQ(diff.end.paths[0].name, "head aten::clone");
}

TEST(Diff, WhatShrankComesLast) {
  const Diff diff = compare(holdings(step(Bytes(250), false)), holdings(step(Bytes(100), true)));
  EXPECT_EQ(diff.peak.grown(), Bytes(-120));
  EXPECT_EQ(diff.peak.modules.front().name, "head");
  EXPECT_EQ(diff.peak.modules.back().grown(), Bytes(-150));
  expect_rows_sum_up(diff.peak);
}

TEST(Diff, EqualTotalsOfOtherTensorsAreRows) {
  trace::TraceBuilder left, right;
  left.phase(Phase::kForward, 1).module("a").alloc(Bytes(64));
  right.phase(Phase::kForward, 1).module("b").alloc(Bytes(32));
  right.alloc(Bytes(32));
  const Diff diff = compare(holdings(left.build()), holdings(right.build()));
  EXPECT_EQ(diff.peak.grown(), Bytes(0));
  EXPECT_THAT(diff.peak.modules, SizeIs(2));
  ASSERT_THAT(diff.peak.categories, SizeIs(1));  // As many bytes of the same kind, in more tensors.
  EXPECT_EQ(diff.peak.categories[0].after.allocations, 2u);
}

TEST(Diff, OfEmptyTracesIsEmpty) {
  const Diff diff = compare(holdings(trace::Trace()), holdings(step(Bytes(100), false)));
  EXPECT_EQ(diff.peak.before.bytes, Bytes(0));
  EXPECT_EQ(diff.peak.grown(), Bytes(1100));
}

TEST(Diff, OfRecordedRunsHasThePublishedPeaks) {
  const Diff diff = compare(of_snapshot("gpt2.7b-b4-s128-fp32-forward.pickle.zst"),
                            of_snapshot("gpt2.7b-b4-s128-fp32-step.pickle.zst"));
  EXPECT_EQ(diff.peak.before.bytes, Bytes(19'352'504'320));
  EXPECT_EQ(diff.peak.after.bytes, Bytes(54'802'667'524));
  expect_rows_sum_up(diff.peak);
  expect_rows_sum_up(diff.end);
  EXPECT_EQ(diff.peak.categories[0].name, "optimizer state");
  // Two fp32 numbers for each of 3,406,809,600 parameters, in two tensors for each of 291.
  EXPECT_EQ(diff.peak.categories[0].grown(), Bytes(std::int64_t{3'406'809'600} * 2 * 4));
  EXPECT_EQ(diff.peak.categories[0].after.allocations, 582u);
  EXPECT_EQ(diff.peak.modules[0].name, "user/optimizer.py step");
}

TEST(Diff, AutocastTradesActivationsForWeightCopies) {
  const Diff diff = compare(of_snapshot("gpt2.7b-b4-s128-fp32-forward.pickle.zst"),
                            of_snapshot("gpt2.7b-b4-s128-bf16-autocast-forward.pickle.zst"));
  ASSERT_FALSE(diff.peak.categories.empty());
  EXPECT_EQ(diff.peak.categories.front().name, "autocast weight copies");
  EXPECT_EQ(diff.peak.categories.front().before.bytes, Bytes(0));
  EXPECT_EQ(diff.peak.categories.back().name, "activations");
  EXPECT_LT(diff.peak.categories.back().grown(), Bytes(0));
  expect_rows_sum_up(diff.peak);
}

TEST(Diff, LineNumbersDoNotMatter) {
  const Holdings held = of_snapshot("leak_list.json.gz");
  for (const auto& [path, share] : held.end.paths) EXPECT_EQ(path.find(".py:"), std::string::npos) << path;
  EXPECT_THAT(held.end.modules, Contains(testing::Key("user/metrics.py append")));
}

TEST(Diff, ALeakIsWhatGrewAtTheEnd) {
  const Diff diff = compare(of_snapshot("leak_none.json.gz"), of_snapshot("leak_list.json.gz"));
  EXPECT_EQ(diff.end.grown(), Bytes(12 * 40 << 10));
  EXPECT_EQ(diff.end.modules[0].name, "user/metrics.py append");
  EXPECT_EQ(diff.end.modules[0].after.allocations, 12u);
}
}  // namespace
}  // namespace cinch::inspect
