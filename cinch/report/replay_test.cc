#include "cinch/report/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cinch/core/bytes.h"

namespace cinch::report {
namespace {

using namespace cinch::literals;
using allocator::Settings;
using allocator::WhatIf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

WhatIf run(const char* conf, Bytes allocated, Bytes low, Bytes high, std::size_t orders = 1) {
  WhatIf result;
  result.settings = Settings::parse(conf);
  result.peak_allocated = {allocated, allocated};
  result.peak_reserved = {low, high};
  result.end_reserved = {low, low};
  result.orders = orders;
  return result;
}

/// A recording of 10 GiB whose cache is mostly waste.
Replayed sample() {
  Replayed replayed;
  replayed.environment = {"", "cuda:0", 0};
  replayed.source = "oom.pickle";
  replayed.events = 12'345;
  replayed.verdict.emplace();
  replayed.verdict->events = 12'345;
  replayed.verdict->stats.peak_requested = 8_GiB;
  replayed.now = run("", 8_GiB, 10_GiB, 10_GiB);
  replayed.now.exact_start = true;
  replayed.runs = {run("expandable_segments:True", 8_GiB, 8_GiB, 8_GiB),
                   run("max_split_size_mb:128", 8_GiB, 9_GiB, 11_GiB, 6)};
  replayed.tried = 3;
  replayed.searched = true;
  replayed.recommended = replayed.runs[0].settings;
  replayed.elapsed_seconds = 0.25;
  return replayed;
}

WhatIf failing(WhatIf run, std::size_t event) {
  run.failure = allocator::RanOut{.event = event,
                                  .asked = 100_MiB,
                                  .live = 5_GiB,
                                  .why = {.asked = 100_MiB, .free_on_device = 20_MiB, .largest_free_block = 64_MiB}};
  run.orders_failed = run.orders;
  run.alloc_retries = 7;
  return run;
}

TEST(ReplayText, AgreementThenAdviceThenTable) {
  EXPECT_EQ(text(sample()), R"(Model and recording agree: 12,345 events, 0 mismatches   (oom.pickle, cuda:0, 0.25 s)
RECOMMENDED: expandable_segments:True (8.00 GiB reserved at the peak instead of 10.0 GiB: 2.00 GiB less)

  Setting (3 tried), peaks in GiB                            allocated     reserved   vs now retries  runs out
  now: PyTorch's defaults                                         8.00        10.00                0  -
▶ expandable_segments:True                                        8.00         8.00  -20.0 %       0  -
  max_split_size_mb:128                                           8.00   9.00–11.00  +10.0 %       0  -
  Ranges: over several orders of addresses that the driver may choose.

Tensors alone need 8,589,934,592 B at the peak; 10,737,418,240 B are reserved now, 2.00 GiB more. No setting goes below the first.
expandable_segments needs PyTorch 2.1.
Next: export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
)");
}

TEST(ReplayText, MismatchesAreNoSmallPrint) {
  Replayed replayed = sample();
  replayed.verdict->mismatches = 3;
  replayed.verdict->first = "event 7: 512 B recorded at 0x200, model at 0x400";
  EXPECT_THAT(text(replayed),
              StartsWith("Model and recording DIFFER: 12,345 events, 3 mismatches   (oom.pickle, cuda:0, 0.25 s)\n"
                         "  first: event 7: 512 B recorded at 0x200, model at 0x400\n"));
}

TEST(ReplayText, OfATraceWithoutAddresses) {
  Replayed replayed = sample();
  replayed.verdict.reset();
  EXPECT_THAT(text(replayed), StartsWith("12,345 events of a trace without addresses: predicted, not compared"));
  EXPECT_THAT(text(replayed), Not(HasSubstr("Tensors alone need")));
}

TEST(ReplayText, WhatDoesNotFit) {
  Replayed replayed = sample();
  replayed.capacity = 6_GiB;
  replayed.capacity_given = true;
  replayed.recommended.reset();
  replayed.now = failing(replayed.now, 900);
  for (WhatIf& each : replayed.runs) each = failing(each, 1000);
  EXPECT_FALSE(replayed.fits());
  EXPECT_THAT(text(replayed),
              HasSubstr("The process may reserve 6.00 GiB (--capacity; the CUDA context comes on top)."));
  EXPECT_THAT(text(replayed),
              HasSubstr("NO ALLOCATOR SETTING FITS 6.00 GiB: tensors alone need 8,589,934,592 B, 2.00 GiB more; "
                        "now it runs out at event 900, asking 100 MiB with 5.00 GiB live.\n"));
  EXPECT_THAT(text(replayed), HasSubstr("7  event 1,000\n"));
  replayed.capacity = 9_GiB;
  EXPECT_THAT(text(replayed), HasSubstr("NO SETTING TRIED FITS 9.00 GiB: now it runs out at event 900"));
  replayed.now.failure->at_start = true;
  EXPECT_THAT(text(replayed), HasSubstr("now it runs out before the recording begins"));
  replayed.runs[1].orders_failed = 2;
  EXPECT_THAT(text(replayed), HasSubstr("event 1,000 (2 of 6 orders)"));
}

TEST(ReplayText, NothingToGain) {
  Replayed replayed = sample();
  replayed.recommended.reset();
  EXPECT_THAT(text(replayed), HasSubstr("No setting that was tried is worth changing"));
  replayed.searched = false;
  replayed.runs.clear();
  EXPECT_THAT(text(replayed), HasSubstr("Next: cinch replay oom.pickle --grid\n"));
}

TEST(ReplayJson, KeepsItsKeys) {
  Replayed replayed = sample();
  replayed.capacity = 6_GiB;
  replayed.now = failing(replayed.now, 900);
  const auto document = nlohmann::json::parse(json(replayed));
  EXPECT_EQ(document["schema"], "cinch.replay/1");
  for (const char* key : {"cinch", "libtorch", "device", "threads", "runs", "recommended"}) {
    EXPECT_TRUE(document.contains(key)) << key;
  }
  EXPECT_EQ(document["recommended"], "expandable_segments:True");
  EXPECT_EQ(document["capacity_bytes"], (6_GiB).count());
  EXPECT_EQ(document["verified"]["mismatches"], 0);
  ASSERT_EQ(document["runs"].size(), 3u);
  const auto& now = document["runs"][0];
  EXPECT_EQ(now["alloc_conf"], "");
  EXPECT_EQ(now["matches_recording"], true);
  EXPECT_EQ(now["oom"], true);
  EXPECT_EQ(now["ran_out"]["event"], 900);
  EXPECT_EQ(now["ran_out"]["asked_bytes"], (100_MiB).count());
  const auto& ranged = document["runs"][2];
  EXPECT_EQ(ranged["peak_allocated_bytes"], (8_GiB).count());
  EXPECT_EQ(ranged["peak_reserved_bytes"], (11_GiB).count());
  EXPECT_EQ(ranged["peak_reserved_low_bytes"], (9_GiB).count());
  EXPECT_EQ(ranged["oom"], false);
  EXPECT_TRUE(ranged["ran_out"].is_null());
  EXPECT_TRUE(ranged["matches_recording"].is_null());
  replayed.verdict.reset();
  replayed.recommended.reset();
  const auto trace = nlohmann::json::parse(json(replayed));
  EXPECT_TRUE(trace["recommended"].is_null());
  EXPECT_TRUE(trace["runs"][0]["matches_recording"].is_null());
}
TEST(ReplayText, LongSettingsAreWholeAndThoseWithoutEffectAreCounted) {
  Replayed replayed = sample();
  const char* conf = "max_split_size_mb:128,garbage_collection_threshold:0.8,per_process_memory_fraction:0.99";
  replayed.runs = {run(conf, 8_GiB, 9_GiB, 9_GiB), run("max_split_size_mb:512", 8_GiB, 10_GiB, 10_GiB),
                   run("max_split_size_mb:600", 8_GiB, 10_GiB, 10_GiB)};
  replayed.recommended.reset();
  const std::string shown = text(replayed);
  EXPECT_THAT(shown, HasSubstr("\n  " + replayed.runs[0].settings.to_string() + "\n"));
  EXPECT_THAT(shown, HasSubstr("2 settings change nothing"));
  EXPECT_THAT(shown, Not(HasSubstr("max_split_size_mb:512")));
  EXPECT_THAT(shown, Not(HasSubstr("Ranges:")));
  replayed.searched = false;  // Asked for by name.
  EXPECT_THAT(text(replayed), HasSubstr("max_split_size_mb:512"));
}
}  // namespace
}  // namespace cinch::report
