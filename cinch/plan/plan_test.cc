#include "cinch/plan/plan.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"

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
  EXPECT_EQ(to_toml(example()),
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
      plan.activations[path] = random() % 2 == 0 ? ActivationPolicy::kCheckpoint : ActivationPolicy::kKeep;
    }
    EXPECT_EQ(parse_plan(to_toml(plan), "printed"), plan) << to_toml(plan);
  }
}

TEST(Plan, ReadsBareTomlInAnyOrder) {
  EXPECT_EQ(parse_plan("micro_batch_size = 4\nversion = 1\n[activations]\n'layers.1' = 'keep'\n'layers.0' = 'checkpoint'", ""),
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
  EXPECT_THAT(error_of("version = 2\n").what(), HasSubstr("version 1"));
  EXPECT_THAT(error_of("micro_batch_size = 1\n").what(), HasSubstr("version is missing"));
}

TEST(Plan, AMissingFileIsAConfigError) { EXPECT_THROW(load_plan("/nowhere/plan.toml"), ConfigError); }

TEST(Plan, Describes) {
  EXPECT_EQ(describe({}, 6), "nothing");
  EXPECT_EQ(describe(example(), 6), "micro-batch 4, checkpoint 1 of 6 modules");
  EXPECT_EQ(describe({.micro_batch_size = 0, .activations = {{"a", ActivationPolicy::kCheckpoint}}}, 1),
            "checkpoint 1 of 1 module");
}

TEST(Plan, EquivalenceIsThatOfTheWeakestTechnique) {
  EXPECT_EQ(equivalence({}), Equivalence::kBitwise);
  EXPECT_EQ(equivalence({.micro_batch_size = 0, .activations = {{"a", ActivationPolicy::kCheckpoint}}}),
            Equivalence::kBitwise);
  EXPECT_EQ(equivalence(example()), Equivalence::kReassociated);
  for (const TechniqueInfo& technique : techniques()) EXPECT_FALSE(technique.summary.empty());
}
}  // namespace
}  // namespace cinch::plan
