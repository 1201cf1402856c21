#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/report/internal/format.h"
#include "cinch/report/internal/frontier.h"
#include "cinch/report/internal/samples_for_test.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using namespace internal;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(EstimateText, ThatDoesNotFit) {
  EXPECT_EQ(text(sample_estimate()),
            R"(DOES NOT FIT: needs 600 MiB, budget 500 MiB: 100 MiB too much   (80.0 ms, nothing allocated)

Peak: step 2, backward, at blocks.1.mlp, aten::gelu_backward
                                                        bytes        MiB  share
  parameters        10,485,760 numbers             41,943,040       40.0    7 %
  optimizer state                                  83,886,080       80.0   13 %
  gradients                                        20,971,520       20.0    3 %
  inputs                                            1,048,576        1.0   <1 %
  activations                                     419,430,400      400.0   67 %
  temporaries                                      61,865,984       59.0   10 %
  total                                           629,145,600      600.0  100 %

Largest tensors there                                                                           MiB  share
  activations     blocks.*.attention, aten::addmm          32×512×2560 float32       ×2       320.0   53 %
  temporaries     blocks.1.mlp, aten::gelu_backward        15466496 float32                    59.0   10 %
  parameters      blocks.*.mlp.weight                      2048×2560 float32         ×2        40.0    7 %

Try first                                            peak       step  result
  checkpoint 2 of 2 modules                       320 MiB     0.50 s  FITS, same weights
  micro-batch 16                                  510 MiB     0.38 s  no: too much, same weights but for rounding

Next: cinch plan job.toml --budget 500MiB
)");
}

TEST(PlanText, IsTheFrontierAndThePeak) {
  EXPECT_EQ(text(sample_planned()),
            R"(FITS: needs 600 MiB of 640 MiB: 40.0 MiB spare   (31 plans dry-run, optimum proven, 1.90 s)

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
  parameters                                       41,943,040       40.0    7 %
  optimizer state                                  83,886,080       80.0   13 %
  gradients                                        20,971,520       20.0    3 %
  inputs                                            1,048,576        1.0   <1 %
  activations                                     419,430,400      400.0   67 %
  temporaries                                      61,865,984       59.0   10 %
  total                                           629,145,600      600.0  100 %

Result: same weights (bitwise).
Step times: roofline of cpu, calibrated on this machine.
Next: cinch train job.toml --budget 640MiB
)");
}

TEST(InfeasibleText, IsTheFloorAndItsTensors) {
  EXPECT_EQ(
      text(sample_infeasible()),
      R"(DOES NOT FIT: the smallest plan needs 600 MiB, budget 100 MiB: 500 MiB too much   (31 plans dry-run, 1.90 s)

The floor: checkpoint 1 of 2 modules
Peak: step 2, backward, at blocks.1.mlp, aten::gelu_backward
                                                        bytes        MiB  share
  parameters                                       41,943,040       40.0    7 %
  optimizer state                                  83,886,080       80.0   13 %
  gradients                                        20,971,520       20.0    3 %
  inputs                                            1,048,576        1.0   <1 %
  activations                                     419,430,400      400.0   67 %
  temporaries                                      61,865,984       59.0   10 %
  total                                           629,145,600      600.0  100 %

Largest tensors there                                                                           MiB  share
  activations     blocks.*.attention, aten::addmm          32×512×2560 float32       ×2       320.0   53 %
  temporaries     blocks.1.mlp, aten::gelu_backward        15466496 float32                    59.0   10 %
  parameters      blocks.*.mlp.weight                      2048×2560 float32         ×2        40.0    7 %

Parameters, gradients and optimizer state alone need 160 MiB.

Next: cinch plan job.toml --budget 600MiB
)");
}

