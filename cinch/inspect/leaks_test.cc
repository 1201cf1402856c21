#include "cinch/inspect/leaks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <random>
#include <string>

#include "cinch/inspect/internal/sites.h"
#include "cinch/inspect/internal/trainer_for_test.h"
#include "cinch/trace/builder.h"

namespace cinch::inspect {
namespace {

using internal::Trainer;
using internal::TrainerOptions;
using testing::IsEmpty;
using testing::SizeIs;

/// How the periods are known.
enum class By { kOptimizer, kSteps, kPattern };
constexpr std::array<By, 3> kAll = {By::kOptimizer, By::kSteps, By::kPattern};
std::string name_of(By by) { return by == By::kOptimizer ? "optimizer" : by == By::kSteps ? "steps" : "pattern"; }

Leaks leaks_of(TrainerOptions options, By by, std::optional<Bytes> capacity = {}) {
  options.step_numbers = by == By::kSteps;
  const Trainer trainer(options);
  LeakOptions how{.capacity = capacity};
  if (by == By::kOptimizer) how.boundaries = trainer.optimizer_steps();
  return find_leaks(trainer.play(), how);
}

std::string describe(const TrainerOptions& o, By by) {
  return "steps " + std::to_string(o.steps) + ", seed " + std::to_string(o.seed) + ", layers " +
         std::to_string(o.layers) + (o.one_stack ? ", one stack" : "") + (o.varying_lengths ? ", varying" : "") +
         ", micro-batches " + std::to_string(o.micro_batches) + ", by " + name_of(by);
}

/// Surroundings that must not matter.
std::vector<TrainerOptions> surroundings() {
  std::vector<TrainerOptions> all;
  for (const std::size_t steps : {6, 7, 12, 33, 64, 200}) {
    for (const bool varying : {false, true}) {
      for (const bool one_stack : {false, true}) {
        TrainerOptions options;
        options.steps = steps;
        options.varying_lengths = varying;
        options.one_stack = one_stack;
        options.seed = static_cast<std::uint32_t>(steps * 4 + (varying ? 2 : 0) + (one_stack ? 1 : 0));
        options.layers = 2 + steps % 5;
        options.evaluate_every = steps > 20 ? 10 : 0;
        options.short_last_batch = true;
        options.ping_pong = true;
        all.push_back(options);
      }
    }
  }
  return all;
}

TEST(Leaks, AHealthyRunHasNone) {
  for (const TrainerOptions& options : surroundings()) {
    for (const By by : kAll) {
      SCOPED_TRACE(describe(options, by));
      const Leaks leaks = leaks_of(options, by);
      EXPECT_NE(leaks.source, PeriodSource::kNone);
      EXPECT_THAT(leaks.found, IsEmpty());
      EXPECT_EQ(leaks.bytes_per_step, Bytes(0));
    }
  }
}

TEST(Leaks, AHealthyRunHasNoneForAnySeed) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    TrainerOptions options;
    options.seed = seed;
    options.steps = 5 + seed % 40;
    options.varying_lengths = true;
    options.short_last_batch = seed % 2 == 0;
    options.evaluate_every = seed % 3 == 0 ? 10 : 0;
    options.micro_batches = 1 + seed % 4;
    for (const By by : kAll) {
      SCOPED_TRACE(describe(options, by));
      EXPECT_THAT(leaks_of(options, by).found, IsEmpty());
    }
  }
}

TEST(Leaks, GradientAccumulationIsNone) {
  for (const std::size_t micro_batches : {2, 4, 8}) {
    TrainerOptions options;
    options.micro_batches = micro_batches;
    options.steps = 20;
    for (const By by : kAll) EXPECT_THAT(leaks_of(options, by).found, IsEmpty()) << describe(options, by);
  }
}

TEST(Leaks, WhatIsKeptForAFixedNumberOfStepsIsNone) {
  for (const std::size_t queue : {1, 2, 3, 5, 16, 50}) {
    for (const std::size_t steps : {2 * queue + 8, 4 * queue + 8, 10 * queue + 8}) {
      TrainerOptions options;
      options.queue = queue;
      options.steps = steps;
      for (const By by : kAll)
        EXPECT_THAT(leaks_of(options, by).found, IsEmpty()) << queue << " " << describe(options, by);
    }
  }
}

