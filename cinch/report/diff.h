#pragma once
// What grew between two recordings.

#include <optional>
#include <string>

#include "cinch/inspect/diff.h"
#include "cinch/report/summaries.h"

namespace cinch::report {

/// Two recordings compared, as `cinch diff` shows them.
struct Comparison {
  Environment environment;
  std::string before, after;  ///< Files, as the user gave them.
  inspect::Diff diff;
  std::optional<Bytes> threshold;  ///< Growth that is allowed, at the peak and at the end.
  bool beyond = false;             ///< It is exceeded.
};

/// For a terminal. `colour`: ANSI colours.
std::string text(const Comparison& comparison, bool colour = false);

/// One document, schema "cinch.diff/1", with a closing newline.
std::string json(const Comparison& comparison);
}  // namespace cinch::report