TEST(InfeasibleText, SaysWhatToGiveUp) {
  Planned planned = sample_infeasible();
  auto& infeasible = std::get<plan::Infeasible>(planned.result);
  planned.allowed = {"checkpoint"};
  plan::WouldGive give{"adam8bit", infeasible.smallest};
  give.candidate.plan.optimizer.state = plan::OptimizerState::k8Bit;
  give.candidate.peak = 540_MiB;
  infeasible.would_give = {give};
  give.technique = "all";
  give.candidate.plan.micro_batch_size = 1;
  give.candidate.peak = 90_MiB;
  give.candidate.step_time = plan::Seconds(0.9);
  infeasible.would_give.push_back(give);
  planned.smaller = {{"context 128", {"model.context_length=128"}, {sample_plan(), 99_MiB, plan::Seconds(0.1)}}};
  EXPECT_THAT(text(planned), EndsWith(R"(
Not allowed
  --allow adam8bit would give 60.0 MiB less: 540 MiB, same time (lossy)
  --allow micro_batch --allow adam8bit would give 510 MiB less: 90.0 MiB, +50 % time, FITS (lossy)

Smaller jobs that fit
  context 128      99.0 MiB with checkpoint 1 of 2 modules

Next: cinch plan job.toml --allow micro_batch --allow adam8bit --budget 100MiB
)"));
  infeasible.would_give.clear();
  EXPECT_THAT(text(planned), EndsWith("Next: cinch plan job.toml --set model.context_length=128 --budget 100MiB\n"));
  planned.smaller.clear();
  planned.capacity = 600_MiB;  // Less 2 % that is too little.
  planned.options = {"--device", "t4", "--set", "train.steps=2"};
  EXPECT_THAT(text(planned), EndsWith("Next: cinch plan job.toml --set train.steps=2 --device all\n"));
}

TEST(FitText, SetsPredictedBesideMeasured) {
  EXPECT_EQ(text(sample_fit()), R"(TRAINED 300 steps: peak 629,145,600 B, predicted = measured, to the byte
  hard cap 700 MiB: 100 MiB spare
  plan: checkpoint 1 of 2 modules (same weights)

Peak, bytes                 predicted         measured       difference
  parameters               41,943,040       41,943,040            equal
  optimizer state          83,886,080       83,886,080            equal
  gradients                20,971,520       20,971,520            equal
  inputs                    1,048,576        1,048,576            equal
  activations             419,430,400      419,430,400            equal
  temporaries              61,865,984       61,865,984            equal
  total                   629,145,600      629,145,600            equal
  predicted: step 2, backward, at blocks.1.mlp, aten::gelu_backward
  measured:  step 2, backward, at blocks.1.mlp, aten::gelu_backward
  reserved for them, what malloc and the arena add included: 610 MiB
  resident memory of the whole process, LibTorch's code included: 1.00 GiB

Loss, held out   5.5000 at step 0 → 2.3750 at step 300
Loss, training   5.3871 at step 1 → 2.3182 at step 300
Step             p50 0.41 s, p99 0.50 s, max 0.61 s; 76.1 samples/s; 2 min 10 s in all

The model writes
  │ template <class T>
  │ void at::empty(int64_t size);

Files in runs/demo
  report.html       this, with charts
  checkpoints/      weights, optimizer, position: one folder a saved step
  plan.toml, job.toml, log.jsonl
)");
}

TEST(Text, OfABudgetNobodyGaveSaysWhereItComesFrom) {
  Estimate estimate = sample_estimate();
  estimate.budget_given = false;
  EXPECT_THAT(text(estimate), HasSubstr("Budget: this machine's memory less 2 %"));
  EXPECT_THAT(text(estimate), HasSubstr("Next: cinch plan job.toml\n"));
}

TEST(Text, RepeatsWhatMadeTheJobQuotedForAShell) {
  Estimate estimate = sample_estimate();
  estimate.options = {"--set", "data.path=[\"a b\"]"};
  EXPECT_THAT(text(estimate), HasSubstr("Next: cinch plan job.toml --set 'data.path=[\"a b\"]' --budget 500MiB\n"));
}

TEST(Text, GivesExactBytesWhereRoundedOnesWouldMislead) {
  EXPECT_EQ(needs(600_MiB, 500_MiB), "needs 600 MiB, budget 500 MiB: 100 MiB too much");
  EXPECT_EQ(needs(600_MiB, 600_MiB), "needs 600 MiB of 600 MiB: 0 B spare");
  EXPECT_EQ(needs(Bytes((600 << 20) + 1), 600_MiB), "needs 629,145,601 B, budget 629,145,600 B: 1 B too much");
}

TEST(Text, SaysHowFarPredictionAndMeasurementAreApart) {
  FitSummary fit = sample_fit();
  fit.measured.requested += 8_B;
  fit.measured.categories[Category::kTemporary] += 8_B;
  fit.divergence = "predicted 4,096 B in blocks.0 aten::clone; recorded nothing.";
  const std::string report = text(fit);
  EXPECT_THAT(
      report,
      StartsWith(
          "TRAINED 300 steps: peak 629,145,608 B, predicted 629,145,600 B, measured 629,145,608 B: 8 B apart\n"));
  EXPECT_THAT(report, HasSubstr("+8\n"));
  EXPECT_THAT(report, HasSubstr("first difference: predicted 4,096 B in blocks.0 aten::clone; recorded nothing.\n"));
}

TEST(Text, OfAnInterruptedTrainingSaysHowToGoOn) {
  FitSummary fit = sample_fit();
  fit.interrupted = true;
  EXPECT_THAT(text(fit), StartsWith("INTERRUPTED after step 300, saved: "));
  EXPECT_THAT(text(fit), HasSubstr("Next: cinch train runs/demo/job.toml --resume\n"));
  fit.run_dir.clear();
  EXPECT_THAT(text(fit), HasSubstr("not saved (the job names no run_dir)"));
  EXPECT_THAT(text(fit), Not(HasSubstr("Next:")));
}

TEST(Text, OfATrainingThatIsDoneComparesNothing) {
  FitSummary fit;
  fit.resumed_at = 300;
  fit.already_done = 200;
  fit.run_dir = "runs/demo";
  EXPECT_EQ(text(fit), R"(ALREADY DONE: the training is at step 300, train.steps is 200
  Nothing was trained. The weights are in runs/demo/checkpoints/step-300.
To go on, set train.steps above 300.
Next: cinch train runs/demo/job.toml --resume --set train.steps=600
)");
}

TEST(Text, OfAResumedTrainingCountsItsOwnSteps) {
  FitSummary fit = sample_fit();
  fit.resumed_at = 100;
  EXPECT_THAT(text(fit), StartsWith("TRAINED 200 steps, 101 to 300: "));
}

TEST(Text, HasColoursOnlyWhenAsked) {
  for (const auto& report : {text(sample_estimate()), text(sample_planned()), text(sample_fit())})
    EXPECT_THAT(report, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text(sample_estimate(), true), StartsWith("\x1b[1;31mDOES NOT FIT"));
  EXPECT_THAT(text(sample_planned(), true), StartsWith("\x1b[1;32mFITS"));
}

TEST(Text, LetsNoModelWriteToTheTerminalsControls) {
  FitSummary fit = sample_fit();
  fit.sample = "a\x1b[2Jb\xff\n\tc\xc2\x9b";
  EXPECT_THAT(text(fit), HasSubstr("  │ a\uFFFD[2Jb\uFFFD\n  │  c\uFFFD\n"));
}

TEST(Printable, KeepsValidTextOfEveryLength) {
  const std::string good = "a é ▶ 𝄞";
  EXPECT_EQ(printable(good), good);
  EXPECT_EQ(printable("\xc0\x80"), "\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD") << "surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD") << "past the last code point";
  EXPECT_EQ(printable("\xe2\x96"), "\uFFFD\uFFFD") << "cut off";
}

