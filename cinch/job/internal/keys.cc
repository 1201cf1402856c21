#include "cinch/job/internal/keys.h"

#include <algorithm>

namespace cinch::job::internal {

std::vector<std::string> model_keys(std::size_t kind) {
  static const std::vector<std::vector<std::string>> kKeys{
      {"kind", "layers", "hidden_size", "heads", "context_length", "vocab_size", "dropout", "attention_dropout",
       "tie_weights", "activation"},
      {"kind", "depth", "classes", "channels", "image_size"},
      {"kind", "sizes", "dropout"},
      {"kind", "layers", "hidden_size", "heads", "intermediate_size", "context_length", "vocab_size", "token_types",
       "classes", "padding_token", "dropout", "attention_dropout", "norm_eps"},
      {"kind", "layers", "hidden_size", "heads", "intermediate_size", "patch_size", "image_size", "channels", "classes",
       "dropout", "attention_dropout", "norm_eps"},
      {"kind", "layers", "hidden_size", "heads", "key_value_heads", "head_size", "intermediate_size", "context_length",
       "vocab_size", "padding_token", "rope_theta", "norm_eps", "tie_weights"},
      {"kind", "base_channels", "levels", "classes", "channels", "image_size"},
      {"kind", "layers", "hidden_size", "context_length", "vocab_size", "dropout", "tie_weights"},
  };
  return kKeys.at(kind);
}

std::vector<std::string> data_keys(std::size_t kind) {
  if (kind == 2) return {"kind"};
  return {"kind", "path", "held_out"};
}

std::vector<std::string> train_keys(std::size_t optimizer) {
  std::vector<std::string> keys{"batch_size",         "steps",        "optimizer",     "weight_decay", "learning_rate",
                                "schedule",           "warmup_steps", "max_grad_norm", "precision",    "evaluate_every",
                                "evaluation_batches", "save_every",   "run_dir",       "seed",         "threads"};
  const auto& name = kOptimizers.at(optimizer);
  if (name == "adamw" || name == "adam") keys.insert(keys.end(), {"betas", "eps"});
  if (name == "lion") keys.push_back("betas");
  if (name == "sgd") keys.push_back("momentum");
  return keys;
}

std::vector<std::string> memory_keys() { return {"budget", "allow", "divide_batch_norm", "arena"}; }

std::vector<std::string> all_keys() {
  std::vector<std::string> all;
  const auto add = [&all](const std::string& section, const std::vector<std::string>& keys) {
    for (const std::string& key : keys) {
      std::string full = section;
      full += '.';
      full += key;
      if (std::ranges::find(all, full) == all.end()) all.push_back(full);
    }
  };
  for (std::size_t kind = 0; kind < kModelKinds.size(); ++kind) add("model", model_keys(kind));
  add("model", {"weights", "huggingface"});
  for (std::size_t kind = 0; kind < kDataKinds.size(); ++kind) add("data", data_keys(kind));
  for (std::size_t kind = 0; kind < kOptimizers.size(); ++kind) add("train", train_keys(kind));
  add("memory", memory_keys());
  return all;
}
}  // namespace cinch::job::internal