TEST(Leaks, ACacheThatStopsGrowingIsNone) {
  for (const std::size_t until : {3, 5, 10}) {
    TrainerOptions options;
    options.growing_until = until;
    options.steps = 2 * until + 6;
    for (const By by : kAll)
      EXPECT_THAT(leaks_of(options, by).found, IsEmpty()) << until << " " << describe(options, by);
  }
}

TEST(Leaks, WhatTheGarbageCollectorFindsIsNone) {
  for (const std::size_t every : {3, 7, 11}) {
    TrainerOptions options;
    options.collected_every = every;
    options.steps = 6 * every + every / 2;  // It ends between two collections.
    for (const By by : kAll)
      EXPECT_THAT(leaks_of(options, by).found, IsEmpty()) << every << " " << describe(options, by);
  }
}

TEST(Leaks, TensorsAppendedToAListAreFound) {
  for (TrainerOptions options : surroundings()) {
    options.list = true;
    for (const By by : kAll) {
      SCOPED_TRACE(describe(options, by));
      const Leaks leaks = leaks_of(options, by);
      ASSERT_THAT(leaks.found, SizeIs(1));
      EXPECT_EQ(leaks.found[0].kind, Leak::Kind::kKept);
      EXPECT_EQ(leaks.found[0].bytes_per_step, Bytes(Trainer::kListed));
      EXPECT_EQ(leaks.found[0].allocations_per_step, 1);
      EXPECT_EQ(leaks.bytes_per_step, Bytes(Trainer::kListed));
    }
  }
}

TEST(Leaks, ALossKeptWithItsGraphIsFoundWithAllItsTensors) {
  for (TrainerOptions options : surroundings()) {
    if (options.varying_lengths) continue;  // Every step leaks another number of bytes.
    options.graph = true;
    options.short_last_batch = options.steps > 6;
    for (const By by : kAll) {
      SCOPED_TRACE(describe(options, by));
      const Leaks leaks = leaks_of(options, by);
      EXPECT_THAT(leaks.found, SizeIs(options.one_stack ? 3 : 2 * options.layers + 1));
      const Trainer same(options);
      EXPECT_EQ(leaks.bytes_per_step, same.graph_bytes());
    }
  }
}

TEST(Leaks, AGrowingCacheCountsByItsGrowth) {
  for (TrainerOptions options : surroundings()) {
    options.cache = true;
    for (const By by : kAll) {
      SCOPED_TRACE(describe(options, by));
      const Leaks leaks = leaks_of(options, by);
      ASSERT_THAT(leaks.found, SizeIs(1));
      EXPECT_EQ(leaks.found[0].kind, Leak::Kind::kGrowing);
      EXPECT_EQ(leaks.found[0].bytes_per_step, Bytes(Trainer::kCacheStep));
    }
  }
}

TEST(Leaks, AHookThatHoldsItsOutputIsFound) {
  for (TrainerOptions options : surroundings()) {
    if (options.varying_lengths) continue;
    options.hook = true;
    for (const By by : kAll) {
      SCOPED_TRACE(describe(options, by));
      const Leaks leaks = leaks_of(options, by);
      ASSERT_THAT(leaks.found, SizeIs(1));
      EXPECT_EQ(leaks.found[0].bytes_per_step, Bytes(Trainer::kActivation));
    }
  }
}

TEST(Leaks, OfVaryingBatchesTheTypicalOneIsGiven) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    TrainerOptions options;
    options.seed = seed;
    options.steps = 60;
    options.varying_lengths = options.hook = true;
    const Leaks leaks = leaks_of(options, By::kOptimizer);
    ASSERT_THAT(leaks.found, SizeIs(1)) << seed;
    EXPECT_NEAR(static_cast<double>(leaks.bytes_per_step.count()), 36.0 / 64 * Trainer::kActivation,
                0.2 * Trainer::kActivation)
        << seed;
  }
}

TEST(Leaks, SeveralLeaksAreToldApartAndSummed) {
  TrainerOptions options;
  options.list = options.cache = options.hook = true;
  options.evaluate_every = 10;
  for (const By by : kAll) {
    const Leaks leaks = leaks_of(options, by);
    ASSERT_THAT(leaks.found, SizeIs(3)) << name_of(by);
    EXPECT_EQ(leaks.found[0].bytes_per_step, Bytes(Trainer::kActivation));
    EXPECT_EQ(leaks.found[1].bytes_per_step, Bytes(Trainer::kCacheStep));
    EXPECT_EQ(leaks.found[2].bytes_per_step, Bytes(Trainer::kListed));
    EXPECT_EQ(leaks.bytes_per_step, Bytes(Trainer::kActivation + Trainer::kCacheStep + Trainer::kListed));
  }
}