TEST(OneLine, CutsInTheMiddleByCodePoints) {
  EXPECT_EQ(one_line("abcdef", 6), "abcdef");
  EXPECT_EQ(one_line("abcdefg", 5), "ab…fg");
  EXPECT_EQ(one_line("ééééééé", 5), "éé…éé");
  EXPECT_EQ(one_line("a\nb"), "a b");
}

TEST(Groups, JoinLayersButNotDifferentShapes) {
  const auto tensor = [](const char* name, std::int64_t size) {
    return plan::PeakTensor{Bytes(4 * size), Category::kParameter, name, "", "", {size}, DType::kFloat32};
  };
  const auto rows =
      groups({tensor("blocks.0.w", 8), tensor("blocks.1.w", 8), tensor("blocks.2.w", 4), tensor("head", 8)}, 10);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].name, "blocks.*.w");
  EXPECT_EQ(rows[0].count, 2u);
  EXPECT_EQ(rows[0].bytes, 64_B);
  EXPECT_EQ(rows[1].name, "head");
  EXPECT_EQ(rows[2].name, "blocks.2.w") << "alone, it keeps its number";
}

TEST(Changes, AreSaidTechniqueByTechnique) {
  const plan::Plan plain, one = sample_plan();
  plan::Plan other = one, both = one, chunked = one;
  other.activations = {{"blocks.1", plan::ActivationPolicy::kCheckpoint}};
  both.activations["blocks.1"] = plan::ActivationPolicy::kCheckpoint;
  chunked.loss_chunk_size = 64;
  chunked.optimizer.in_backward = true;
  EXPECT_EQ(changes(one, one, 2), "nothing");
  EXPECT_EQ(changes(plain, one, 2), "checkpoint 1 of 2 modules");
  EXPECT_EQ(changes(one, both, 2), "checkpoint 2 of 2 modules");
  EXPECT_EQ(changes(one, other, 2), "checkpoint 1 of 2 modules (others)");
  EXPECT_EQ(changes(both, chunked, 2), "checkpoint 1 of 2 modules, loss in chunks of 64, optimizer in backward");
  EXPECT_EQ(changes(chunked, plain, 2), "no checkpoint, no chunked loss, no step in backward");
}

