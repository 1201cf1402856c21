#include "cinch/job/internal/relations.h"

#include <fmt/format.h>

#include "cinch/job/internal/scale.h"

namespace cinch::job::internal {
namespace {
constexpr Wide kMostBytes = 9.2e18L;  // Just under 2^63.
constexpr Wide kStatePerNumber = 16;  // fp32 parameter, gradient and AdamW's two moments.

// A ResNet's last stage sees the image divided by this.
constexpr std::int64_t kResNetStride = 32;

void check_sizes(const Job& job, const Section& model, const Section& train) {
  const Scale scale = scale_of(job.model);
  if (scale.parameters * kStatePerNumber > kMostBytes) {
    model.fail(scale.key,
               fmt::format("makes a model of about {:.2g} parameters, whose bytes do not fit into 64 bits",
                           static_cast<double>(scale.parameters)),
               "Choose smaller sizes.");
  }
  if (scale.largest_tensor * job.train.batch_size * 4 > kMostBytes) {
    train.fail(
        "batch_size",
        fmt::format("is {}: one tensor of such a batch has more bytes than fit into 64 bits", job.train.batch_size),
        "Choose a smaller batch or a smaller model.");
  }
}

void check_divides(const Section& model, const char* key, std::int64_t part, const char* whole_key, std::int64_t whole,
                   const char* hint) {
  if (whole % part != 0) {
    model.fail(key, fmt::format("is {}, which does not divide {} {}", part, whole_key, whole), hint);
  }
}

// What must hold within a model of each kind.
struct CheckModel {
  const Section& model;

  void heads(std::int64_t heads, std::int64_t hidden_size) const {
    check_divides(model, "heads", heads, "hidden_size", hidden_size, "Every head gets an equal part of hidden_size.");
  }
  void operator()(const GptConfig& gpt) const { heads(gpt.heads, gpt.hidden_size); }
  void operator()(const ResNetConfig&) const {}
  void operator()(const MlpConfig&) const {}
  void operator()(const LstmConfig&) const {}
  void padding(std::int64_t token, std::int64_t vocab_size) const {
    if (token < vocab_size) return;
    model.fail("padding_token", fmt::format("is {}, no token of vocab_size {}", token, vocab_size),
               "Tokens count from 0; -1 says that none is padding.");
  }
  void operator()(const BertConfig& bert) const {
    heads(bert.heads, bert.hidden_size);
    padding(bert.padding_token, bert.vocab_size);
  }
  void operator()(const VitConfig& vit) const {
    heads(vit.heads, vit.hidden_size);
    check_divides(model, "patch_size", vit.patch_size, "image_size", vit.image_size,
                  "An image is cut into whole patches.");
  }
  void operator()(const LlamaConfig& llama) const {
    padding(llama.padding_token, llama.vocab_size);
    check_divides(model, "key_value_heads", llama.key_value_heads, "heads", llama.heads,
                  "Every key and value serves equally many heads.");
    if (llama.head_size % 2 != 0) {
      model.fail("head_size", fmt::format("is {}; rotary positions turn pairs of numbers", llama.head_size),
                 "Choose an even one; unsaid, it is hidden_size / heads.");
    }
  }
  void operator()(const UnetConfig& unet) const {
    const std::int64_t multiple = std::int64_t{1} << unet.levels;
    if (unet.image_size % multiple == 0) return;
    model.fail(
        "image_size",
        fmt::format("is {}, no multiple of {}; each of {} levels halves it", unet.image_size, multiple, unet.levels),
        "Choose a multiple, or fewer levels.");
  }
};

/// Of a model that text can feed: its vocabulary; 0 for others.
std::int64_t vocabulary_for_text(const ModelConfig& model) {
  if (const auto* gpt = std::get_if<GptConfig>(&model)) return gpt->vocab_size;
  if (const auto* llama = std::get_if<LlamaConfig>(&model)) return llama->vocab_size;
  if (const auto* lstm = std::get_if<LstmConfig>(&model)) return lstm->vocab_size;
  return 0;
}

bool takes_rows_of_pixels(const ModelConfig& model) {
  return std::holds_alternative<ResNetConfig>(model) || std::holds_alternative<VitConfig>(model) ||
         std::holds_alternative<MlpConfig>(model);
}

void check_data(const Job& job, const Section& model, const Section& data) {
  const std::int64_t vocabulary = vocabulary_for_text(job.model);
  if (std::holds_alternative<TextData>(job.data)) {
    if (vocabulary == 0) {
      data.fail("kind", "is \"text\", which only a gpt, a llama or an lstm reads",
                "Use \"synthetic\", or a model.kind that reads text.");
    }
    if (vocabulary < 256) {
      model.fail("vocab_size", fmt::format("is {}; text is read as bytes, which need 256", vocabulary),
                 "Write vocab_size = 256.");
    }
  }
  if (std::holds_alternative<CsvData>(job.data) && !takes_rows_of_pixels(job.model)) {
    data.fail("kind", "is \"csv\", which only a resnet, a vit or an mlp reads",
              vocabulary == 0 ? "Use \"synthetic\"." : "Use \"text\" or \"synthetic\".");
  }
}

/// The largest image of which a model with batch norm has one pixel where it is narrowest, and the job's.
struct Images {
  std::int64_t too_small = 0, size = 1;
};
Images images_of(const ModelConfig& model) {
  if (const auto* resnet = std::get_if<ResNetConfig>(&model)) return {kResNetStride, resnet->image_size};
  if (const auto* unet = std::get_if<UnetConfig>(&model)) return {std::int64_t{1} << unet->levels, unet->image_size};
  return {};
}

// Batch norm in training cannot normalise over a single number.
void check_batch_norm(const Job& job, const Section& model, const Section& memory) {
  const auto [too_small, size] = images_of(job.model);
  if (size > too_small) return;
  const std::string why = fmt::format(
      "is {}: one pixel would be left where this model is narrowest, and batch norm needs "
      "more than one number",
      size);
  const std::string larger = fmt::format("images above {}.", too_small);
  if (job.train.batch_size == 1) model.fail("image_size", why, "Use a batch_size above 1, or " + larger);
  if (job.memory.divide_batch_norm) {
    memory.fail("divide_batch_norm", fmt::format("cannot be true where image_size {}", why), "Use " + larger);
  }
}
}  // namespace

void check_relations(const Job& job, const Section& model, const Section& data, const Section& train,
                     const Section& memory) {
  check_data(job, model, data);
  std::visit(CheckModel{model}, job.model);
  check_batch_norm(job, model, memory);
  check_sizes(job, model, train);
  if (job.train.warmup_steps > job.train.steps) {
    train.fail("warmup_steps",
               fmt::format("is {}, more than steps, which is {}", job.train.warmup_steps, job.train.steps),
               "For a short trial set both: --set train.steps=3 --set train.warmup_steps=0.");
  }
}
}  // namespace cinch::job::internal
