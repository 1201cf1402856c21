#pragma once
// A folder as Hugging Face's from_pretrained() reads it, config.json and perhaps weights, as a job.
//
//   job::Job job = job::from_folder("bert-base-uncased", {{"train.batch_size=8"}});
//
// Architectures: gpt2 (GPT2LMHeadModel, GPT2Model), bert (BertForSequenceClassification, BertForMaskedLM, BertModel),
// vit (ViTForImageClassification, ViTModel), llama (LlamaForCausalLM, LlamaModel; MistralForCausalLM and MistralModel
// while the context is within the sliding window), resnet (ResNetForImageClassification, ResNetModel) of torchvision's
// depths. A model without a head is trained with one: masked language modelling for BERT, the configured classes for
// images. Keys that are missing have the defaults of transformers' configuration classes; a value that cinch does not
// compute is refused by name.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "cinch/job/job.h"

namespace cinch::job {

/// The context length of a job made from a folder: the model's own, at most this. Memory grows with it, and what a
/// model could read (131,072 tokens) is not what it is usually trained on.
inline constexpr std::int64_t kDefaultContext = 2048;

struct FolderInfo {
  std::string architecture;  ///< As config.json has it: "BertForMaskedLM".
  bool base = false;         ///< A model without a head ("BertModel"): weights have none, training begins a new one.
  std::int64_t longest_context = 0;  ///< Tokens the model can read; 0 for images.
  bool has_weights = false;          ///< model.safetensors or model.safetensors.index.json is there.
};
/// Throws ConfigError as from_folder().
FolderInfo folder_info(const std::filesystem::path& folder);

/// A job of one step of AdamW on one random sample, nothing written; `overrides` as in load(). Throws ConfigError
/// (file, key) if config.json is missing, is no JSON, is of an unknown architecture or holds what cinch does not
/// compute.
Job from_folder(const std::filesystem::path& folder, std::span<const std::string> overrides = {});
/// The same of a config.json's text, without weights.
Job from_config(std::string_view json, const std::filesystem::path& name_for_errors);
}  // namespace cinch::job
