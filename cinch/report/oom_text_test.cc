#include "cinch/report/oom_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cinch/core/text.h"

namespace cinch::report {
namespace {

using testing::HasSubstr;
using testing::Not;

inspect::OomReport parsed(const std::string& name) {
  return inspect::parse_oom_text(read_file(std::string(CINCH_SOURCE_DIR) + "/tests/data/oom_texts/" + name + ".txt"));
}

TEST(OomTextReport, SaysFirstWhetherASettingHelps) {
  EXPECT_EQ(text(parsed("cads-4")),
            "asked 22.78 GiB; 12.73 GiB free on the card + 9.35 GiB reserved but unallocated = 22.08 GiB.\n"
            "NO ALLOCATOR SETTING HELPS: even with no fragmentation it is 0.70 GiB short. (The advice in the message, "
            "expandable\nsegments, would not have fixed it.)\n"
            "What to shrink, the message does not say. Record a snapshot: see docs/inspect.md\n");
  EXPECT_THAT(text(parsed("compressed-tensors-587")), HasSubstr("A SETTING MAY HELP: enough was there"));
  EXPECT_THAT(text(parsed("one-2-3-45-25")), HasSubstr("CANNOT BE TOLD FROM THESE FIGURES"));
  EXPECT_THAT(text(parsed("animatediff-320")), HasSubstr("does not say what is reserved but unallocated"));
  EXPECT_THAT(text(parsed("ipex-629")), HasSubstr("does not say what was free"));
  EXPECT_THAT(text(parsed("ipex-629-block")), HasSubstr("one allocation may not be larger than 4.00 GiB there"));
  EXPECT_THAT(text(parsed("mxfold2-20")), HasSubstr("memory of the host"));
}

TEST(OomTextReport, NamesWhoElseIsOnTheCard) {
  const std::string report = text(parsed("returnn-1469"));
  EXPECT_THAT(report, HasSubstr("Other programs hold 17.85 GiB of this card: process 101549 1.19 GiB, "));
  EXPECT_THAT(report, HasSubstr("11 more"));
  EXPECT_THAT(text(parsed("kaito-976")), HasSubstr("Process 562167 (15.25 GiB) is probably this program"));
}

TEST(OomTextReport, SaysWhatMaxSplitSizeDoesNot) {
  EXPECT_THAT(text(parsed("lerf-73")), HasSubstr("max_split_size_mb, which the message advises, only keeps"));
}

TEST(OomTextReport, LinesFitATerminal) {
  for (const char* name : {"cads-4", "returnn-1469", "therock-2118", "vllm-19186", "surya-254", "ipassr-9"}) {
    std::istringstream lines(text(parsed(name)));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST(OomTextReport, SeveralErrorsAreNumbered) {
  const std::string root = std::string(CINCH_SOURCE_DIR) + "/tests/data/oom_texts/";
  const std::string paste =
      read_file(root + "cads-4.txt") + read_file(root + "cads-4.txt") + read_file(root + "kaito-976.txt");
  const std::string report = text(inspect::parse_oom_text(paste));
  EXPECT_THAT(report, HasSubstr("Error 1 of 2, 2 times in this text:"));
  EXPECT_THAT(report, HasSubstr("Error 2 of 2:"));
}

TEST(OomTextReport, ColoursTheVerdictAlone) {
  const std::string coloured = text(parsed("cads-4"), true);
  EXPECT_THAT(coloured, HasSubstr("\x1b[1;31mNO ALLOCATOR SETTING HELPS:\x1b[0m even with"));
  EXPECT_THAT(text(parsed("cads-4")), Not(HasSubstr("\x1b")));
}

TEST(OomTextReport, JsonHasWhatProgramsRelyOn) {
  const auto document = nlohmann::json::parse(json(parsed("cads-4"), {}, "-"));
  EXPECT_EQ(document["schema"], "cinch.inspect/1");
  EXPECT_EQ(document["source"], "-");
  EXPECT_EQ(document["device"], "GPU 0");
  for (const char* key :
       {"cinch", "libtorch", "threads", "events", "peak", "categories_at_peak", "fragmentation", "leaks"}) {
    EXPECT_TRUE(document.contains(key)) << key;
  }
  EXPECT_EQ(document["oom"]["asked_bytes"], Bytes::parse("22.78GiB").count());
  EXPECT_EQ(document["oom"]["free_bytes"], Bytes::parse("12.73GiB").count());
  EXPECT_NEAR(document["oom"]["short_by_bytes"].get<double>(), 0.70 * (1 << 30), 2);
  EXPECT_EQ(document["oom"]["any_setting_helps"], false);
  ASSERT_FALSE(document["findings"].empty());
  for (const auto& finding : document["findings"]) {
    EXPECT_FALSE(finding["text"].get<std::string>().empty());
    EXPECT_TRUE(finding["bytes"].is_number());
    EXPECT_TRUE(finding["action"].is_string());
  }
  EXPECT_EQ(nlohmann::json::parse(json(parsed("lerf-73"), {}, "-"))["oom"]["any_setting_helps"], true);
  EXPECT_TRUE(nlohmann::json::parse(json(parsed("one-2-3-45-25"), {}, "-"))["oom"]["any_setting_helps"].is_null());
}

TEST(OomTextReport, HtmlIsAWholePage) {
  const std::string page = html(parsed("cads-4"), {}, "<stdin>");
  EXPECT_THAT(page, HasSubstr("NO ALLOCATOR SETTING HELPS"));
  EXPECT_THAT(page, HasSubstr("&lt;stdin&gt;"));
  EXPECT_THAT(page, HasSubstr("</html>"));
}
}  // namespace
}  // namespace cinch::report
