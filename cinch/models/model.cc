#include "cinch/models/model.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "cinch/core/error.h"
#include "cinch/models/bert.h"
#include "cinch/models/gpt.h"
#include "cinch/models/llama.h"
#include "cinch/models/lstm.h"
#include "cinch/models/mlp.h"
#include "cinch/models/resnet.h"
#include "cinch/models/unet.h"
#include "cinch/models/vit.h"

namespace cinch::models {
namespace {

std::shared_ptr<Model> make(const job::GptConfig& config) { return std::make_shared<Gpt>(config); }
std::shared_ptr<Model> make(const job::ResNetConfig& config) { return std::make_shared<ResNet>(config); }
std::shared_ptr<Model> make(const job::MlpConfig& config) { return std::make_shared<Mlp>(config); }
std::shared_ptr<Model> make(const job::BertConfig& config) { return std::make_shared<Bert>(config); }
std::shared_ptr<Model> make(const job::VitConfig& config) { return std::make_shared<Vit>(config); }
std::shared_ptr<Model> make(const job::LlamaConfig& config) { return std::make_shared<Llama>(config); }
std::shared_ptr<Model> make(const job::UnetConfig& config) { return std::make_shared<Unet>(config); }
std::shared_ptr<Model> make(const job::LstmConfig& config) { return std::make_shared<Lstm>(config); }

/// Evaluation mode until destroyed; then each module's own mode again.
class EvalScope {
 public:
  explicit EvalScope(Model& model) {
    for (auto& module : model.modules()) {
      const bool training = module->is_training();
      before_.emplace_back(std::move(module), training);
    }
    model.eval();
  }
  ~EvalScope() {
    // train() reaches children too, and parents come first: each ends with its own.
    for (auto& [module, training] : before_) module->train(training);
  }
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> before_;
};

constexpr std::int64_t kByteValues = 256;

/// The byte that follows `tokens`.
std::int64_t next_byte(LanguageModel& writer, const std::vector<std::int64_t>& tokens, double temperature,
                       const at::Generator& generator) {
  const auto window = std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()), writer.context_length());
  const auto first = tokens.size() - static_cast<std::size_t>(window);
  const auto input = at::tensor(at::ArrayRef<std::int64_t>(tokens).slice(first)).unsqueeze(0);
  const auto last = writer.hidden(input).select(1, window - 1);
  const auto scores = writer.logits(last).narrow(-1, 0, kByteValues).to(at::kFloat);
  if (!(temperature > 0)) return scores.argmax(-1).item<std::int64_t>();
  return at::multinomial((scores / temperature).softmax(-1), 1, false, generator).item<std::int64_t>();
}

}  // namespace

void Model::set_loss_chunk_size(std::int64_t rows) {
  if (rows < 0) throw UsageError("A loss chunk of " + std::to_string(rows) + " rows.", "Use 0 for all rows at once.");
  if (rows > 0 && !divides_loss()) {
    throw UsageError(
        "The loss of this model is not computed in chunks: it has no head over many classes for each token.",
        "Leave the loss chunk size 0. Language models and masked BERT divide theirs.");
  }
  loss_chunk_size_ = rows;
}

std::shared_ptr<Model> build(const job::ModelConfig& config) {
  return std::visit([](const auto& kind) { return make(kind); }, config);
}

std::string write_sample(Model& model, const std::string& prompt, std::int64_t count, std::uint64_t seed,
                         double temperature) {
  auto* writer = dynamic_cast<LanguageModel*>(&model);
  if (writer == nullptr || writer->vocab_size() < kByteValues) return {};
  const at::NoGradGuard no_grad;
  const EvalScope eval(model);
  const auto generator = at::detail::createCPUGenerator(seed);
  const std::string start = prompt.empty() ? "\n" : prompt;
  std::vector<std::int64_t> tokens;
  for (const char c : start) tokens.push_back(static_cast<unsigned char>(c));
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(next_byte(*writer, tokens, temperature, generator));
    text.push_back(static_cast<char>(tokens.back()));
  }
  return text;
}

}  // namespace cinch::models
