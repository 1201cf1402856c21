#pragma once
// The keys of a job file, by section and by what its kind makes of it.

#include <string>
#include <vector>

namespace cinch::job::internal {

// In the order of ModelConfig's, DataConfig's, OptimizerKind's, Schedule's, Activation's and Precision's alternatives.
inline const std::vector<std::string> kModelKinds{"gpt", "resnet", "mlp", "bert", "vit", "llama", "unet", "lstm"};
inline const std::vector<std::string> kDataKinds{"text", "csv", "synthetic"};
inline const std::vector<std::string> kOptimizers{"adamw", "sgd", "adam", "adafactor", "lion"};
inline const std::vector<std::string> kSchedules{"constant", "linear", "cosine"};
inline const std::vector<std::string> kActivations{"gelu", "gelu_tanh"};
inline const std::vector<std::string> kPrecisions{"fp32", "bf16", "fp16"};

inline const std::vector<std::string> kSections{"model", "data", "train", "memory"};

/// Keys of [model] of the kind at `kind`; "weights" and, until it is resolved, "huggingface" go with any kind.
std::vector<std::string> model_keys(std::size_t kind);
/// Keys of [data] of the kind at `kind`.
std::vector<std::string> data_keys(std::size_t kind);
/// Keys of [train] for the optimizer at `optimizer`.
std::vector<std::string> train_keys(std::size_t optimizer);
std::vector<std::string> memory_keys();

/// Every "section.key" that some job has.
std::vector<std::string> all_keys();
}  // namespace cinch::job::internal
