#include "cinch/job/internal/relations.h"

#include <algorithm>

#include <fmt/format.h>

namespace cinch::job::internal {
namespace {
// long double holds products of a few sizes without overflow, and exactly enough to compare with 2^63.
using Wide = long double;
constexpr Wide kMostBytes = 9.2e18L;   // Just under 2^63.
constexpr Wide kStatePerNumber = 16;   // fp32 parameter, gradient and AdamW's two moments.

// A ResNet's last stage sees the image divided by this.
constexpr std::int64_t kResNetStride = 32;

Wide parameters(const GptConfig& gpt) {
  const Wide hidden = gpt.hidden_size;
  const Wide embeddings = (Wide(gpt.vocab_size) * (gpt.tie_weights ? 1 : 2) + gpt.context_length) * hidden;
  return embeddings + gpt.layers * (12 * hidden * hidden + 13 * hidden);
}

Wide parameters(const ResNetConfig& resnet) {
  return 12e6L + Wide(resnet.channels) * 64 * 49 + Wide(resnet.classes) * 513;
}

Wide parameters(const MlpConfig& mlp) {
  Wide sum = 0;
  for (std::size_t i = 1; i < mlp.sizes.size(); ++i) sum += (Wide(mlp.sizes[i - 1]) + 1) * mlp.sizes[i];
  return sum;
}

// Numbers in the largest tensor that one sample makes.
Wide largest_tensor(const GptConfig& gpt) {
  const Wide context = gpt.context_length;
  return std::max({context * gpt.vocab_size, context * gpt.hidden_size * 4, context * context * gpt.heads});
}

Wide largest_tensor(const ResNetConfig& resnet) {
  const Wide pixels = Wide(resnet.image_size) * resnet.image_size;
  return std::max(pixels * std::max<Wide>(resnet.channels, 64), Wide(resnet.classes));
}

Wide largest_tensor(const MlpConfig& mlp) {
  return static_cast<Wide>(*std::max_element(mlp.sizes.begin(), mlp.sizes.end()));
}

void check_sizes(const Job& job, const Section& model, const Section& train) {
  const char* key = std::holds_alternative<GptConfig>(job.model)      ? "hidden_size"
                    : std::holds_alternative<ResNetConfig>(job.model) ? "classes"
                                                                      : "sizes";
  const Wide count = std::visit([](const auto& config) { return parameters(config); }, job.model);
  if (count * kStatePerNumber > kMostBytes) {
    model.fail(key, fmt::format("makes a model of about {:.2g} parameters, whose bytes do not fit into 64 bits",
                                static_cast<double>(count)),
               "Choose smaller sizes.");
  }
  const Wide sample = std::visit([](const auto& config) { return largest_tensor(config); }, job.model);
  if (sample * job.train.batch_size * 4 > kMostBytes) {
    train.fail("batch_size", fmt::format("is {}: one tensor of such a batch has more bytes than fit into 64 bits",
                                         job.train.batch_size),
               "Choose a smaller batch or a smaller model.");
  }
}

void check_model_and_data(const Job& job, const Section& model, const Section& data) {
  const auto* gpt = std::get_if<GptConfig>(&job.model);
  if (gpt == nullptr && std::holds_alternative<TextData>(job.data)) {
    data.fail("kind", "is \"text\", which only a gpt reads", "Use \"csv\" or \"synthetic\", or model.kind = \"gpt\".");
  }
  if (gpt == nullptr) return;
  if (std::holds_alternative<CsvData>(job.data)) {
    data.fail("kind", "is \"csv\", which a gpt cannot read", "Use \"text\" or \"synthetic\".");
  }
  if (gpt->hidden_size % gpt->heads != 0) {
    model.fail("heads", fmt::format("is {}, which does not divide hidden_size {}", gpt->heads, gpt->hidden_size),
               "Every head gets an equal part of hidden_size.");
  }
  if (std::holds_alternative<TextData>(job.data) && gpt->vocab_size < 256) {
    model.fail("vocab_size", fmt::format("is {}; text is read as bytes, which need 256", gpt->vocab_size),
               "Write vocab_size = 256, or leave it out.");
  }
}

// Batch norm in training cannot normalise over a single number.
void check_batch_norm(const Job& job, const Section& model, const Section& memory) {
  const auto* resnet = std::get_if<ResNetConfig>(&job.model);
  if (resnet == nullptr || resnet->image_size > kResNetStride) return;
  const std::string why = fmt::format("is {}: the last stage of this ResNet would have one pixel, and batch norm needs "
                                      "more than one number", resnet->image_size);
  if (job.train.batch_size == 1) model.fail("image_size", why, "Use a batch_size above 1, or images above 32.");
  if (job.memory.divide_batch_norm) {
    memory.fail("divide_batch_norm", fmt::format("cannot be true where image_size {}", why), "Use images above 32.");
  }
}
}  // namespace

void check_relations(const Job& job, const Section& model, const Section& data, const Section& train,
                     const Section& memory) {
  check_model_and_data(job, model, data);
  check_batch_norm(job, model, memory);
  check_sizes(job, model, train);
  if (job.train.warmup_steps > job.train.steps) {
    train.fail("warmup_steps", fmt::format("is {}, more than steps, which is {}", job.train.warmup_steps, job.train.steps));
  }
}
}  // namespace cinch::job::internal
