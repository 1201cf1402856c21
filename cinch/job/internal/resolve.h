#pragma once
// model.huggingface of a parsed job file.

#include <filesystem>

#include <toml++/toml.h>

#include "cinch/job/internal/section.h"

namespace cinch::job::internal {

/// Replaces model.huggingface by the keys that the folder's config.json stands for, and names the folder as
/// model.weights if it holds any. Keys that are there already win. `file` is for errors. Does nothing without that key.
void resolve_huggingface(toml::table& root, const std::filesystem::path& file);
}  // namespace cinch::job::internal
