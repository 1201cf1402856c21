#pragma once
// What a Hugging Face config.json says of a model, as the [model] section of a job file says it.

#include <cstdint>
#include <optional>

#include <toml++/toml.h>

#include "cinch/job/internal/json_config.h"

namespace cinch::job::internal {

struct HuggingFaceModel {
  std::string architecture;          ///< "BertForMaskedLM".
  bool base = false;                 ///< Without a head: "BertModel".
  std::int64_t longest_context = 0;  ///< Tokens; 0 for a model of images.
  toml::table section;               ///< kind and every other key of [model].
};

/// `context`: the context length that is wanted, if that is known. Throws ConfigError for an unknown architecture and
/// for every value that the models here do not compute.
HuggingFaceModel read_huggingface_model(const JsonConfig& config, std::optional<std::int64_t> context);
}  // namespace cinch::job::internal