TEST(Exchange, IsASentence) {
  const plan::Candidate plain{{}, 800_MiB, plan::Seconds(1)}, half{sample_plan(), 400_MiB, plan::Seconds(1.005)};
  EXPECT_EQ(exchange(plain, half, 2), "for 0.5 % more time, 50 % less memory: checkpoint 1 of 2 modules");
  EXPECT_EQ(exchange(half, plain, 2), "for 100 % more memory, 0.5 % less time: no checkpoint");
  EXPECT_EQ(relative(2, 2), "0 %");
  EXPECT_EQ(relative(2, 1), "-50 %");
  EXPECT_EQ(relative(0, 1), "?");
}

TEST(FrontierRows, ComparePlainTrainingWithNothingWhereAnotherBeatsIt) {
  Planned planned = sample_planned();
  plan::Solution solution = std::get<plan::Solution>(planned.result);
  solution.unconstrained.step_time = plan::Seconds(0.47);
  solution.frontier.pop_back();
  const auto rows = frontier_rows(planned, solution, 10);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(rows[0].best);
  EXPECT_TRUE(rows[1].beaten);
  EXPECT_EQ(rows[1].memory, "");
  EXPECT_EQ(rows[2].memory, "-47 %") << "against the best";
}

TEST(FrontierRows, AlwaysShowTheBestThePlainAndTheSmallest) {
  Planned planned = sample_planned();
  plan::Solution solution = std::get<plan::Solution>(planned.result);
  for (int i = 1; i <= 100; ++i) {
    plan::Plan plan;
    plan.micro_batch_size = 100 + i;
    solution.frontier.push_back({plan, Bytes(1000 - i), plan::Seconds(1 + i)});
  }
  const auto rows = frontier_rows(planned, solution, 10);
  EXPECT_LE(rows.size(), 13u);
  EXPECT_EQ(rows.back().candidate.peak, Bytes(900));
  EXPECT_EQ(rows.front().versus, "-");
  const auto has = [&](const plan::Plan& plan) {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row.candidate.plan == plan; });
  };
  EXPECT_TRUE(has(solution.best.plan));
  EXPECT_TRUE(has(solution.unconstrained.plan));
}

TEST(Figures, AreWrittenForPeople) {
  EXPECT_EQ(seconds(0.0026), "2.60 ms");
  EXPECT_EQ(seconds(0.0123), "12.3 ms");
  EXPECT_EQ(seconds(0.41), "0.41 s");
  EXPECT_EQ(seconds(192), "3 min 12 s");
  EXPECT_EQ(seconds(7380), "2 h 03 min");
  EXPECT_EQ(in_unit(Bytes(1300000000), unit_for(Bytes(1300000000))), "1,239.8");
  EXPECT_EQ(share(1_B, 1000_B), "<1 %");
  EXPECT_EQ(share(0_B, 1000_B), "");
  EXPECT_EQ(shell_word("a'b"), "'a'\\''b'");
}
}  // namespace
}  // namespace cinch::report
