#include <array>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include "cinch/job/internal/keys.h"
#include "cinch/job/job.h"

namespace cinch::job {
namespace {
std::string quoted(const std::string& text) {
  const toml::value<std::string> value{text};
  std::ostringstream out;
  out << toml::toml_formatter(value, toml::format_flags::none);
  return out.str();
}

std::string list(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  parts.reserve(texts.size());
  for (const std::string& text : texts) parts.push_back(quoted(text));
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

struct Writer {
  std::string text;

  template <typename T>
  void line(std::string_view key, const T& value) {
    text += fmt::format("{} = {}\n", key, value);
  }

  void operator()(const GptConfig& gpt) {
    line("layers", gpt.layers);
    line("hidden_size", gpt.hidden_size);
    line("heads", gpt.heads);
    line("context_length", gpt.context_length);
    line("vocab_size", gpt.vocab_size);
    line("dropout", gpt.dropout);
    line("attention_dropout", gpt.attention_dropout);
    line("tie_weights", gpt.tie_weights);
    line("activation", quoted(internal::kActivations[static_cast<std::size_t>(gpt.activation)]));
  }
  void operator()(const ResNetConfig& resnet) {
    line("depth", resnet.depth);
    line("classes", resnet.classes);
    line("channels", resnet.channels);
    line("image_size", resnet.image_size);
  }
  void operator()(const MlpConfig& mlp) {
    line("sizes", fmt::format("[{}]", fmt::join(mlp.sizes, ", ")));
    line("dropout", mlp.dropout);
  }
  void operator()(const BertConfig& bert) {
    line("layers", bert.layers);
    line("hidden_size", bert.hidden_size);
    line("heads", bert.heads);
    line("intermediate_size", bert.intermediate_size);
    line("context_length", bert.context_length);
    line("vocab_size", bert.vocab_size);
    line("token_types", bert.token_types);
    line("classes", bert.classes);
    line("padding_token", bert.padding_token);
    line("dropout", bert.dropout);
    line("attention_dropout", bert.attention_dropout);
    line("norm_eps", bert.norm_eps);
  }
  void operator()(const VitConfig& vit) {
    line("layers", vit.layers);
    line("hidden_size", vit.hidden_size);
    line("heads", vit.heads);
    line("intermediate_size", vit.intermediate_size);
    line("patch_size", vit.patch_size);
    line("image_size", vit.image_size);
    line("channels", vit.channels);
    line("classes", vit.classes);
    line("dropout", vit.dropout);
    line("attention_dropout", vit.attention_dropout);
    line("norm_eps", vit.norm_eps);
  }
  void operator()(const LlamaConfig& llama) {
    line("layers", llama.layers);
    line("hidden_size", llama.hidden_size);
    line("heads", llama.heads);
    line("key_value_heads", llama.key_value_heads);
    line("head_size", llama.head_size);
    line("intermediate_size", llama.intermediate_size);
    line("context_length", llama.context_length);
    line("vocab_size", llama.vocab_size);
    line("padding_token", llama.padding_token);
    line("rope_theta", llama.rope_theta);
    line("norm_eps", llama.norm_eps);
    line("tie_weights", llama.tie_weights);
  }
  void operator()(const UnetConfig& unet) {
    line("base_channels", unet.base_channels);
    line("levels", unet.levels);
    line("classes", unet.classes);
    line("channels", unet.channels);
    line("image_size", unet.image_size);
  }
  void operator()(const LstmConfig& lstm) {
    line("layers", lstm.layers);
    line("hidden_size", lstm.hidden_size);
    line("context_length", lstm.context_length);
    line("vocab_size", lstm.vocab_size);
    line("dropout", lstm.dropout);
    line("tie_weights", lstm.tie_weights);
  }
  void operator()(const TextData& data) {
    line("path", list(data.path));
    line("held_out", data.held_out);
  }
  void operator()(const CsvData& data) {
    line("path", list(data.path));
    line("held_out", data.held_out);
  }
  void operator()(const SyntheticData&) {}
  void operator()(const OptimizerConfig& optimizer) {
    line("optimizer", quoted(internal::kOptimizers[static_cast<std::size_t>(optimizer.kind)]));
    const auto kind = optimizer.kind;
    const bool adam = kind == OptimizerKind::kAdamW || kind == OptimizerKind::kAdam;
    if (adam || kind == OptimizerKind::kLion)
      line("betas", fmt::format("[{}, {}]", optimizer.beta1, optimizer.beta2));
    if (adam) line("eps", optimizer.eps);
    if (kind == OptimizerKind::kSgd) line("momentum", optimizer.momentum);
    line("weight_decay", optimizer.weight_decay);
  }
  void operator()(const TrainConfig& train) {
    line("batch_size", train.batch_size);
    line("steps", train.steps);
    (*this)(train.optimizer);
    line("learning_rate", train.learning_rate);
    line("schedule", quoted(internal::kSchedules[static_cast<std::size_t>(train.schedule)]));
    line("warmup_steps", train.warmup_steps);
    if (train.max_grad_norm) line("max_grad_norm", *train.max_grad_norm);
    line("precision", quoted(internal::kPrecisions[static_cast<std::size_t>(train.precision)]));
    line("evaluate_every", train.evaluate_every);
    line("evaluation_batches", train.evaluation_batches);
    line("save_every", train.save_every);
    line("run_dir", quoted(train.run_dir));
    line("seed", train.seed);
    line("threads", train.threads);
  }
  void operator()(const MemoryConfig& memory) {
    if (memory.budget) line("budget", memory.budget->count());
    line("allow", list({memory.allow.begin(), memory.allow.end()}));
    line("divide_batch_norm", memory.divide_batch_norm);
    line("arena", memory.arena);
  }
};
}  // namespace

std::string to_toml(const Job& job) {
  Writer writer;
  writer.text += "[model]\n";
  writer.line("kind", quoted(internal::kModelKinds[job.model.index()]));
  std::visit(writer, job.model);
  if (!job.weights.empty()) writer.line("weights", quoted(job.weights));
  writer.text += "\n[data]\n";
  writer.line("kind", quoted(internal::kDataKinds[job.data.index()]));
  std::visit(writer, job.data);
  writer.text += "\n[train]\n";
  writer(job.train);
  writer.text += "\n[memory]\n";
  writer(job.memory);
  return writer.text;
}
}  // namespace cinch::job
