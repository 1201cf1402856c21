#pragma once
// A pasted log as one run of letters, in which a sentence is found however it was wrapped, coloured, quoted or
// prefixed.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace cinch::inspect::internal {

/// `text` in lower case without white space, terminal colours, escapes for newlines, quoting at the start of lines,
/// prefixes that loggers and launchers put before each line ("[rank0]:", "(worker pid=7) ERROR 03-03 19:38:29
/// [x.py:1]"), backquotes and asterisks.
std::string squeeze(std::string_view text);

/// Where the letters of squeeze(text) at `positions` (ascending) stand in `text`.
std::vector<std::size_t> origins(std::string_view text, const std::vector<std::size_t>& positions);
}  // namespace cinch::inspect::internal
