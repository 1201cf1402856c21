#include "cinch/cli/dimension.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cinch::cli {
namespace {
using testing::ElementsAre;

job::Job with(job::ModelConfig model) {
  job::Job job;
  job.model = std::move(model);
  job.train.batch_size = 12;
  return job;
}

/// Its own step gives the job's own value.
Dimension get(const job::Job& job, const char* what, std::int64_t value) {
  const auto found = dimension(job, what);
  if (!found) {
    ADD_FAILURE() << what;
    return {};
  }
  EXPECT_EQ(found->what, what);
  EXPECT_EQ(found->value(found->own), value) << what;
  EXPECT_LE(found->own, found->most);
  return *found;
}

TEST(Dimension, OfALanguageModel) {
  const job::Job job = with(job::GptConfig{.layers = 6, .hidden_size = 384, .heads = 6, .context_length = 256});
  EXPECT_THAT(get(job, "batch", 12).changes(13), ElementsAre("train.batch_size=13"));
  EXPECT_THAT(get(job, "context", 256).changes(300), ElementsAre("model.context_length=300"));
  EXPECT_THAT(get(job, "layers", 6).changes(7), ElementsAre("model.layers=7"));
  const Dimension width = get(job, "width", 384);
  EXPECT_EQ(width.own, 8) << "heads of multiples of 8";
  EXPECT_THAT(width.changes(9), ElementsAre("model.hidden_size=432"));
  EXPECT_FALSE(dimension(job, "height"));
}

TEST(Dimension, OfWidthTheHeadsDivideIt) {
  job::LlamaConfig llama;
  llama.hidden_size = 60;
  llama.heads = 6;
  llama.intermediate_size = 150;
  const Dimension width = get(with(llama), "width", 60);
  EXPECT_EQ(width.own, 5) << "heads of even sizes";
  EXPECT_THAT(width.changes(6), ElementsAre("model.hidden_size=72", "model.intermediate_size=180"));
  llama.hidden_size = 61;  // With a head_size of its own.
  EXPECT_THAT(get(with(llama), "width", 61).changes(1),
              ElementsAre("model.hidden_size=1", "model.intermediate_size=2"));
}

TEST(Dimension, OfModelsForImages) {
  const job::Job resnet = with(job::ResNetConfig{.depth = 50, .classes = 10, .image_size = 64});
  const Dimension depth = get(resnet, "layers", 50);
  EXPECT_EQ(depth.most, 5);
  EXPECT_THAT(depth.changes(4), ElementsAre("model.depth=101"));
  EXPECT_FALSE(dimension(resnet, "width"));
  EXPECT_FALSE(dimension(resnet, "context"));
  const job::Job unet = with(job::UnetConfig{.base_channels = 64, .levels = 4});
  EXPECT_THAT(get(unet, "width", 64).changes(9), ElementsAre("model.base_channels=72"));
  EXPECT_THAT(get(unet, "layers", 4).changes(5), ElementsAre("model.levels=5"));
}

TEST(Dimension, OfAPerceptronIsTheWidthOfWhatIsHidden) {
  EXPECT_THAT(get(with(job::MlpConfig{.sizes = {784, 100, 50, 10}}), "width", 100).changes(51),
              ElementsAre("model.sizes=[784, 102, 51, 10]"));
  EXPECT_FALSE(dimension(with(job::MlpConfig{.sizes = {784, 10}}), "width"));
  EXPECT_FALSE(dimension(with(job::MlpConfig{.sizes = {784, 10, 10}}), "layers"));
}
}  // namespace
}  // namespace cinch::cli
