#pragma once
// --set "train.steps=10": changes to a parsed job file.

#include <span>
#include <string>

#include <toml++/toml.h>

namespace cinch::job::internal {

/// Puts each override into `root`, in order. A value is read as TOML; a bare word that is no TOML value is a text.
/// `known`: every "section.key" a job may have. Throws ConfigError of the file "--set".
void apply_overrides(toml::table& root, std::span<const std::string> overrides, std::span<const std::string> known);
}  // namespace cinch::job::internal
