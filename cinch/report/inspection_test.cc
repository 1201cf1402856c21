#include "cinch/report/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cinch/report/internal/path_rows.h"

namespace cinch::report {
namespace {

using namespace cinch::literals;
using inspect::Kind;
using inspect::Live;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using trace::Category;

inspect::Fragmentation sample_waste() {
  inspect::Fragmentation parts;
  parts.requested = 600_MiB;
  parts.rounding = 508_B;
  parts.unsplittable = 3_MiB;
  parts.stranded = 17_MiB;
  parts.cached_segments = 40_MiB;
  parts.cached_segment_count = 2;
  parts.stranded_blocks = 3;
  parts.reserved = parts.requested + parts.wasted();
  parts.pinned = {{0x7f00, 20_MiB, 12_MiB, 12_MiB, {{0x7f00, 8_MiB, {}, "bmm, model.py:3 forward"}}, 1}};
  return parts;
}

Live sample_live() {
  Live live;
  live.event = 70;
  live.bytes = 600_MiB;
  live.tensors = 30;
  live.phase = trace::Phase::kBackward;
  live.step = 1;
  live.where = "BmmBackward0: bmm";
  live.categories[Category::kParameter] = 300_MiB;
  live.categories[Category::kActivation] = 250_MiB;
  live.categories[Category::kTemporary] = 50_MiB;
  live.kinds = {{Kind::kParameter, 300_MiB, 300_MiB, 10, 10, "(before the recording)"},
                {Kind::kActivation, 250_MiB, 0_B, 15, 0, ""},
                {Kind::kTemporary, 18_MiB, 0_B, 4, 0, ""},
                {Kind::kCublasWorkspace, 32_MiB, 0_B, 1, 0, ""}};
  live.paths = {{{"", {}}, Kind::kParameter, 300_MiB, 40_MiB, 10, true},
                {{"bmm", {"model.py:3 forward", "train.py:9 main"}}, Kind::kActivation, 250_MiB, 20_MiB, 15, false},
                {{"sum", {}}, Kind::kTemporary, 50_MiB, 32_MiB, 5, false}};
  return live;
}

Inspected sample() {
  Inspected result;
  result.environment.device = "cuda:0";
  inspect::Inspection& seen = result.inspection;
  seen.source = "oom.pickle";
  seen.events = 100;
  seen.optimizer = "AdamW";
  seen.optimizer_steps = 1;
  seen.peak = seen.end = sample_live();
  seen.has_segments = true;
  seen.at_peak = seen.at_end = sample_waste();
  seen.peak_reserved = seen.at_peak.reserved;
  seen.best_possible = 600_MiB;
  seen.curve = {{0, trace::Phase::kForward, 1, {}, 0_B}, {70, trace::Phase::kBackward, 1, seen.peak.categories, 0_B}};
  seen.findings = {{"The peak is high.", 600_MiB, "Make it lower."}};
  return result;
}

Inspected sample_oom() {
  Inspected result = sample();
  inspect::OutOfMemory oom;
  oom.capacity = 595_MiB;
  oom.event = 70;
  oom.asked = 20_MiB;
  oom.free = 15_MiB;
  oom.short_by = 5_MiB;
  oom.live = sample_live();
  oom.waste = sample_waste();
  oom.headline = "Would run out in backward, event 70 of 100, asking 20 MiB.";
  oom.verdict = "NO ALLOCATOR SETTING HELPS: tensors alone need 629,145,600 B, 5 MiB over 595 MiB.";
  oom.to_fit = "To fit 595 MiB: activation checkpointing.";
  oom.make_room = {{8_MiB, Kind::kActivation, "bmm, model.py:3 forward"}};
  result.inspection.oom = oom;
  result.inspection.findings.insert(result.inspection.findings.begin(),
                                    {oom.headline + " " + oom.verdict, 5_MiB, oom.to_fit});
  return result;
}

TEST(InspectionText, OfAnOutOfMemoryBeginsWithTheVerdict) {
  EXPECT_THAT(text(sample_oom()), StartsWith(R"(Would run out in backward, event 70 of 100, asking 20 MiB.
NO ALLOCATOR SETTING HELPS: tensors alone need 629,145,600 B, 5 MiB over 595 MiB.

Live at that moment                bytes    MiB   tensors
  parameters                 314,572,800  300.0        10  (before the recording)
  activations, temporary     281,018,368  268.0        19
  cuBLAS workspaces           33,554,432   32.0         1
  total                      629,145,600  600.0        30  the request included

One tensor less would have made room, 8 MiB in all:
       8 MiB  activations            bmm, model.py:3 forward

If it had continued
  peak 629,145,600 B (600 MiB), backward
  reserved at end 692,060,668 B =
    requested 629,145,600 + rounding 508 + unsplittable 3,145,728
    + stranded 17,825,792 + 2 whole cached segments 41,943,040
  The cached segments are no need: PyTorch returns them before it fails.
To fit 595 MiB: activation checkpointing.
595 MiB is what the allocator may reserve: a card has that beside its CUDA context and other programs.

* The peak is high.
    → Make it lower.
)"));
}

TEST(InspectionText, SaysWhatEachRemedyLeaves) {
  Inspected inspected = sample_oom();
  inspect::OutOfMemory& oom = *inspected.inspection.oom;
  oom.make_room.clear();
  oom.short_at_peak = 5_MiB;
  oom.remedies = {{"offloaded state", 597_MiB, false, false}, {"a smaller batch", 300_MiB, true, true}};
  EXPECT_THAT(text(inspected), HasSubstr(R"(To fit 595 MiB: activation checkpointing.
  Now short by 5 MiB at the peak.
  offloaded state leaves 597 MiB: 2 MiB over
  a smaller batch at best leaves 300 MiB: fits
)"));
  const json document = json::parse(report::json(inspected));
  EXPECT_EQ(document["oom"]["short_at_peak_bytes"], 5 << 20);
  EXPECT_EQ(document["oom"]["remedies"][0]["leaves_bytes"], 597 << 20);
}

TEST(InspectionText, KeepsColumnsApart) {
  Inspected inspected = sample();
  Live& live = inspected.inspection.peak;
  live.bytes = Bytes(1'140'892'688);
  live.kinds = {{Kind::kTemporary, live.bytes, 0_B, 24, 0, ""}};
  const std::string out = text(inspected);
  EXPECT_THAT(out, HasSubstr("At the peak                        bytes      MiB   tensors\n"
                             "  temporary                1,140,892,688  1,088.0        24\n"));
}

TEST(InspectionText, KeepsHoldersOfASegmentWhole) {
  Inspected inspected = sample();
  auto& holders = inspected.inspection.at_end.pinned[0].holders;
  holders = {{0, 1_MiB, {}, std::string(80, 'a')}, {0, 2_MiB, {}, std::string(80, 'b')}};
  inspected.inspection.at_end.pinned[0].blocks = 5;
  EXPECT_THAT(text(inspected), HasSubstr("  1 MiB " + std::string(80, 'a') + "; 4 more\n"));
}

TEST(PathRows, CanBeToldApartOrAreOne) {
  Live live;
  const auto path = [&](const char* third, Bytes bytes) {
    live.paths.push_back(
        {{"einsum", {"a.py:1 f", "b.py:2 g", "c.py:3 h", third}}, Kind::kActivation, bytes, bytes, 1, false});
  };
  path("d.py:4 i", 5_B);
  path("d.py:5 j", 7_B);
  path("d.py:5 j", 4_B);
  const auto rows = internal::path_rows(live, 2);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].where, "einsum, a.py:1 f < b.py:2 g < … < d.py:5 j");
  EXPECT_EQ(rows[0].bytes, 11_B);
  EXPECT_EQ(rows[0].largest, 7_B);
  EXPECT_EQ(rows[0].paths, 2U);
  EXPECT_EQ(rows[1].where, "einsum, a.py:1 f < b.py:2 g < … < d.py:4 i");
}

TEST(InspectionText, WithoutOneBeginsWithTheFindings) {
  const std::string out = text(sample());
  EXPECT_THAT(out, StartsWith("* The peak is high.\n    → Make it lower.\n\nAt the peak  "));
  EXPECT_THAT(out, HasSubstr("    300.0       10  parameters                 (before the recording)\n"));
  EXPECT_THAT(out,
              HasSubstr("    250.0       15  activations                bmm, model.py:3 forward < train.py:9 main\n"));
  EXPECT_THAT(out, HasSubstr("Reserved at the end 692,060,668 B =\n"));
  EXPECT_THAT(out, HasSubstr("8 MiB bmm, model.py:3 forward"));
  EXPECT_THAT(out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text(sample_oom(), true), HasSubstr("\x1b[1;31mNO ALLOCATOR SETTING HELPS"));
}

TEST(InspectionJson, HasWhatOtherProgramsRelyOn) {
  const json document = json::parse(report::json(sample_oom()));
  EXPECT_EQ(document["schema"], "cinch.inspect/1");
  for (const char* key : {"cinch", "libtorch", "device", "threads", "source", "events", "peak", "categories_at_peak",
                          "fragmentation", "leaks", "oom", "findings"}) {
    EXPECT_TRUE(document.contains(key)) << key;
  }
  EXPECT_EQ(document["oom"]["asked_bytes"], 20 << 20);
  EXPECT_EQ(document["oom"]["free_bytes"], 15 << 20);
  EXPECT_EQ(document["oom"]["short_by_bytes"], 5 << 20);
  EXPECT_EQ(document["oom"]["any_setting_helps"], false);
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : document["categories_at_peak"].items()) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(document["categories_at_peak"].size(), 8U);
  EXPECT_EQ(sum, document["peak"]["requested_bytes"]);
  const json& parts = document["fragmentation"];
  sum = 0;
  for (const char* part : {"requested", "rounding", "unsplittable", "stranded", "other_streams", "private_pools",
                           "pending_frees", "cached_segments"}) {
    sum += parts[std::string(part) + "_bytes"].get<std::int64_t>();
  }
  EXPECT_EQ(sum, parts["reserved_bytes"]);
  EXPECT_EQ(document["findings"][1],
            (json{{"text", "The peak is high."}, {"bytes", 600 << 20}, {"action", "Make it lower."}}));
  EXPECT_TRUE(json::parse(report::json(sample()))["oom"].is_null());
}

TEST(InspectionHtml, IsSelfContainedAndEscaped) {
  Inspected inspected = sample_oom();
  inspected.inspection.peak.paths[1].path.frames[0] = "<script>alert(1)</script>";
  inspected.inspection.findings[1].text = "a < b & c";
  const std::string page = html(inspected);
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(page, HasSubstr("a &lt; b &amp; c"));
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  EXPECT_THAT(page, HasSubstr("capacity 595 MiB"));
  EXPECT_THAT(page, Not(HasSubstr("LibTorch")));
}

InspectedRanks sample_ranks() {
  InspectedRanks result;
  result.source = "snapshots";
  inspect::Rank damaged;
  damaged.source = "rank2.pickle";
  damaged.error = "rank2.pickle, byte 7: the file ends";
  result.ranks = inspect::compare_ranks({{"rank0.pickle", 0, 10, 40_MiB, 60_MiB, 30_MiB, 60_MiB, false, ""},
                                         {"rank1.pickle", 0, 12, 90_MiB, 100_MiB, 30_MiB, 60_MiB, true, ""},
                                         damaged});
  return result;
}

TEST(RanksReport, NamesTheOutlierAndWhatCouldNotBeRead) {
  const std::string out = text(sample_ranks());
  EXPECT_THAT(out,
              StartsWith("rank1.pickle is the outlier: its peak is 90 MiB, 50 MiB more than the median of 40 MiB.\n"));
  EXPECT_THAT(out, HasSubstr("▶ rank1.pickle"));
  EXPECT_THAT(out, HasSubstr("ran out of memory"));
  EXPECT_THAT(out, HasSubstr("not read: rank2.pickle, byte 7: the file ends"));
  EXPECT_THAT(out, HasSubstr("Next: cinch inspect snapshots/rank1.pickle"));
  const json document = json::parse(report::json(sample_ranks()));
  EXPECT_EQ(document["schema"], "cinch.inspect/1");
  EXPECT_EQ(document["outlier"], 1);
  EXPECT_EQ(document["peak_total_bytes"], 130 << 20);
  EXPECT_THAT(html(sample_ranks()), HasSubstr("rank1.pickle is the outlier"));
}
}  // namespace
}  // namespace cinch::report
