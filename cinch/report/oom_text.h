#pragma once
// What the text of an out-of-memory error says.
//
//   puts(report::text(inspect::parse_oom_text(pasted)).c_str());

#include <string>
#include <string_view>

#include "cinch/inspect/oom_text.h"
#include "cinch/report/summaries.h"

namespace cinch::report {

/// For a terminal. `colour`: ANSI colours.
std::string text(const inspect::OomReport& report, bool colour = false);

/// One document, schema "cinch.inspect/1": `oom` is the first error, `errors` all of them. `source` is where the text
/// came from. With a closing newline.
std::string json(const inspect::OomReport& report, const Environment& environment, std::string_view source);

/// Self-contained.
std::string html(const inspect::OomReport& report, const Environment& environment, std::string_view source);
}  // namespace cinch::report
