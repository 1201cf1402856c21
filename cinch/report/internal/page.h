#pragma once
// The frame of an HTML report: style, escaping, small pieces. Self-contained: no address, no file from elsewhere.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cinch/report/summaries.h"

namespace cinch::report::internal {

/// Valid UTF-8 with & < > " ' written as entities: safe in text and in quoted attributes.
std::string escape(std::string_view text);

/// Marks a history in a page's body.
inline constexpr std::string_view kHistoryMark = "id=\"history-";

/// A whole document around `body` (HTML). `title` and what comes from `environment` and `job` is escaped here.
std::string page(std::string_view title, const Environment& environment, std::string_view job, std::string_view body);

/// The coloured first line. `note` is plain text, may be empty.
std::string verdict(std::string_view words, bool good, std::string_view note);

/// Key figures in a row of cards: name and value, plain text.
std::string cards(const std::vector<std::pair<std::string, std::string>>& figures);

/// A titled part of the page. `content` is HTML, `title` and `note` plain text.
std::string section(std::string_view title, std::string_view note, std::string_view content);

/// The CSS class that gives a category its colour: "c-optimizer_state".
std::string colour_class(trace::Category category);

/// Coloured squares with the labels of the categories that occur in any of `bytes`.
std::string legend(const std::vector<trace::CategoryBytes>& bytes);
}  // namespace cinch::report::internal
