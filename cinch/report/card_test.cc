// What a card needs, as text and JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cinch/report/internal/samples_for_test.h"
#include "cinch/report/report.h"
#include "cinch/report/summarize.h"
#include "cinch/trace/builder.h"

namespace cinch::report {
namespace {

using namespace internal;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(ActivationGroups, ByBlocksLogitsCopiesAndTheRest) {
  trace::TraceBuilder b;
  b.phase(Phase::kForward, 1).module("layers.0.mlp");
  b.alloc(4_MiB);
  b.module("layers.1");
  b.alloc(6_MiB);
  b.module("head");
  b.alloc(3_MiB);
  b.label(b.alloc(2_MiB), Category::kUnknown, "head.weight");  // A name alone: a copy of it.
  b.alloc(trace::TensorInfo{DType::kFloat32, {1024, 256}});    // Scores of 256 classes.
  b.label(b.alloc(Bytes(512 << 10)), Category::kTemporary, "workspace");
  trace::Trace trace = b.build();
  trace::classify(trace);
  const auto groups = activation_groups(trace, {"layers.0", "layers.1"}, 256);
  ASSERT_EQ(groups.size(), 5u);
  EXPECT_EQ(groups[0].kind, ActivationGroup::Kind::kBlocks);
  EXPECT_EQ(groups[0].name, "layers.*");
  EXPECT_EQ(groups[0].count, 2u);
  EXPECT_EQ(groups[0].bytes, 10_MiB);
  EXPECT_EQ(groups[1].name, "head");
  EXPECT_EQ(groups[1].bytes, 3_MiB);
  EXPECT_EQ(groups[2].kind, ActivationGroup::Kind::kWeightCopies);
  EXPECT_EQ(groups[2].bytes, 2_MiB);
  EXPECT_EQ(groups[3].kind, ActivationGroup::Kind::kLogits);
  EXPECT_EQ(groups[3].bytes, 1_MiB);
  EXPECT_EQ(groups[4].name, "workspace");
}

Estimate sample_on_card() {
  Estimate estimate = sample_estimate();
  estimate.environment.device = "card";
  estimate.capacity = 512_MiB;
  estimate.budget = Bytes(estimate.capacity.count() / 50 * 49);
  estimate.budget_given = false;
  estimate.peak.card = CardBytes{610_MiB, 640_MiB, 100_MiB};
  estimate.peak.module = "";
  estimate.peak.op = "";
  estimate.groups = {{ActivationGroup::Kind::kBlocks, "blocks.*", 2, 380_MiB},
                     {ActivationGroup::Kind::kLogits, "", 2, 59_MiB},
                     {ActivationGroup::Kind::kOther, "", 1, 20_MiB}};
  estimate.runs_out = OutOfMemoryPlace{20_MiB, 1, Phase::kForward, "blocks.1.mlp", "aten::mm"};
  estimate.step_seconds = 0.4;
  estimate.suggestions.push_back({"batch 3", 480_MiB, 0.2, true, plan::Equivalence::kBitwise, true});
  return estimate;
}

TEST(CardText, SaysWhatDoesNotFitWhereAndWhatHelps) {
  EXPECT_EQ(text(sample_on_card(), false),
            R"(DOES NOT FIT: needs 740 MiB, budget 502 MiB: 238 MiB too much   (80.0 ms, nothing allocated)
  Budget: the 512 MiB of card less 2 %; --budget sets another.
  Runs out in forward of step 1 at blocks.1.mlp, asking 20.0 MiB.

Peak: step 2, backward
                                                        MiB   share  can shrink by
  parameters       10,485,760 numbers                  40.0     7 %
  optimizer state                                      80.0    13 %
  gradients                                            20.0     3 %
  inputs                                                1.0    <1 %
  activations                                         400.0    67 %  checkpointing, micro-batches
  temporaries                                          59.0    10 %
  of activations and temporaries:
    2 blocks, blocks.*                                380.0    63 %  checkpointing
    logits and their gradient                          59.0    10 %  chunked loss, micro-batches
    outside modules                                    20.0     3 %
  tensors                                             600.0   100 %
  + rounding, fragmentation 40.0 + CUDA context 100.0 = on the card 740.0 MiB

Try first                                          peak MiB    step  result
  checkpoint 2 of 2 modules                           320.0   +25 %  FITS, same weights
  micro-batch 16                                      510.0    -6 %  no: too much, same weights but for rounding
  batch 3                                             480.0   -50 %  FITS, not the same training

A plain step takes 0.40 s or more: the data sheet's rates, not measured.
Next: cinch plan job.toml
)");
}

TEST(CardText, OfWhatFitsNamesNoCommandSinceTrainingIsTheCpus) {
  Estimate estimate = sample_on_card();
  estimate.fits = true;
  estimate.runs_out.reset();
  EXPECT_THAT(text(estimate), Not(HasSubstr("Next:")));
}

Planned sample_planned_on_card() {
  Planned planned = sample_planned();
  planned.environment.device = "card";
  planned.options = {"--device", "card"};
  planned.capacity = 24_GiB;
  planned.budget_given = false;
  planned.calibrated = false;
  planned.peak.card = CardBytes{450_MiB, 480_MiB, 120_MiB};
  planned.peak.requested = 440_MiB;
  planned.peak.categories = {};
  planned.peak.categories[Category::kActivation] = 440_MiB;
  return planned;
}

TEST(CardText, OfAPlanIsOfWhatTheCardHolds) {
  EXPECT_EQ(text(sample_planned_on_card()),
            R"(FITS: needs 600 MiB of 640 MiB: 40.0 MiB spare   (31 plans dry-run, optimum proven, 1.90 s)
  Budget: the 24.0 GiB of card less 2 %; --budget sets another.

    peak MiB     step  vs fastest     time   memory  change from the row above
       800.0   0.40 s           -                    nothing                                    over
▶      600.0   0.45 s       +12 %    +12 %    -25 %  checkpoint 1 of 2 modules                  FITS, 40.0 MiB spare
       320.0   0.50 s       +25 %    +11 %    -47 %  checkpoint 2 of 2 modules                  fits
       250.0   0.60 s       +50 %    +20 %    -22 %  micro-batch 16, checkpoint 1 of 2 modules  fits
  Smaller: for 11 % more time, 47 % less memory: checkpoint 2 of 2 modules.
  Faster:  for 33 % more memory, 11 % less time: no checkpoint.

Plan: checkpoint 1 of 2 modules
Peak: step 2, backward, at blocks.1.mlp, aten::gelu_backward
                                                        bytes        MiB  share
  activations                                     461,373,440      440.0  100 %
  total                                           461,373,440      440.0  100 %
  + rounding, fragmentation 40.0 + CUDA context 120.0 = on the card 600.0 MiB

Result: same weights (bitwise).
Step times: roofline of card, not calibrated here.
Next: cinch plan job.toml --device card --out plan.toml
)");
  Planned written = sample_planned_on_card();
  written.plan_file = "plan.toml";
  EXPECT_THAT(text(written), EndsWith("Wrote plan.toml\n"));
}

TEST(CardPages, SayWhatTheCardHolds) {
  const std::string page = html(sample_planned_on_card());
  EXPECT_THAT(page, HasSubstr("= on the card 600.0 MiB"));
  EXPECT_THAT(page, HasSubstr("Step times: roofline of card, not calibrated here."));
}

TEST(Estimates, ThatAreNoExactOnesSaySo) {
  Estimate estimate = sample_estimate();
  estimate.bounded = {"aten::nonzero in head", "aten::index", "aten::unique_dim", "aten::masked_select",
                      "aten::unique2"};
  estimate.by_shape_alone = {"aten::convolution"};
  const std::string bound =
      "An upper bound: values decide the sizes of aten::nonzero in head, aten::index, "
      "aten::unique_dim and 2 more; the largest count.";
  const std::string shapes = "By shapes alone: aten::convolution; what these take inside does not count.";
  for (const bool card : {false, true}) {
    if (card) estimate.peak.card = CardBytes{610_MiB, 640_MiB, 100_MiB};
    EXPECT_THAT(text(estimate), HasSubstr("  " + bound + "\n  " + shapes + "\n"));
    EXPECT_THAT(html(estimate), HasSubstr(bound + " " + shapes));
    const auto document = nlohmann::json::parse(json(estimate));
    EXPECT_EQ(document["bounded"].size(), 5u);
    EXPECT_EQ(document["by_shape_alone"], nlohmann::json({"aten::convolution"}));
  }
  EXPECT_THAT(text(sample_estimate()), Not(HasSubstr("bound")));
  EXPECT_TRUE(nlohmann::json::parse(json(sample_estimate()))["bounded"].empty());
}

TEST(CardJson, OfAPlanHasTheCardsSizes) {
  const auto document = nlohmann::json::parse(json(sample_planned_on_card()));
  EXPECT_EQ(document["predicted"]["peak"]["device_bytes"], 600 << 20);
  EXPECT_EQ(document["predicted"]["peak"]["requested_bytes"], 440 << 20);
  EXPECT_EQ(document["capacity_bytes"], std::int64_t{24} << 30);
  EXPECT_EQ(document["calibrated"], false);
}

TEST(CardJson, HasTheFourSizes) {
  const auto document = nlohmann::json::parse(json(sample_on_card()));
  EXPECT_EQ(document["peak"]["requested_bytes"], 600 << 20);
  EXPECT_EQ(document["peak"]["allocated_bytes"], 610 << 20);
  EXPECT_EQ(document["peak"]["reserved_bytes"], 640 << 20);
  EXPECT_EQ(document["peak"]["device_bytes"], 740 << 20);
  EXPECT_EQ(document["runs_out"]["module"], "blocks.1.mlp");
  EXPECT_EQ(document["activation_groups"][0]["kind"], "blocks");
  EXPECT_EQ(document["suggestions"].back()["other_training"], true);
}
}  // namespace
}  // namespace cinch::report
