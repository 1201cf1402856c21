#include "cinch/cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"

namespace cinch::cli {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& budget) {
  try {
    parse_budget(budget);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Budget, IsReadAsASize) {
  EXPECT_EQ(parse_budget("2GiB").count(), 2ll << 30);
  EXPECT_EQ(parse_budget("500MB").count(), 500'000'000);
  EXPECT_EQ(parse_budget("1").count(), 1);
}

TEST(Budget, OfNothingOrWithoutSenseIsRefusedByName) {
  EXPECT_EQ(refusal("0"), "--budget 0: nothing fits into 0 bytes");
  EXPECT_EQ(refusal("0GiB"), "--budget 0GiB: nothing fits into 0 bytes");
  EXPECT_THAT(refusal("-1"), HasSubstr("--budget: \"-1\""));
  EXPECT_THAT(refusal("12XB"), HasSubstr("unknown unit \"XB\""));
  EXPECT_THAT(refusal(""), HasSubstr("--budget"));
}

TEST(Budget, WithoutOneIsTheMemoryLessTwoPercent) {
  Request request;
  request.device.memory = Bytes(1000);
  EXPECT_EQ(request.limit().count(), 980);
  request.budget = Bytes(3);
  EXPECT_EQ(request.limit().count(), 3);
}

TEST(Allow, TakesTheKeysOfTechniques) {
  EXPECT_NO_THROW(check_allowed({}));
  EXPECT_NO_THROW(check_allowed({"adam8bit", "checkpoint", "offload"}));
  try {
    check_allowed({"adam9bit"});
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("--allow adam9bit: there is no such technique"));
    EXPECT_EQ(error.hint(), "Did you mean adam8bit?");
  }
}

class CommandLine : public testing::Test {
 protected:
  void SetUp() override { add_options(app_, options_); }
  CLI::App app_;
  Options options_;
};

TEST_F(CommandLine, ReadsRepeatedFlagsWithoutSwallowingTheJob) {
  app_.parse("--set a.b=1 --set c.d=[1,2] --allow bf16 job.toml --threads 2 -q --json --html x.html --budget 1GiB");
  EXPECT_EQ(options_.job, "job.toml");
  EXPECT_THAT(options_.set, testing::ElementsAre("a.b=1", "c.d=[1,2]"));
  EXPECT_THAT(options_.allow, testing::ElementsAre("bf16"));
  EXPECT_EQ(options_.threads, 2);
  EXPECT_EQ(options_.budget, "1GiB");
  EXPECT_EQ(options_.html, "x.html");
  EXPECT_TRUE(options_.quiet && options_.json);
}

TEST_F(CommandLine, TakesANegativeBudgetAsItsValueSoThatItCanBeRefusedInWords) {
  app_.parse("job.toml --budget -1");
  EXPECT_EQ(options_.budget, "-1");
}

TEST_F(CommandLine, NeedsAJob) { EXPECT_THROW(app_.parse("--json"), CLI::ParseError); }
}  // namespace
}  // namespace cinch::cli
