#pragma once
// Leaks as the reports on recordings show them.

#include <nlohmann/json.hpp>
#include <string>

#include "cinch/inspect/leaks.h"

namespace cinch::report::internal {

/// One plain sentence: what leaks and when the card is full, or that nothing does, or why nothing can be said.
std::string leaks_sentence(const inspect::Leaks& leaks);
/// The sentence, then a table of call paths, and what such a leak usually comes from. Lines end with a newline.
std::string leaks_text(const inspect::Leaks& leaks, std::size_t paths = 8);

/// The array `leaks` of "cinch.inspect/1".
nlohmann::ordered_json leaks_array(const inspect::Leaks& leaks);
/// What belongs to all of them: {period_source, periods, bytes_per_step, steps_until_full, graph_kept}.
nlohmann::ordered_json leaks_summary(const inspect::Leaks& leaks);
}  // namespace cinch::report::internal
