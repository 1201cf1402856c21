#include "cinch/report/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace cinch::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

inspect::Held held(std::int64_t activations, std::int64_t states) {
  const auto share = [](std::int64_t bytes) { return inspect::Share{Bytes(bytes), bytes > 0 ? 1u : 0u}; };
  inspect::Held result;
  result.total = {Bytes(activations + states), 2};
  result.categories = {{"activation", share(activations)}, {"optimizer_state", share(states)}};
  result.modules = {{"model.py forward", share(activations)}, {"", share(states)}};
  result.paths = {{"linear, model.py forward", share(activations)}, {"zeros_like, adam.py step", share(states)}};
  return result;
}

Comparison comparison(const inspect::Held& before, const inspect::Held& after) {
  return {.environment = {},
          .before = "a.pickle",
          .after = "b.pickle",
          .diff = inspect::compare({before, before}, {after, after}),
          .threshold = {},
          .beyond = false};
}

TEST(DiffReport, BeginsWithAPlainSentence) {
  EXPECT_THAT(
      text(comparison(held(10 << 20, 0), held(12 << 20, 4 << 20))),
      StartsWith("GREW by 6 MiB at the peak (+60.0 %): 10 MiB → 16 MiB, most of it optimizer state (+4 MiB).\n"
                 "GREW by 6 MiB at the end (+60.0 %): 10 MiB → 16 MiB, most of it optimizer state (+4 MiB).\n"));
  EXPECT_THAT(text(comparison(held(12 << 20, 0), held(9 << 20, 0))),
              StartsWith("SHRANK by 3 MiB at the peak (-25.0 %)"));
  EXPECT_EQ(text(comparison(held(1 << 20, 0), held(1 << 20, 0))),
            "EQUAL at the peak: 1 MiB.\nEQUAL at the end: 1 MiB.\n");
  EXPECT_THAT(text(comparison(held(0, 0), held(1 << 20, 0))), StartsWith("GREW by 1 MiB at the peak: 0 B → 1 MiB"));
}

TEST(DiffReport, ListsWhatChangedMostFirst) {
  const std::string report = text(comparison(held(10 << 20, 1 << 20), held(2 << 20, 4 << 20)));
  EXPECT_LT(report.find("linear, model.py forward"), report.find("zeros_like, adam.py step"));
  EXPECT_THAT(report, HasSubstr("+3 MiB       1 MiB       4 MiB       +0  (none)"));
}

TEST(DiffReport, SaysWhetherTheThresholdHolds) {
  Comparison result = comparison(held(1 << 20, 0), held(3 << 20, 0));
  EXPECT_THAT(text(result), Not(HasSubstr("threshold")));
  result.threshold = Bytes(1 << 20);
  EXPECT_THAT(text(result), HasSubstr("Within the threshold of 1 MiB."));
  result.beyond = true;
  EXPECT_THAT(text(result), HasSubstr("BEYOND the threshold of 1 MiB."));
  EXPECT_THAT(text(result, true), StartsWith("\x1b[1;31mGREW"));
}

TEST(DiffReport, JsonHasEveryRow) {
  const auto document = nlohmann::json::parse(json(comparison(held(1 << 20, 0), held(3 << 20, 5))));
  EXPECT_EQ(document["schema"], "cinch.diff/1");
  for (const char* key : {"cinch", "libtorch", "device", "threads", "before", "after"})
    EXPECT_TRUE(document.contains(key));
  EXPECT_TRUE(document["threshold_bytes"].is_null());
  EXPECT_EQ(document["peak"]["grown_bytes"], (2 << 20) + 5);
  EXPECT_EQ(document["peak"]["categories"][0]["name"], "activation");
  EXPECT_EQ(document["peak"]["categories"][1]["grown_bytes"], 5);
  EXPECT_EQ(document["end"]["paths"].size(), 2u);
}
}  // namespace
}  // namespace cinch::report
