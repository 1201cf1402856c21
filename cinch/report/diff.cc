#include "cinch/report/diff.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "cinch/core/text.h"
#include "cinch/core/version.h"
#include "cinch/inspect/words.h"
#include "cinch/report/internal/format.h"

namespace cinch::report {
namespace {

using inspect::Change;
using inspect::Moment;
using inspect::size_words;
using nlohmann::ordered_json;

constexpr std::size_t kRows = 10;  // Of a table.

/// "+1.25 GiB".
std::string growth(Bytes bytes) { return (bytes > Bytes(0) ? "+" : "") + size_words(bytes); }

/// "+12.5 %"; "" where there was nothing.
std::string percent(const Moment& moment) {
  if (moment.before.bytes == Bytes(0)) return "";
  const double share =
      100.0 * static_cast<double>(moment.grown().count()) / static_cast<double>(moment.before.bytes.count());
  return fmt::format("{}{:.1f} %", share > 0 ? "+" : "", share);
}

std::string label_of(const std::string& name, std::string_view none) {
  return name.empty() ? std::string(none) : internal::one_line(name, 72);
}

/// Categories have words of their own: "optimizer_state" is "optimizer state".
std::string category_words(std::string name) {
  for (char& c : name) c = c == '_' ? ' ' : c;
  return name;
}

/// "GREW by 1.25 GiB at the peak (+12.5 %): 10.00 GiB → 11.25 GiB, most of it optimizer state (+1.00 GiB)."
std::string sentence(const Moment& moment, std::string_view where) {
  const std::string totals = fmt::format("{} → {}", size_words(moment.before.bytes), size_words(moment.after.bytes));
  const Bytes grown = moment.grown();
  if (grown == Bytes(0)) {
    return fmt::format("EQUAL {}: {}{}.", where, size_words(moment.before.bytes),
                       moment.categories.empty() ? "" : ", though not of the same tensors");
  }
  const std::string share = percent(moment);
  std::string words =
      fmt::format("{} by {} {}{}: {}", grown > Bytes(0) ? "GREW" : "SHRANK", size_words(Bytes(std::abs(grown.count()))),
                  where, share.empty() ? "" : " (" + share + ")", totals);
  if (!moment.categories.empty()) {
    const Change& most = grown > Bytes(0) ? moment.categories.front() : moment.categories.back();
    words += fmt::format(", most of it {} ({})", category_words(most.name), growth(most.grown()));
  }
  return words + ".";
}

/// What changed most, either way, first.
void table(std::string& lines, std::string_view title, const std::vector<Change>& rows, std::string_view none) {
  if (rows.empty()) return;
  lines += fmt::format("\n  {:>12}{:>12}{:>12}{:>9}  {}\n", "change", "before", "after", "tensors", title);
  std::size_t first = 0, last = rows.size();
  for (std::size_t shown = 0; shown < kRows && first < last; ++shown) {
    const bool top = std::abs(rows[first].grown().count()) >= std::abs(rows[last - 1].grown().count());
    const Change& row = top ? rows[first++] : rows[--last];
    const auto tensors =
        static_cast<std::int64_t>(row.after.allocations) - static_cast<std::int64_t>(row.before.allocations);
    lines += fmt::format("  {:>12}{:>12}{:>12}{:>9}  {}\n", growth(row.grown()), size_words(row.before.bytes),
                         size_words(row.after.bytes), fmt::format("{:+}", tensors), label_of(row.name, none));
  }
  if (first < last) lines += fmt::format("  {:>12}{:>35}{} more: --json has them\n", "…", "", last - first);
}

ordered_json rows_of(const std::vector<Change>& changes) {
  ordered_json rows = ordered_json::array();
  for (const Change& change : changes) {
    rows.push_back({{"name", change.name},
                    {"grown_bytes", change.grown().count()},
                    {"before_bytes", change.before.bytes.count()},
                    {"after_bytes", change.after.bytes.count()},
                    {"before_tensors", change.before.allocations},
                    {"after_tensors", change.after.allocations}});
  }
  return rows;
}

ordered_json moment_object(const Moment& moment) {
  return {{"grown_bytes", moment.grown().count()},     {"before_bytes", moment.before.bytes.count()},
          {"after_bytes", moment.after.bytes.count()}, {"before_tensors", moment.before.allocations},
          {"after_tensors", moment.after.allocations}, {"categories", rows_of(moment.categories)},
          {"modules", rows_of(moment.modules)},        {"paths", rows_of(moment.paths)}};
}
}  // namespace

std::string text(const Comparison& comparison, bool colour) {
  const Moment &peak = comparison.diff.peak, &end = comparison.diff.end;
  std::string verdict = sentence(peak, "at the peak");
  if (colour) verdict = fmt::format("\x1b[1;{}m{}\x1b[0m", comparison.beyond ? 31 : 32, verdict);
  std::string lines = verdict + "\n" + sentence(end, "at the end") + "\n";
  if (comparison.threshold) {
    lines += fmt::format("{} the threshold of {}.\n", comparison.beyond ? "BEYOND" : "Within",
                         size_words(*comparison.threshold));
  }
  std::vector<Change> categories = peak.categories;
  for (Change& row : categories) row.name = category_words(row.name);
  table(lines, "at the peak, by category", categories, "unknown");
  table(lines, "at the peak, by module", peak.modules, "(none)");
  table(lines, "at the peak, by call path", peak.paths, "(no stack recorded)");
  table(lines, "at the end, by call path", end.paths, "(no stack recorded)");
  return lines;
}

std::string json(const Comparison& comparison) {
  const ordered_json document = {
      {"schema", "cinch.diff/1"},
      {"cinch", kVersion},
      {"libtorch", comparison.environment.libtorch},
      {"device", comparison.environment.device},
      {"threads", comparison.environment.threads},
      {"before", comparison.before},
      {"after", comparison.after},
      {"threshold_bytes", comparison.threshold ? ordered_json(comparison.threshold->count()) : ordered_json(nullptr)},
      {"beyond", comparison.beyond},
      {"peak", moment_object(comparison.diff.peak)},
      {"end", moment_object(comparison.diff.end)}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}
}  // namespace cinch::report
