#include "cinch/report/questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cinch/report/internal/samples_for_test.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using internal::sample_cards;
using internal::sample_infeasible;
using internal::sample_largest;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using namespace cinch::literals;

TEST(LargestText, IsTheAnswerAndItsProof) {
  EXPECT_THAT(
      text(sample_largest()),
      StartsWith(
          R"(LARGEST BATCH: 12 (the job's own is 4), needs 600 MiB of 640 MiB: 40.0 MiB spare   (3 values, 57 plans dry-run, 3.00 s)
  The batch goes through whole: in micro-batches any would fit. All other techniques are used.
  train.batch_size 12 fits, 13 does not, whatever the plan; each was dry-run.

       batch   peak MiB  plan
▶         12      600.0  checkpoint 1 of 2 modules                                    FITS, 40.0 MiB spare
          13      650.0  smallest: checkpoint 1 of 2 modules                          10.0 MiB too much

Plan: checkpoint 1 of 2 modules   (step 0.45 s, optimum proven)
Peak: step 2, backward, at blocks.1.mlp, aten::gelu_backward
)"));
  EXPECT_THAT(text(sample_largest()),
              EndsWith("Next: cinch train job.toml --set train.batch_size=12 --budget 640MiB\n"));
}

TEST(LargestText, SaysWhatEndedTheSearch) {
  Largest largest = sample_largest();
  largest.adjacent = false;
  EXPECT_THAT(text(largest), HasSubstr("time ran out before what lies between."));
  largest.beyond.reset();
  largest.limit = "model.layers is 10001; it must be at most 10000";
  EXPECT_THAT(text(largest), HasSubstr("Beyond it the job ends: model.layers is 10001"));
  EXPECT_THAT(text(largest), Not(HasSubstr("whatever the plan")));
}

TEST(LargestText, OfAJobThatFitsInNoSizeIsTheFloor) {
  Largest largest = sample_largest();
  largest.value = 1;
  largest.planned = sample_infeasible();
  largest.beyond.reset();
  EXPECT_THAT(text(largest), StartsWith("NO BATCH FITS: not even train.batch_size 1   (3 values, 57 plans dry-run, "
                                        "3.00 s)\nDOES NOT FIT: the smallest plan needs 600 MiB"));
  const auto document = nlohmann::json::parse(json(largest));
  EXPECT_EQ(document["fits"], false);
  EXPECT_TRUE(document["plan"].is_null() && document["next"].is_null());
}

TEST(LargestJson, HasTheAnswerItsNeighbourAndAllThatWasTried) {
  const auto document = nlohmann::json::parse(json(sample_largest()));
  EXPECT_EQ(document["schema"], "cinch.maximize/1");
  EXPECT_EQ(document["maximize"], "batch");
  EXPECT_EQ(document["value"], 12);
  EXPECT_EQ(document["own_value"], 4);
  EXPECT_EQ(document["predicted"]["peak"]["requested_bytes"], 600 << 20);
  EXPECT_EQ(document["beyond"]["value"], 13);
  EXPECT_EQ(document["beyond"]["peak_bytes"], 650 << 20);
  EXPECT_EQ(document["tried"].size(), 3u);
  EXPECT_EQ(document["adjacent"], true);
}

TEST(CardsText, IsALineACard) {
  EXPECT_EQ(text(sample_cards()),
            R"(SMALLEST CARD: middle with a plan; large as it is   (40 plans dry-run, 2.00 s, nothing allocated)

card               has GiB     plain     needs      step  result
small                 8.00     20.00      9.00            no: 2.00 GiB too much
middle               16.00     20.00     12.00    0.50 s  FITS with checkpoint 1 of 2 modules
large                32.00     20.00     20.00    0.25 s  FITS as it is

plain: plain training; needs: that, or the plan. The budget of a card is what it has less 2 %.
Steps: the data sheets' rates, not measured. cinch plan --device NAME finds the fastest plan for one card.
Next: cinch plan job.toml --set train.steps=3 --device middle --out plan.toml
)");
  Cards cards = sample_cards();
  cards.cards.resize(1);
  EXPECT_THAT(text(cards), StartsWith("NO CARD HOLDS IT, whatever the plan"));
  EXPECT_THAT(text(cards), Not(HasSubstr("Next:")));
  cards = sample_cards();
  cards.cards.erase(cards.cards.begin() + 1);
  EXPECT_THAT(text(cards), StartsWith("SMALLEST CARD: large, as it is"));
}

TEST(CardsJson, SaysOfEachWhetherItFits) {
  const auto document = nlohmann::json::parse(json(sample_cards()));
  EXPECT_EQ(document["schema"], "cinch.cards/1");
  std::vector<std::string> fits;
  for (const auto& card : document["cards"]) fits.push_back(card["fits"]);
  EXPECT_THAT(fits, testing::ElementsAre("no", "plan", "plain"));
  EXPECT_TRUE(document["cards"][0]["step_seconds"].is_null());
  EXPECT_EQ(document["cards"][0]["peak_bytes"], std::int64_t{9} << 30);
  EXPECT_EQ(document["smallest"], (nlohmann::json{{"plain", "large"}, {"plan", "middle"}}));
}

TEST(QuestionPages, HaveWhatTheTextHas) {
  const std::string page = html(sample_largest());
  for (const char* what :
       {"LARGEST BATCH: 12", "13 does not, whatever the plan", "650 MiB", "--set train.batch_size=12"})
    EXPECT_THAT(page, HasSubstr(what));
  Cards cards = sample_cards();
  cards.cards[1].device = "<script>";
  for (const char* what : {"SMALLEST CARD", "&lt;script&gt; with a plan", "no: 2.00 GiB too much", "12.0 GiB"})
    EXPECT_THAT(html(cards), HasSubstr(what));
}
}  // namespace
}  // namespace cinch::report
