#pragma once
// Standard output: the result, whole or not at all.

#include <string>

#include "cinch/core/text.h"
#include "cinch/report/report.h"

namespace cinch::cli {

/// Throws Error if it cannot be written.
void print(const std::string& text);

/// A terminal whose user has not asked for none (NO_COLOR, TERM=dumb).
bool colour_on_stdout();

/// "cinch: WHAT" and, if there is one, "  hint: HINT", on standard error; both made printable, since file names are in
/// them.
void print_error(const std::string& what, const std::string& hint);

/// The document, or the text for people followed by where the HTML is, and the HTML itself; text, json and html
/// of `summary`, found beside its type. Files first: what is printed has happened.
template <typename Options, typename Summary>
void present(const Options& options, const Summary& summary) {
  if (!options.html.empty()) write_file(options.html, html(summary));
  if (options.json) return print(json(summary));
  print(text(summary, colour_on_stdout()) + (options.html.empty() ? "" : "Wrote " + printable(options.html) + "\n"));
}
}  // namespace cinch::cli