TEST(Leaks, ALeakOfTheEvaluationAloneIsGivenPerStep) {
  TrainerOptions options;
  options.evaluate_every = 10;
  options.evaluation_list = true;
  for (const std::size_t steps : {41, 95, 200}) {
    options.steps = steps;
    for (const By by : kAll) {
      SCOPED_TRACE(describe(options, by));
      const Leaks leaks = leaks_of(options, by);
      ASSERT_THAT(leaks.found, SizeIs(1));
      EXPECT_EQ(leaks.found[0].bytes_per_step, Bytes(Trainer::kResult * 6 / 10));
      EXPECT_DOUBLE_EQ(leaks.found[0].allocations_per_step, 0.6);
    }
  }
}

TEST(Leaks, ALeakMayBeginLate) {
  TrainerOptions options;
  options.list = options.cache = true;
  options.leak_from = 25;
  for (const By by : kAll) {
    const Leaks leaks = leaks_of(options, by);
    ASSERT_THAT(leaks.found, SizeIs(2)) << name_of(by);
    EXPECT_EQ(leaks.bytes_per_step, Bytes(Trainer::kListed + Trainer::kCacheStep));
  }
}

TEST(Leaks, ThreeStepsAreEnough) {
  TrainerOptions options;
  options.steps = 3;
  options.warm_up = false;
  for (const By by : {By::kOptimizer, By::kSteps}) EXPECT_THAT(leaks_of(options, by).found, IsEmpty()) << name_of(by);
  options.list = true;
  for (const By by : {By::kOptimizer, By::kSteps}) {
    const Leaks leaks = leaks_of(options, by);
    ASSERT_THAT(leaks.found, SizeIs(1)) << name_of(by);
    EXPECT_EQ(leaks.bytes_per_step, Bytes(Trainer::kListed));
  }
  options.steps = 2;
  EXPECT_EQ(leaks_of(options, By::kPattern).source, PeriodSource::kNone);
}

TEST(Leaks, WithoutStacksTheBytesAreRightAllTheSame) {
  TrainerOptions options;
  options.stacks = false;
  options.evaluate_every = 10;
  EXPECT_THAT(leaks_of(options, By::kOptimizer).found, IsEmpty());
  options.list = true;
  const Leaks leaks = leaks_of(options, By::kOptimizer);
  ASSERT_THAT(leaks.found, SizeIs(1));
  EXPECT_EQ(leaks.bytes_per_step, Bytes(Trainer::kListed));
  EXPECT_EQ(leaks.found[0].path, "(no stack recorded)");
}

TEST(Leaks, SaysWhenTheCardIsFull) {
  TrainerOptions options;
  options.hook = true;
  const Leaks before = leaks_of(options, By::kOptimizer);
  const Bytes room = before.peak_of_last + Bytes(10 * Trainer::kActivation);
  EXPECT_EQ(leaks_of(options, By::kOptimizer, room).steps_until_full, 11u);  // The tenth fits, to the byte.
  EXPECT_EQ(leaks_of(options, By::kOptimizer, room - Bytes(1)).steps_until_full, 10u);
  EXPECT_EQ(leaks_of(options, By::kOptimizer, Bytes(1)).steps_until_full, 0u);
  options.hook = false;
  EXPECT_FALSE(leaks_of(options, By::kOptimizer, room).steps_until_full.has_value());
}

TEST(Leaks, OfATraceOfOurOwnModuleAndOpAreNamed) {
  trace::TraceBuilder builder;
  for (std::uint32_t step = 1; step <= 6; ++step) {
    builder.phase(trace::Phase::kForward, step).module("blocks.3").op("aten::addmm");
    builder.alloc(Bytes(4096));  // Never freed.
    builder.free(builder.alloc(Bytes(1 << 20)));
    builder.phase(trace::Phase::kBackward, step);
    builder.free(builder.alloc(Bytes(1 << 20)));
  }
  const Leaks leaks = find_leaks(builder.build(), Bytes(1 << 30));
  EXPECT_EQ(leaks.source, PeriodSource::kSteps);
  ASSERT_THAT(leaks.found, SizeIs(1));
  EXPECT_EQ(leaks.found[0].path, "blocks.3 aten::addmm");
  EXPECT_EQ(leaks.found[0].phase, trace::Phase::kForward);
  EXPECT_EQ(leaks.found[0].bytes_per_step, Bytes(4096));
  EXPECT_EQ(leaks.found[0].held, Bytes(5 * 4096));  // The first step may be warming up.
}

