#include "cinch/report/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace cinch::report {
namespace {
using plan::Equivalence;
using testing::HasSubstr;

Verification example() {
  Verification verification{
      .environment = {"2.11.0", "cpu", 2}, .job = "job.toml", .plan = {.micro_batch_size = 4}, .modules = 6};
  verification.checks.push_back(
      {"planned against plain: the gradient, dropout off", Equivalence::kReassociated, 1, 2.1e-7, 1e-6, true, ""});
  verification.checks.push_back({"saved and resumed", Equivalence::kBitwise, 5, 0, 0, true, ""});
  verification.elapsed_seconds = 1.5;
  return verification;
}

TEST(VerificationReport, SaysWhatHoldsAndByHowMuch) {
  const std::string words = text(example());
  EXPECT_THAT(words, HasSubstr("HOLDS: the same weights but for rounding   (1.50 s)"));
  EXPECT_THAT(words, HasSubstr("Plan: micro-batch 4"));
  EXPECT_THAT(words, HasSubstr("2.1e-07   1.0e-06  holds"));
}

TEST(VerificationReport, SaysWhereTrainingsPart) {
  Verification verification = example();
  verification.checks[1] = {"saved and resumed", Equivalence::kBitwise, 5, 0.25, 0, false, "step 4, layers.0.weight"};
  EXPECT_THAT(text(verification), HasSubstr("DOES NOT HOLD"));
  EXPECT_THAT(text(verification), HasSubstr("first at step 4, layers.0.weight"));
  EXPECT_THAT(html(verification), HasSubstr("first at step 4, layers.0.weight"));
  EXPECT_FALSE(nlohmann::json::parse(json(verification)).at("holds").get<bool>());
}

TEST(VerificationReport, TheJsonHasThePlansOwnClass) {
  const auto document = nlohmann::json::parse(json(example()));
  EXPECT_EQ(document.at("schema"), "cinch.verify/1");
  EXPECT_EQ(document.at("equivalence"), "reassociated");
  EXPECT_EQ(document.at("max_relative_difference"), 2.1e-7);
  EXPECT_EQ(document.at("bound"), 1e-6);
  EXPECT_TRUE(document.at("holds").get<bool>());
  EXPECT_EQ(document.at("checks").size(), 2u);
}

TEST(VerificationReport, NothingCheckedIsNothingProven) {
  EXPECT_FALSE(Verification{}.holds());
  Verification verification = example();
  verification.checks[0].difference = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(nlohmann::json::parse(json(verification)).at("max_relative_difference").is_null());
}
}  // namespace
}  // namespace cinch::report
