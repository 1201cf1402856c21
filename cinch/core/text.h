#pragma once
// Small helpers on text that more than one folder needs.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cinch {

/// "1,234,567".
std::string with_thousands(std::int64_t number);

/// The candidate nearest to `name` by edit distance, if it is near enough to be a slip of the finger; else "".
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// A whole file. Throws IoError naming it; a file over `limit` bytes throws UsageError.
std::string read_file(const std::filesystem::path& file, std::uint64_t limit = 64u << 20);

/// Writes `text` to a temporary file beside `file`, syncs, renames. Throws IoError; on failure `file` is as it was.
void write_file(const std::filesystem::path& file, std::string_view text);
}  // namespace cinch
