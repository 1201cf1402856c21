#include "cinch/plan/plan.h"

#include <array>
#include <random>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"
#include "cinch/core/text.h"

namespace cinch::plan {
namespace {
using testing::HasSubstr;

Plan example() {
  return {.micro_batch_size = 4,
          .activations = {{"layers.0", ActivationPolicy::kCheckpoint}, {"layers.1", ActivationPolicy::kKeep}}};
}

ConfigError error_of(std::string_view text) {
  try {
    parse_plan(text, "plan.toml");
  } catch (const ConfigError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << text;
  return ConfigError("", 0, "", "");
}

TEST(Plan, PrintsCanonically) {
  EXPECT_EQ(
      to_toml(example()),
      "version = 1\nmicro_batch_size = 4\n\n[activations]\n\"layers.0\" = \"checkpoint\"\n\"layers.1\" = \"keep\"\n");
  EXPECT_EQ(to_toml(Plan{}), "version = 1\nmicro_batch_size = 0\n");
}

TEST(Plan, WhatIsPrintedReadsBackTheSame) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    Plan plan{.micro_batch_size = static_cast<std::int64_t>(random() % 100), .activations = {}};
    for (unsigned n = random() % 5; n > 0; --n) {
      std::string path;
      for (int letter = 0; letter < 5; ++letter) path += "ab.0 \"\\\t'#="[random() % 11];
      plan.activations[path] = static_cast<ActivationPolicy>(random() % 5);
    }
    if (random() % 2 == 0) plan.loss_chunk_size = static_cast<std::int64_t>(random() % 5000);
    plan.optimizer = {.state = static_cast<OptimizerState>(random() % 2),
                      .place = static_cast<StatePlace>(random() % 3),
                      .in_backward = random() % 2 == 0};
    plan.autocast = static_cast<Autocast>(random() % 3);
    if (random() % 2 == 0) plan.alloc_conf = "max_split_size_mb: " + std::to_string(21 + random() % 100);
    if (!conflicts(plan).empty()) continue;
    EXPECT_EQ(parse_plan(to_toml(plan), "printed"), plan) << to_toml(plan);
  }
}

TEST(Plan, ReadsBareTomlInAnyOrder) {
  EXPECT_EQ(parse_plan(
                "micro_batch_size = 4\nversion = 1\n[activations]\n'layers.1' = 'keep'\n'layers.0' = 'checkpoint'", ""),
            example());
  EXPECT_EQ(parse_plan("version = 1", ""), Plan{});
}

TEST(Plan, RefusalsNameLineKeyAndTheNearestName) {
  EXPECT_EQ(error_of("version = 1\nmicro_batch = \n").line(), 2);
  const ConfigError unknown = error_of("version = 1\nmicro_batchsize = 4\n");
  EXPECT_EQ(unknown.line(), 2);
  EXPECT_EQ(unknown.key(), "micro_batchsize");
  EXPECT_THAT(unknown.hint(), HasSubstr("micro_batch_size"));
  const ConfigError policy = error_of("version = 1\n[activations]\n\"a\" = \"chekpoint\"\n");
  EXPECT_EQ(policy.line(), 3);
  EXPECT_THAT(policy.hint(), HasSubstr("checkpoint"));
  EXPECT_THAT(error_of("version = 1\n[activations]\nlayers.0 = \"keep\"\n").hint(), HasSubstr("in quotes"));
  EXPECT_THAT(error_of("version = 1\nactivations = 3\n").what(), HasSubstr("section"));
  EXPECT_THAT(error_of("version = 1\nmicro_batch_size = -1\n").what(), HasSubstr("below 0"));
  EXPECT_THAT(error_of("version = 1\nmicro_batch_size = 1.5\n").what(), HasSubstr("whole number"));
  EXPECT_THAT(error_of("version = 1\nloss_chunk_size = -1\n").what(), HasSubstr("below 0"));
  const ConfigError state = error_of("version = 1\n[optimizer]\nplace = 'dsk'\n");
  EXPECT_EQ(state.key(), "optimizer.place");
  EXPECT_THAT(state.hint(), HasSubstr("disk"));
  EXPECT_THAT(error_of("version = 1\n[optimizer]\nin_backwards = true\n").hint(), HasSubstr("in_backward"));
  EXPECT_THAT(error_of("version = 1\n[optimizer]\nin_backward = 1\n").what(), HasSubstr("true or false"));
  const ConfigError autocast = error_of("version = 1\nautocast = 'bf61'\n");
  EXPECT_EQ(autocast.line(), 2);
  EXPECT_THAT(autocast.hint(), HasSubstr("bf16"));
  const ConfigError settings = error_of("version = 1\n\nalloc_conf = 'expandable_segment:True'\n");
  EXPECT_EQ(settings.line(), 3);
  EXPECT_EQ(settings.key(), "alloc_conf");
  EXPECT_THAT(settings.hint(), HasSubstr("expandable_segments"));
  EXPECT_THAT(error_of("version = 1\nalloc_conf = 1\n").what(), HasSubstr("wants a text"));
  EXPECT_THAT(error_of("version = 2\n").what(), HasSubstr("version 1"));
  EXPECT_THAT(error_of("micro_batch_size = 1\n").what(), HasSubstr("version is missing"));
}

TEST(Plan, AMissingFileIsAConfigError) { EXPECT_THROW(load_plan("/nowhere/plan.toml"), ConfigError); }

TEST(Plan, Describes) {
  EXPECT_EQ(describe({}, 6), "nothing");
  EXPECT_EQ(describe(example(), 6), "micro-batch 4, checkpoint 1 of 6 modules");
  EXPECT_EQ(describe({.micro_batch_size = 0, .activations = {{"a", ActivationPolicy::kCheckpoint}}}, 1),
            "checkpoint 1 of 1 module");
  EXPECT_EQ(
      describe({.activations = {{"a", ActivationPolicy::kSelective}, {"b", ActivationPolicy::kOffload}},
                .loss_chunk_size = 512,
                .optimizer = {.place = StatePlace::kHost, .in_backward = true}},
               4),
      "selective checkpoint 1 of 4 modules, offload 1 of 4 modules, loss in chunks of 512, optimizer in backward, "
      "optimizer state to host");
  EXPECT_EQ(describe({.activations = {{"a", ActivationPolicy::kCheckpointOffload}},
                      .autocast = Autocast::kBf16,
                      .alloc_conf = "expandable_segments:True"},
                     4),
            "offloaded checkpoint 1 of 4 modules, bf16 autocast, allocator set to expandable_segments:True");
}

TEST(Plan, EquivalenceIsThatOfTheWeakestTechnique) {
  EXPECT_EQ(equivalence({}), Equivalence::kBitwise);
  EXPECT_EQ(equivalence({.micro_batch_size = 0, .activations = {{"a", ActivationPolicy::kCheckpoint}}}),
            Equivalence::kBitwise);
  EXPECT_EQ(equivalence(example()), Equivalence::kReassociated);
  EXPECT_EQ(equivalence({.optimizer = {.state = OptimizerState::k8Bit}}), Equivalence::kLossy);
  for (const TechniqueInfo& technique : techniques()) EXPECT_FALSE(technique.summary.empty());
}
/// A plan that uses that technique alone.
Plan with(std::string_view key) {
  if (key == "micro_batch") return {.micro_batch_size = 2};
  if (key == "chunked_loss") return {.loss_chunk_size = 64};
  if (key == "step_in_backward") return {.optimizer = {.in_backward = true}};
  if (key == "adam8bit") return {.optimizer = {.state = OptimizerState::k8Bit}};
  if (key == "state_on_host") return {.optimizer = {.place = StatePlace::kHost}};
  if (key == "state_on_disk") return {.optimizer = {.place = StatePlace::kDisk}};
  if (key == "checkpoint") return {.activations = {{"a", ActivationPolicy::kCheckpoint}}};
  if (key == "selective") return {.activations = {{"a", ActivationPolicy::kSelective}}};
  if (key == "checkpoint_offload") return {.activations = {{"a", ActivationPolicy::kCheckpointOffload}}};
  if (key == "bf16") return {.autocast = Autocast::kBf16};
  if (key == "fp16") return {.autocast = Autocast::kFp16};
  if (key == "alloc_conf") return {.alloc_conf = "expandable_segments:True"};
  if (key == "offload") return {.activations = {{"a", ActivationPolicy::kOffload}}};
  throw std::logic_error("a technique without a case");
}

TEST(Plan, TheGuideHasARowForEachTechnique) {
  const std::string guide = read_file(CINCH_SOURCE_DIR "/docs/plans.md", 1 << 20);
  for (const TechniqueInfo& technique : techniques()) {
    const auto row = guide.find("| `" + std::string(technique.key) + "` |");
    ASSERT_NE(row, std::string::npos) << technique.key;
    EXPECT_THAT(guide.substr(row, guide.find('\n', row) - row), HasSubstr(std::string(name_of(technique.equivalence))));
  }
}

TEST(Plan, SaysWhatAJobExcludes) {
  const auto faults = [](std::string_view key, const JobFacts& facts) { return conflicts(with(key), facts); };
  for (const TechniqueInfo& technique : techniques()) EXPECT_THAT(faults(technique.key, {}), testing::IsEmpty());
  EXPECT_THAT(faults("bf16", {.fp32 = false}), testing::ElementsAre(HasSubstr("autocast = \"bf16\"")));
  EXPECT_THAT(faults("fp16", {.fp32 = false}), testing::ElementsAre(HasSubstr("train.precision is fp32")));
  EXPECT_THAT(faults("alloc_conf", {.on_card = false}), testing::ElementsAre(HasSubstr("trains on the CPU")));
  EXPECT_THAT(conflicts({.alloc_conf = "expandable_segments"}), testing::ElementsAre(HasSubstr("KEY:VALUE")));
  EXPECT_THAT(conflicts({.optimizer = {.in_backward = true}, .autocast = Autocast::kFp16}),
              testing::ElementsAre(HasSubstr("use bf16")));
  EXPECT_THAT(conflicts({.optimizer = {.in_backward = true}, .autocast = Autocast::kBf16}), testing::IsEmpty());
}

TEST(Plan, SaysWhichTechniquesNeedTheHost) {
  std::vector<std::string_view> on_host;
  for (const TechniqueInfo& technique : techniques())
    if (technique.needs_host) on_host.push_back(technique.key);
  EXPECT_THAT(on_host, testing::ElementsAre("offload", "checkpoint_offload", "state_on_host"));
}

TEST(Plan, EachTechniqueIsSeenAloneAndCanBeDropped) {
  for (const TechniqueInfo& technique : techniques()) {
    Plan plan = with(technique.key);
    for (const TechniqueInfo& other : techniques())
      EXPECT_EQ(other.used(plan), other.key == technique.key) << other.key;
    EXPECT_EQ(equivalence(plan), technique.equivalence);
    EXPECT_EQ(only(plan, std::array{technique.equivalence}), plan);
    EXPECT_EQ(only(plan, {}), Plan{});
    EXPECT_NE(describe(plan, 3), "nothing");
    technique.drop(plan);
    EXPECT_EQ(plan, Plan{});
  }
}
}  // namespace
}  // namespace cinch::plan
