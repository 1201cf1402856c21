// Models of published sizes have the parameters that their publishers' have, and cost no memory to build dry.

#include <gtest/gtest.h>

#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/models/model.h"
#include "cinch/trace/trace.h"

namespace cinch {
namespace {

std::int64_t parameters_of(const job::ModelConfig& config) {
  trace::Trace trace;
  const dryrun::DryRun dry(trace, device::find("cpu"));
  const auto model = models::build(config);
  std::int64_t count = 0;
  for (const auto& parameter : model->parameters()) count += parameter.numel();
  return count;
}

TEST(ModelSizes, Bert) {
  // With two classes: the encoder, the pooler and the classifier.
  job::BertConfig bert{.layers = 12, .hidden_size = 768, .heads = 12, .intermediate_size = 3072, .classes = 2};
  EXPECT_EQ(parameters_of(bert), 109'482'240 + (768 * 2 + 2));
  bert = {.layers = 24, .hidden_size = 1024, .heads = 16, .intermediate_size = 4096, .classes = 2};
  EXPECT_EQ(parameters_of(bert), 335'141'888 + (1024 * 2 + 2));
  // The masked model of BERT-base: no pooler; a dense layer, a norm and a bias of every word.
  bert = {.layers = 12, .hidden_size = 768, .heads = 12};
  EXPECT_EQ(parameters_of(bert), 109'514'298);
}

TEST(ModelSizes, Vit) {
  EXPECT_EQ(parameters_of(job::VitConfig{.layers = 12, .hidden_size = 768, .heads = 12, .classes = 1000}), 86'567'656);
}

TEST(ModelSizes, Llama) {
  const job::LlamaConfig llama2{.layers = 32,
                                .hidden_size = 4096,
                                .heads = 32,
                                .intermediate_size = 11008,
                                .context_length = 4096,
                                .vocab_size = 32000};
  EXPECT_EQ(parameters_of(llama2), 6'738'415'616);
  const job::LlamaConfig llama3{.layers = 16,
                                .hidden_size = 2048,
                                .heads = 32,
                                .intermediate_size = 8192,
                                .key_value_heads = 8,
                                .context_length = 2048,
                                .vocab_size = 128256,
                                .tie_weights = true};
  EXPECT_EQ(parameters_of(llama3), 1'235'814'400);
  const job::LlamaConfig large{.layers = 80,
                               .hidden_size = 8192,
                               .heads = 64,
                               .intermediate_size = 28672,
                               .key_value_heads = 8,
                               .context_length = 8192,
                               .vocab_size = 128256};
  EXPECT_EQ(parameters_of(large), 70'553'706'496);
}

TEST(ModelSizes, Unet) {
  // Convolutions 9·in·out with norms 2·out, twice a level; upward ones 4·2c·c + c; the head.
  EXPECT_EQ(parameters_of(job::UnetConfig{.classes = 2, .image_size = 256}), 31'037'698);
}

}  // namespace
}  // namespace cinch
