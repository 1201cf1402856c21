#pragma once
// Weights in a folder as Hugging Face's from_pretrained() and save_pretrained() read and write them: model.safetensors,
// or shards and model.safetensors.index.json, with the names of transformers' models.
//
//   interchange::load_huggingface(*model, job.model, job.weights);
//   interchange::save_huggingface(*model, job.model, job.weights, "tuned");
//
// For gpt, bert, vit, llama and resnet.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <torch/nn/module.h>

#include "cinch/job/job.h"

namespace cinch::interchange {

struct LoadedWeights {
  std::vector<std::string>
      fresh;  ///< Tensors of a head that the file lacks, since its model has none: left as they were.
  std::vector<std::string> unused;  ///< Tensors in the files that the model has no use for: known ones only.
};
/// One line for people, without an end: "5 tensors are not in the weights and begin at random ('a', 'b', 'c' and 2 more); …".
/// Empty if there is nothing to say.
std::string describe(const LoadedWeights& loaded);

/// Copies the weights in `folder` into `model`, which is of `config`. Tensor by tensor from mapped files: no second
/// copy of the whole. Half, bfloat16 and double become the model's dtype; learned positions may be more than the
/// model's, whose first then count. Throws DataError (file, tensor, what was expected) for tensors that are missing,
/// left over, of another shape or no floating point, and for damaged files; UsageError for a kind of model that has no
/// names there.
LoadedWeights load_huggingface(torch::nn::Module& model, const job::ModelConfig& config,
                               const std::filesystem::path& folder);

/// The largest weights file that save_huggingface() writes, unless one tensor alone is larger; bytes.
inline constexpr std::uint64_t kShardBytes = 5'000'000'000;

/// Writes `model` into the folder `to` (made if missing) as the weights in `from` are named and typed, tensors that the
/// model has no use for and config.json included: what was loaded and not trained comes out bit for bit. Without
/// weights in `from`: names with the usual prefix, in the model's dtype. Throws UsageError if `to` already holds
/// weights, IoError.
void save_huggingface(const torch::nn::Module& model, const job::ModelConfig& config, const std::filesystem::path& from,
                      const std::filesystem::path& to, std::uint64_t shard_bytes = kShardBytes);

/// The tensors' names and the file of each, from a model.safetensors.index.json. Throws DataError if it is no such
/// index or names anything but a file beside it.
std::map<std::string, std::string> parse_shard_index(std::string_view json, const std::filesystem::path& file);
}  // namespace cinch::interchange