TEST(Leaks, AProgramThatEndsLetsGoOfEverything) {
  trace::TraceBuilder builder;
  std::vector<trace::AllocationId> kept;
  for (std::uint32_t step = 1; step <= 8; ++step) {
    builder.phase(trace::Phase::kForward, step).module("head");
    kept.push_back(builder.alloc(Bytes(4096)));
  }
  for (const trace::AllocationId id : kept) builder.free(id);
  const Leaks leaks = find_leaks(builder.build());
  ASSERT_THAT(leaks.found, SizeIs(1));
  EXPECT_EQ(leaks.bytes_per_step, Bytes(4096));
}

/// A program of random size and habits, with leaks or without.
TrainerOptions random_program(std::mt19937& random) {
  const auto any = [&](std::size_t bound) { return bound == 0 ? 0 : random() % bound; };
  TrainerOptions program;
  program.seed = random();
  program.steps = 12 + any(any(3) == 0 ? 200 : 40);
  program.layers = 2 + any(5);
  program.micro_batches = any(4) > 0 ? 1 : 1 + any(6);
  program.varying_lengths = any(2) > 0;
  program.one_stack = any(2) > 0;
  program.evaluate_every = any(2) > 0 ? 0 : 3 + any(10);
  program.evaluation_batches = 1 + any(8);
  program.short_last_batch = any(2) > 0;
  program.warm_up = any(3) > 0;
  program.ping_pong = any(2) > 0;
  program.queue = any(3) > 0 ? 0 : 1 + any(program.steps / 3);
  program.growing_until = any(4) > 0 ? 0 : 1 + any(program.steps / 2);
  program.collected_every = any(4) > 0 ? 0 : 2 + any(program.steps / 4);
  program.list = any(2) > 0;
  program.hook = program.list && !program.varying_lengths && any(2) > 0;
  program.cache = program.list && program.growing_until == 0 && any(3) == 0;
  return program;
}

TEST(Leaks, OfRandomProgramsAreTheRightOnes) {
  const char* soak = std::getenv("CINCH_SOAK");
  std::mt19937 random(20240229);
  for (int round = soak != nullptr ? std::atoi(soak) : 150; round > 0; --round) {
    const TrainerOptions program = random_program(random);
    for (const By by : {By::kOptimizer, By::kSteps}) {
      SCOPED_TRACE(describe(program, by) + ", queue " + std::to_string(program.queue) + ", collected every " +
                   std::to_string(program.collected_every));
      const Leaks leaks = leaks_of(program, by);
      const auto batches = static_cast<std::int64_t>(program.micro_batches);
      const std::int64_t expected = (program.list ? Trainer::kListed * batches : 0) +
                                    (program.hook ? Trainer::kActivation * batches : 0) +
                                    (program.cache ? Trainer::kCacheStep : 0);
      EXPECT_EQ(leaks.bytes_per_step, Bytes(expected));
      EXPECT_EQ(leaks.found.size(), std::size_t{program.list} + program.hook + program.cache);
    }
  }
}

/// tests/make_leak_snapshots.py makes them.
Leaks leaks_of_snapshot(const std::string& name, std::optional<Bytes> capacity = {}) {
  const std::string file = std::string(CINCH_SOURCE_DIR) + "/tests/data/snapshots/leak_" + name + ".json.gz";
  const auto snapshot = snapshot::Snapshot::open(file);
  const auto& device = snapshot.devices().front();
  return find_leaks(snapshot, device, categorize(snapshot, device), capacity);
}

