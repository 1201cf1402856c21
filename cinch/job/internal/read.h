#pragma once
// The sections of a parsed job file as a Job.

#include <filesystem>

#include <toml++/toml.h>

#include "cinch/job/job.h"

namespace cinch::job::internal {

/// Throws ConfigError; what it returns is right as a whole.
Job read_job(const toml::table& root, const std::filesystem::path& file);
}  // namespace cinch::job::internal
