// [model] of the transformers, and of the UNet: keys, defaults, and what must hold between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"
#include "cinch/job/internal/scale.h"
#include "cinch/job/job.h"

namespace cinch::job {
namespace {
using testing::AllOf;
using testing::HasSubstr;

const std::string kRest = "\n[data]\nkind = \"synthetic\"\n[train]\nbatch_size = 4\nsteps = 10\nlearning_rate = 1e-3\n";
const std::string kBert = "[model]\nkind = \"bert\"\nlayers = 2\nhidden_size = 48\nheads = 4" + kRest;
const std::string kVit = "[model]\nkind = \"vit\"\nlayers = 2\nhidden_size = 48\nheads = 4\nclasses = 10" + kRest;
const std::string kLlama =
    "[model]\nkind = \"llama\"\nlayers = 2\nhidden_size = 48\nheads = 4\nintermediate_size = 100\n"
    "context_length = 32\nvocab_size = 256" +
    kRest;
const std::string kUnet = "[model]\nkind = \"unet\"\nclasses = 3\nimage_size = 64" + kRest;
const std::string kLstm = "[model]\nkind = \"lstm\"\nlayers = 2\nhidden_size = 48\ncontext_length = 32" + kRest;

Job with(const std::string& text, std::vector<std::string> overrides = {}) {
  return parse(text, "job.toml", overrides);
}
ConfigError error_of(const std::string& text, std::vector<std::string> overrides) {
  try {
    parse(text, "job.toml", overrides);
  } catch (const ConfigError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted " << overrides.front();
  return {"", 0, "", ""};
}

TEST(Families, UnsaidKeysHaveDefaults) {
  const auto bert = std::get<BertConfig>(with(kBert).model);
  EXPECT_EQ(bert.intermediate_size, 192);
  EXPECT_EQ(bert.context_length, 512);
  EXPECT_EQ(bert.vocab_size, 30522);
  EXPECT_EQ(bert.token_types, 2);
  EXPECT_EQ(bert.classes, 0);
  EXPECT_EQ(bert.padding_token, -1);
  EXPECT_EQ(bert.dropout, 0.1);
  EXPECT_EQ(bert.norm_eps, 1e-12);
  const auto vit = std::get<VitConfig>(with(kVit).model);
  EXPECT_EQ(vit.intermediate_size, 192);
  EXPECT_EQ(vit.patch_size, 16);
  EXPECT_EQ(vit.image_size, 224);
  EXPECT_EQ(vit.channels, 3);
  EXPECT_EQ(vit.dropout, 0);
  const auto llama = std::get<LlamaConfig>(with(kLlama).model);
  EXPECT_EQ(llama.key_value_heads, 4);
  EXPECT_EQ(llama.head_size, 12);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_EQ(llama.norm_eps, 1e-5);
  EXPECT_FALSE(llama.tie_weights);
  EXPECT_EQ(llama.padding_token, -1);
  const auto unet = std::get<UnetConfig>(with(kUnet).model);
  EXPECT_EQ(unet.base_channels, 64);
  EXPECT_EQ(unet.levels, 4);
  EXPECT_EQ(unet.channels, 3);
  const auto lstm = std::get<LstmConfig>(with(kLstm).model);
  EXPECT_EQ(lstm.vocab_size, 256);
  EXPECT_EQ(lstm.dropout, 0);
  EXPECT_FALSE(lstm.tie_weights);
}

TEST(Families, WhatIsPrintedReadsBackTheSame) {
  const std::vector<std::vector<std::string>> bert{
      {"model.classes=3", "model.dropout=0.25", "model.padding_token=7"},
      {"model.token_types=3", "model.vocab_size=77", "model.context_length=9", "model.norm_eps=1e-3",
       "model.attention_dropout=0", "model.intermediate_size=5"}};
  const std::vector<std::vector<std::string>> llama{
      {"model.key_value_heads=2", "model.head_size=6", "model.tie_weights=true", "model.rope_theta=5e5",
       "model.padding_token=255"},
      {"model.heads=5", "model.key_value_heads=1", "model.head_size=64", "model.norm_eps=1e-3"}};
  const std::vector<std::vector<std::string>> vit{{"model.patch_size=4", "model.image_size=12", "model.channels=1",
                                                   "model.dropout=0.5", "model.attention_dropout=0.125",
                                                   "model.intermediate_size=7", "model.norm_eps=0.25"}};
  const std::vector<std::vector<std::string>> unet{
      {"model.base_channels=5", "model.levels=2", "model.channels=1", "model.image_size=20", "train.precision=bf16"}};
  const auto check = [](const std::string& text, const std::vector<std::vector<std::string>>& cases) {
    std::string before = to_toml(with(text));
    EXPECT_EQ(to_toml(with(before)), before);
    for (const auto& overrides : cases) {
      const std::string written = to_toml(with(text, overrides));
      EXPECT_EQ(to_toml(with(written)), written);
      for (const std::string& override : overrides) {
        const auto dot = override.find('.'), equals = override.find('=');
        EXPECT_THAT(written, HasSubstr("\n" + override.substr(dot + 1, equals - dot - 1) + " = "));
      }
      EXPECT_NE(written, before);
    }
  };
  check(kBert, bert);
  check(kLlama, llama);
  check(kVit, vit);
  check(kUnet, unet);
  check(kLstm, {{"model.vocab_size=77", "model.dropout=0.25", "model.tie_weights=true"}});
  EXPECT_EQ(with(to_toml(with(kUnet, {"train.precision=bf16"}))).train.precision, Precision::kBf16);
}

TEST(Families, KeysOfOtherKindsAreUnknown) {
  EXPECT_EQ(error_of(kBert, {"model.patch_size=4"}).key(), "model.patch_size");
  EXPECT_EQ(error_of(kVit, {"model.vocab_size=4"}).key(), "model.vocab_size");
  EXPECT_EQ(error_of(kLlama, {"model.dropout=0.1"}).key(), "model.dropout");
  EXPECT_EQ(error_of(kUnet, {"model.depth=18"}).key(), "model.depth");
  EXPECT_EQ(error_of(kLstm, {"model.heads=2"}).key(), "model.heads");
}

TEST(Families, RangesAreChecked) {
  for (const char* text :
       {"model.layers=0", "model.heads=0", "model.intermediate_size=0", "model.classes=-1", "model.token_types=0",
        "model.norm_eps=0", "model.dropout=1", "model.vocab_size=0", "model.padding_token=-2"}) {
    EXPECT_THAT(error_of(kBert, {text}).what(), HasSubstr("must be")) << text;
  }
  for (const char* text : {"model.classes=0", "model.patch_size=0", "model.channels=0"}) {
    EXPECT_THAT(error_of(kVit, {text}).what(), HasSubstr("must be")) << text;
  }
  for (const char* text : {"model.key_value_heads=0", "model.head_size=0", "model.rope_theta=0"}) {
    EXPECT_THAT(error_of(kLlama, {text}).what(), HasSubstr("must be")) << text;
  }
  for (const char* text : {"model.levels=0", "model.levels=11", "model.base_channels=0"}) {
    EXPECT_THAT(error_of(kUnet, {text}).what(), HasSubstr("must be")) << text;
  }
}

TEST(Families, RelationsAreChecked) {
  EXPECT_THAT(error_of(kBert, {"model.heads=5"}).what(), HasSubstr("heads is 5, which does not divide hidden_size 48"));
  EXPECT_THAT(error_of(kVit, {"model.heads=5"}).what(), HasSubstr("heads is 5, which does not divide hidden_size 48"));
  EXPECT_THAT(error_of(kVit, {"model.patch_size=15"}).what(), HasSubstr("patch_size is 15, which does not divide"));
  EXPECT_THAT(error_of(kLlama, {"model.heads=5"}).what(),
              HasSubstr("heads is 5, which does not divide hidden_size 48"));
  EXPECT_NO_THROW(with(kLlama, {"model.heads=5", "model.head_size=8"}));
  EXPECT_THAT(error_of(kLlama, {"model.key_value_heads=3"}).what(), HasSubstr("3, which does not divide heads 4"));
  EXPECT_THAT(error_of(kLlama, {"model.head_size=7"}).what(), HasSubstr("head_size is 7"));
  EXPECT_THAT(error_of(kLlama, {"model.padding_token=256"}).what(), HasSubstr("padding_token is 256, no token of"));
  EXPECT_THAT(error_of(kBert, {"model.padding_token=30522"}).what(), HasSubstr("padding_token is 30522, no token of"));
  EXPECT_EQ(error_of(kLlama, {"model.hidden_size=12"}).key(), "model.head_size");
  const ConfigError odd = error_of(kUnet, {"model.image_size=40"});
  EXPECT_THAT(odd.what(), AllOf(HasSubstr("image_size is 40"), HasSubstr("no multiple of 16")));
  EXPECT_NO_THROW(with(kUnet, {"model.image_size=40", "model.levels=3"}));
}

TEST(Families, EachReadsItsOwnData) {
  const std::vector<std::string> text{"data.kind=text", "data.path=x"}, csv{"data.kind=csv", "data.path=x"};
  EXPECT_NO_THROW(with(kLlama, text));
  EXPECT_NO_THROW(with(kVit, csv));
  EXPECT_EQ(error_of(kLlama, {"data.kind=text", "data.path=x", "model.vocab_size=255"}).key(), "model.vocab_size");
  for (const std::string& model : {kBert, kVit, kUnet}) EXPECT_EQ(error_of(model, text).key(), "data.kind");
  for (const std::string& model : {kBert, kLlama, kUnet}) EXPECT_EQ(error_of(model, csv).key(), "data.kind");
}

TEST(Families, AUnetHasBatchNorm) {
  EXPECT_TRUE(has_batch_norm(with(kUnet).model));
  for (const std::string& model : {kBert, kVit, kLlama}) EXPECT_FALSE(has_batch_norm(with(model).model));
  EXPECT_EQ(error_of(kUnet, {"model.image_size=16", "train.batch_size=1"}).key(), "model.image_size");
  EXPECT_EQ(error_of(kUnet, {"model.image_size=16", "memory.divide_batch_norm=true"}).key(),
            "memory.divide_batch_norm");
  EXPECT_NO_THROW(with(kUnet, {"model.image_size=32", "train.batch_size=1"}));
}

TEST(Families, SizesWhoseProductLeaves64BitsAreRefused) {
  for (const std::string& model : {kBert, kVit, kLlama}) {
    EXPECT_EQ(error_of(model, {"model.hidden_size=2147483648", "model.intermediate_size=2147483648"}).key(),
              "model.hidden_size");
  }
  EXPECT_EQ(error_of(kBert, {"model.context_length=2147483648"}).key(), "train.batch_size");
  EXPECT_EQ(error_of(kLlama, {"model.context_length=2147483648"}).key(), "train.batch_size");
  EXPECT_EQ(error_of(kVit, {"model.image_size=1048576"}).key(), "train.batch_size");
  EXPECT_EQ(error_of(kUnet, {"model.image_size=2147483648"}).key(), "train.batch_size");
  EXPECT_EQ(error_of(kUnet, {"model.base_channels=2147483648"}).key(), "model.base_channels");
}

// Counts as published: 1810.04805 (110 million, 340 million), 2010.11929 (86 million), 2307.09288 (6.7 billion),
// torchvision's models.
TEST(Families, ScaleIsThatOfKnownModels) {
  const auto count = [](const ModelConfig& model) {
    return static_cast<std::int64_t>(internal::scale_of(model).parameters);
  };
  EXPECT_EQ(count(ResNetConfig{.depth = 18, .classes = 1000, .image_size = 224}), 11'689'512);
  EXPECT_EQ(count(ResNetConfig{.depth = 34, .classes = 1000, .image_size = 224}), 21'797'672);
  EXPECT_EQ(count(ResNetConfig{.depth = 50, .classes = 1000, .image_size = 224}), 25'557'032);
  EXPECT_EQ(count(ResNetConfig{.depth = 101, .classes = 1000, .image_size = 224}), 44'549'160);
  EXPECT_EQ(count(ResNetConfig{.depth = 152, .classes = 1000, .image_size = 224}), 60'192'808);
  EXPECT_EQ(
      count(GptConfig{.layers = 12, .hidden_size = 768, .heads = 12, .context_length = 1024, .vocab_size = 50257}),
      124'439'808);
  EXPECT_EQ(count(BertConfig{.layers = 12, .hidden_size = 768, .heads = 12, .intermediate_size = 3072, .classes = 2}),
            109'483'778);
  EXPECT_EQ(count(VitConfig{.layers = 12, .hidden_size = 768, .heads = 12, .intermediate_size = 3072, .classes = 1000}),
            86'567'656);
  EXPECT_EQ(count(LlamaConfig{.layers = 32,
                              .hidden_size = 4096,
                              .heads = 32,
                              .intermediate_size = 11008,
                              .key_value_heads = 32,
                              .head_size = 128,
                              .context_length = 4096,
                              .vocab_size = 32000}),
            6'738'415'616);
}
}  // namespace
}  // namespace cinch::job
