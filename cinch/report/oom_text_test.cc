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
using testing::StartsWith;

inspect::OomReport parsed(const std::string& name) {
  return inspect::parse_oom_text(read_file(std::string(CINCH_SOURCE_DIR) + "/tests/data/oom_texts/" + name + ".txt"));
}

TEST(OomTextReport, SaysFirstWhetherASettingHelps) {
  EXPECT_EQ(text(parsed("cads-4")),
            "asked 22.78 GiB; 12.73 GiB free on the card + 9.35 GiB reserved but unallocated = 22.08 GiB.\n"
            "NO ALLOCATOR SETTING HELPS: even with no fragmentation it is 0.70 GiB short. (The advice in the message, "
            "expandable\nsegments, would not have fixed it.)\n"
            "What to shrink, the message does not say. Record a snapshot: cinch record -- python train.py\n");
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

TEST(OomTextReport, BeginsWithWhatOthersHoldWhereThatIsMuch) {
  EXPECT_THAT(text(parsed("localgpt-falcon-7")),
              StartsWith("16.08 GiB of the card is neither free nor this program's PyTorch: another program, contexts, "
                         "NCCL. Without it it would\nhave fitted. See nvidia-smi.\nasked 1.63 GiB; "));
  EXPECT_THAT(text(parsed("alphaction-58")), StartsWith("3.13 GiB of the card is neither free nor"));
  EXPECT_THAT(text(parsed("maddog-11")), StartsWith("asked 2.87 GiB; "));
  EXPECT_THAT(text(parsed("maddog-11")), HasSubstr("\n1.03 GiB of the card is neither free nor"));
  EXPECT_THAT(text(parsed("pytorch-138002")), HasSubstr("See rocm-smi."));
  EXPECT_THAT(text(parsed("cads-4")), Not(HasSubstr("neither free nor")));
  const auto document = nlohmann::json::parse(json(parsed("localgpt-falcon-7"), {}, "-"));
  EXPECT_EQ(document["findings"][0]["bytes"], document["oom"]["elsewhere_bytes"]);
  EXPECT_THAT(html(parsed("localgpt-falcon-7"), {}, "-"), HasSubstr("<p>16.08 GiB of the card is neither free"));
}

TEST(OomTextReport, ARefusalOfWhatWasFreeNamesWhatToDo) {
  for (const char* name : {"alphaction-58", "comfyui-5886", "comfyui-9529", "mygirlgpt-11", "pytorch-16417",
                           "structureflow-35", "taggui-188", "torch-xpu-ops-3011"}) {
    SCOPED_TRACE(name);
    const std::string report = text(parsed(name));
    EXPECT_THAT(report, HasSubstr("NOT FRAGMENTATION: the card had room (asked "));
    EXPECT_THAT(report, HasSubstr("-smi"));
    EXPECT_THAT(report, HasSubstr("set_per_process_memory_fraction"));
    EXPECT_THAT(report, Not(HasSubstr("SETTING MAY HELP")));
    const auto oom = nlohmann::json::parse(json(parsed(name), {}, "-"))["oom"];
    EXPECT_EQ(oom["verdict"], "not_fragmentation");
    EXPECT_TRUE(oom["any_setting_helps"].is_null());
  }
}

TEST(OomTextReport, NamesACommandOnlyWhereItWorks) {
  constexpr const char* command = "cinch record -- python train.py";
  EXPECT_THAT(text(parsed("vdsr-2")), HasSubstr(command));
  for (const char* name : {"surya-254", "ipex-629", "mxfold2-20", "pytorch-138002", "torch-xpu-ops-3011"}) {
    EXPECT_THAT(text(parsed(name)), Not(HasSubstr(command))) << name;
  }
}

TEST(OomTextReport, TellsTheSegmentFromTheTensor) {
  EXPECT_THAT(text(parsed("pytorch-67971")),
              HasSubstr("2.00 MiB is the segment that PyTorch takes for a tensor of up to 1 MiB, not the tensor."));
  EXPECT_THAT(text(parsed("taggui-188")),
              HasSubstr("20.00 MiB is the segment that PyTorch takes for a tensor of 1 to"));
  EXPECT_THAT(text(parsed("vdsr-2")), Not(HasSubstr("is the segment")));
}

TEST(OomTextReport, NamesTheCallThatSetsAFraction) {
  EXPECT_THAT(text(parsed("therock-2118")), HasSubstr("Raise it (torch.cuda.set_per_process_memory_fraction)"));
  EXPECT_THAT(text(parsed("vllm-19186")), HasSubstr("torch.cuda.set_per_process_memory_fraction(0.95)"));
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
  EXPECT_EQ(document["oom"]["verdict"], "no_setting_helps");
  EXPECT_NEAR(document["oom"]["short_by_range_bytes"][0].get<double>(), 0.685 * (1 << 30), 8);
  EXPECT_NEAR(document["oom"]["short_by_range_bytes"][1].get<double>(), 0.715 * (1 << 30), 8);
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
