#include "cinch/report/internal/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "cinch/core/version.h"
#include "cinch/report/internal/assets.h"
#include "cinch/report/internal/format.h"

namespace cinch::report::internal {
namespace {

std::string category_style() {
  std::string style;
  for (const trace::Category category : display_order()) {
    style += fmt::format(".{0}{{fill:var(--{1});background:var(--{1})}}", colour_class(category), name_of(category));
  }
  for (int i = 0; i < trace::kPhaseCount; ++i) {
    style += fmt::format(".p-{0}{{fill:var(--p-{0});background:var(--p-{0})}}", name_of(static_cast<trace::Phase>(i)));
  }
  return style;
}

/// What draws the histories in `body`, if there is one, and reads the static charts.
std::string scripts(std::string_view body) {
  std::string result = fmt::format("<script>\n{}</script>", asset("hover.js"));
  if (!interactive() || body.find(kHistoryMark) == std::string_view::npos) return result;
  return result +
         fmt::format("\n<script>{}{}</script>\n<script>\n(() => {{\n\"use strict\";\n{}{}{}{}}})();\n</script>",
                     asset("d3-notice.js"), asset("d3.min.js"), asset("history.js"), asset("memory.js"),
                     asset("peak.js"), asset("start.js"));
}
}  // namespace

std::string escape(std::string_view text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string page(std::string_view title, const Environment& environment, std::string_view job, std::string_view body) {
  std::string where = "device " + escape(environment.device);
  if (environment.threads > 0) {
    where += fmt::format(" · {} thread{}", environment.threads, environment.threads == 1 ? "" : "s");
  }
  if (!environment.libtorch.empty()) where += " · LibTorch " + escape(environment.libtorch);
  // What the page may do is in the policy: nothing but itself, no address at all.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">\n"
      "<title>{0}: {1}</title>\n<style>\n{2}{3}</style></head>\n<body><main>\n"
      "<header><h1>{0} · {1}</h1><p>{4}</p></header>\n{5}"
      "<footer>Written by cinch {6}. Sizes are requested bytes; 1 MiB = 1,048,576 B.</footer>\n"
      "</main>\n{7}</body></html>\n",
      escape(title), escape(job), asset("page.css"), category_style(), where, body, kVersion, scripts(body));
}

std::string verdict(std::string_view words, bool good, std::string_view note) {
  return fmt::format("<div class=\"verdict {}\">{}{}</div>\n", good ? "good" : "bad", escape(words),
                     note.empty() ? "" : fmt::format("<small>{}</small>", escape(note)));
}

std::string cards(const std::vector<std::pair<std::string, std::string>>& figures) {
  std::string result = "<div class=\"cards\">";
  for (const auto& [name, value] : figures) {
    result += fmt::format("<div><dl><dt>{}</dt><dd>{}</dd></dl></div>", escape(name), escape(value));
  }
  return result + "</div>\n";
}

std::string section(std::string_view title, std::string_view note, std::string_view content) {
  return fmt::format("<section><h2>{}</h2>{}{}</section>\n", escape(title),
                     note.empty() ? "" : fmt::format("<p>{}</p>", escape(note)), content);
}

std::string colour_class(trace::Category category) { return fmt::format("c-{}", name_of(category)); }

std::string legend(const std::vector<trace::CategoryBytes>& bytes) {
  std::string result = "<div class=\"legend\">";
  for (const trace::Category category : display_order()) {
    const auto occurs = [&](const trace::CategoryBytes& at) { return at[category].count() != 0; };
    if (std::none_of(bytes.begin(), bytes.end(), occurs)) continue;
    result += fmt::format("<span><i class=\"swatch {}\"></i>{}</span>", colour_class(category), label(category));
  }
  return result + "</div>";
}
}  // namespace cinch::report::internal