TEST(Leaks, InSnapshotsAreFoundByTheirPaths) {
  const Leaks none = leaks_of_snapshot("none");
  EXPECT_EQ(none.source, PeriodSource::kOptimizer);
  EXPECT_EQ(none.periods, 12u);
  EXPECT_THAT(none.found, IsEmpty());

  const Leaks list = leaks_of_snapshot("list");
  ASSERT_THAT(list.found, SizeIs(1));
  EXPECT_EQ(list.bytes_per_step, Bytes(40 << 10));
  EXPECT_THAT(list.found[0].path, testing::HasSubstr("user/metrics.py:14 append"));

  const Leaks cache = leaks_of_snapshot("cache");
  ASSERT_THAT(cache.found, SizeIs(1));
  EXPECT_EQ(cache.found[0].kind, Leak::Kind::kGrowing);
  EXPECT_EQ(cache.bytes_per_step, Bytes(256 << 10));
  EXPECT_THAT(cache.found[0].path, testing::HasSubstr("user/cache.py:9 grow"));

  const Leaks hook = leaks_of_snapshot("hook");
  ASSERT_THAT(hook.found, SizeIs(1));
  EXPECT_EQ(hook.bytes_per_step, Bytes(1 << 20));
  EXPECT_THAT(hook.found[0].path, testing::HasSubstr("user/hooks.py:7 keep_output"));
  EXPECT_FALSE(hook.graph_kept);

  const Leaks graph = leaks_of_snapshot("graph", Bytes(1 << 30));
  EXPECT_THAT(graph.found, SizeIs(7));  // Two tensors of each of three layers, and the loss.
  EXPECT_EQ(graph.bytes_per_step, Bytes((6 << 20) + 4));
  EXPECT_TRUE(graph.graph_kept);
  const auto room = (Bytes(1 << 30) - graph.peak_of_last).count();
  EXPECT_EQ(graph.steps_until_full, static_cast<std::uint64_t>(room / ((6 << 20) + 4) + 1));
}

constexpr std::array<const char*, 3> kRecorded = {"step", "forward", "bf16"};
snapshot::Snapshot recorded(const std::string& which) {
  const std::string middle = which == "bf16" ? "bf16-autocast-forward" : "fp32-" + which;
  return snapshot::Snapshot::open(std::string(CINCH_SOURCE_DIR) + "/tests/data/snapshots/gpt2.7b-b4-s128-" + middle +
                                  ".pickle.zst");
}

TEST(Leaks, OneRecordedStepIsTooShortToTell) {
  for (const char* which : kRecorded) {
    const auto snapshot = recorded(which);
    const auto& device = snapshot.devices().front();
    const Leaks leaks = find_leaks(snapshot, device, categorize(snapshot, device));
    EXPECT_EQ(leaks.source, PeriodSource::kNone) << which;
    EXPECT_THAT(leaks.found, IsEmpty()) << which;
  }
}

/// Passes events on without their stacks.
class Blind final : public trace::Sink {
 public:
  explicit Blind(trace::Sink& next) : next_(&next) {}
  void on_event(const trace::Event& event) override {
    trace::Event blind = event;
    blind.stack = {};
    next_->on_event(blind);
  }

 private:
  trace::Sink* next_;
};

TEST(Leaks, LayersOfOneStepAreNotTakenForSteps) {
  for (const char* which : kRecorded) {
    for (const bool stacks : {true, false}) {
      const auto snapshot = recorded(which);
      const auto play = [&](trace::Sink& sink) {
        Blind blind(sink);
        snapshot.play(snapshot.devices().front(), stacks ? sink : blind);
      };
      EXPECT_THAT(find_leaks(play).found, IsEmpty()) << which << (stacks ? "" : ", without stacks");
    }
  }
}

TEST(Leaks, MomentsOfASiteStayFew) {
  internal::GrowthMeter meter({.events = {}, .by_step = true});
  for (std::uint32_t step = 1; step <= 100'000; ++step) {
    meter.on_event({.action = trace::Action::kAlloc,
                    .step = step,
                    .allocation = trace::AllocationId{step - 1},
                    .stack = trace::StackId{1},
                    .bytes = Bytes(512)});
  }
  meter.finish();
  std::size_t sites = 0;
  meter.each([&](const internal::Site&, const internal::Growth& growth) {
    ++sites;
    EXPECT_LT(growth.moments.size(), internal::GrowthMeter::kMoments);
    EXPECT_EQ(growth.aged_at(99'999), 99'999u);
    EXPECT_NEAR(static_cast<double>(growth.aged_at(50'000)), 50'000, 2'000);
  });
  EXPECT_EQ(sites, 1u);
}
}  // namespace
}  // namespace cinch::inspect
