#pragma once
// Files that the verbs on recordings take.

#include <filesystem>

namespace cinch::cli {

/// Whether the file begins as a trace of cinch's own does; else it is to be read as a snapshot. False for a file that
/// cannot be read: whoever reads it next says why; and, unopened, for what is no regular file.
bool is_trace(const std::filesystem::path& file);
}  // namespace cinch::cli
