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

/// The candidate nearest to `name` by edit distance (two neighbours swapped count one), if it is near enough to be a
/// slip of the finger: at most a third of the letters, or one; else "". The first, if several are equally near.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// The line (from 1) of a dotted key of more than 100 parts in TOML text, 0 if there is none. toml++ descends once a
/// part: asked first, it cannot exhaust the stack.
int line_of_deep_key(std::string_view toml);

/// Valid UTF-8 without control characters but newline and tab, fit for a terminal; U+FFFD in place of what is neither.
std::string printable(std::string_view text);

/// Quoted for a shell where that is needed. With bytes that are not printable as $'\033', for bash and zsh.
std::string shell_word(std::string_view text);

/// A whole file. Throws IoError naming it; a file over `limit` bytes, or that memory has no room for, throws
/// UsageError. Works on pipes and /proc.
std::string read_file(const std::filesystem::path& file, std::uint64_t limit = 64u << 20);

/// AtomicFile in one call: `file` holds `text` whole, or is as it was. Throws IoError.
void write_file(const std::filesystem::path& file, std::string_view text);
}  // namespace cinch
