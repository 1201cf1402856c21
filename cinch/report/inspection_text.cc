#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "cinch/core/text.h"
#include "cinch/inspect/words.h"
#include "cinch/report/inspection.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/path_rows.h"
#include "cinch/report/internal/waste.h"

namespace cinch::report {
namespace {

using inspect::Inspection;
using inspect::Kind;
using inspect::Live;
using inspect::size_words;
using internal::one_line;

constexpr std::size_t kPaths = 12;      // Rows of call paths,
constexpr std::size_t kFrames = 2;      // frames of each,
constexpr std::size_t kHolders = 110;   // columns of what keeps a segment,
constexpr std::size_t kPinned = 5;      // of pinned segments,
constexpr std::size_t kMakeRoom = 5;    // of tensors that must go,
constexpr std::size_t kTermsALine = 3;  // of a sum.

std::string number(std::size_t count) { return with_thousands(static_cast<std::int64_t>(count)); }

class Page {
 public:
  explicit Page(bool colour) : colour_(colour) {}
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text_ += text + "\n";
  }
  void head(const std::string& words) { text_ += (colour_ ? "\x1b[1m" + words + "\x1b[0m" : words) + "\n"; }
  void verdict(const std::string& words, bool good) {
    text_ += (colour_ ? fmt::format("\x1b[1;{}m{}\x1b[0m", good ? 32 : 31, words) : words) + "\n";
  }
  void blank() { text_ += "\n"; }
  std::string take() { return std::move(text_); }

 private:
  bool colour_;
  std::string text_;
};

/// Rows of a table of kinds: activations and temporaries as one where an error is explained.
std::vector<Live::OfKind> rows_of(const Live& live, bool merged, std::string& merged_name) {
  std::vector<Live::OfKind> rows;
  std::size_t parts = 0;
  const bool all_pass = std::none_of(live.kinds.begin(), live.kinds.end(), [](const Live::OfKind& row) {
    return row.kind == Kind::kActivation || row.kind == Kind::kRecomputed;
  });
  if (all_pass) merged = false;  // Temporaries alone keep their name.
  for (const Live::OfKind& row : live.kinds) {
    const bool passing = row.kind == Kind::kActivation || row.kind == Kind::kRecomputed || row.kind == Kind::kTemporary;
    const auto same =
        std::find_if(rows.begin(), rows.end(), [](const auto& met) { return met.kind == Kind::kActivation; });
    if (merged && passing && same != rows.end()) {
      same->bytes += row.bytes;
      same->tensors += row.tensors;
      ++parts;
      continue;
    }
    rows.push_back(row);
    if (merged && passing) rows.back().kind = Kind::kActivation;
  }
  merged_name = parts > 0 ? "activations, temporary" : "activations";
  return rows;
}

void kinds_table(Page& page, const std::string& title, const Live& live, bool merged,
                 std::string_view total_note = "") {
  const internal::Unit unit = internal::unit_for(live.bytes);
  const std::size_t width = std::max<std::size_t>(7, internal::in_unit(live.bytes, unit).size() + 2);
  page.head(fmt::format("{:<24}{:>16}{:>{}}{:>10}", title, "bytes", unit.name, width, "tensors"));
  std::string merged_name;
  for (const Live::OfKind& row : rows_of(live, merged, merged_name)) {
    const std::string name = merged && row.kind == Kind::kActivation ? merged_name : std::string(name_of(row.kind));
    page.line("  {:<22}{:>16}{:>{}}{:>10}  {}", one_line(name, 22), with_thousands(row.bytes.count()),
              internal::in_unit(row.bytes, unit), width, number(row.tensors), row.note);
  }
  page.line("  {:<22}{:>16}{:>{}}{:>10}  {}", "total", with_thousands(live.bytes.count()),
            internal::in_unit(live.bytes, unit), width, number(live.tensors), total_note);
}

void paths_table(Page& page, const Live& live) {
  const internal::Unit unit = internal::unit_for(live.bytes);
  page.blank();
  page.head(fmt::format("{:>9} {:>8}  {:<26} {}", unit.name, "tensors", "of them, by call path", "where"));
  const std::vector<internal::PathRow> rows = internal::path_rows(live, kFrames);
  Bytes rest = live.more_bytes;
  std::size_t more = live.more_paths;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const internal::PathRow& row = rows[i];
    if (i >= kPaths) {
      rest += row.bytes;
      more += row.paths;
      continue;
    }
    page.line("{:>9} {:>8}  {:<26} {}", internal::in_unit(row.bytes, unit), number(row.tensors),
              inspect::name_of(row.kind), one_line(row.where, 160));
  }
  if (more > 0) page.line("{:>9} {:>8}  in {} more: --json has them", internal::in_unit(rest, unit), "", number(more));
}

/// `explain`: for the first sum of a page.
void sum(Page& page, const std::string& begin, const inspect::Fragmentation& parts, bool explain = true) {
  page.line("{} {} =", begin, internal::exact(parts.reserved));
  const std::vector<std::string> terms = internal::waste_terms(parts);
  for (std::size_t i = 0; i < terms.size(); i += kTermsALine) {
    std::string line = i == 0 ? "" : "+ ";
    for (std::size_t j = i; j < std::min(i + kTermsALine, terms.size()); ++j) line += (j > i ? " + " : "") + terms[j];
    page.line("    {}", line);
  }
  if (explain && parts.cached_segments > Bytes(0)) {
    page.line("  The cached segments are no need: PyTorch returns them before it fails.");
  }
}

/// "first optimizer step" of "in the first optimizer step".
std::string bare(std::string words) {
  for (const std::string_view begin : {"in the ", "in "}) {
    if (words.starts_with(begin)) return words.substr(begin.size());
  }
  return words;
}

std::string peak_words(const Inspection& seen) {
  const Live& peak = seen.peak;
  const std::string phase = bare(inspect::phase_words(peak.phase, peak.step));
  std::string text = fmt::format("peak {} ({})", internal::exact(peak.bytes), size_words(peak.bytes));
  if (!phase.empty()) text += ", " + phase;
  const Bytes state = peak.categories[trace::Category::kOptimizerState];
  if (state > Bytes(0)) {
    text +=
        fmt::format(": {} state is {} of it", seen.optimizer.empty() ? "optimizer" : seen.optimizer, size_words(state));
  }
  return text;
}

/// And a blank line.
void make_room(Page& page, const inspect::OutOfMemory& oom) {
  if (oom.make_room.empty()) return;
  Bytes all;
  for (const inspect::Tensor& tensor : oom.make_room) all += tensor.bytes;
  page.line("{} would have made room, {} in all:",
            oom.make_room.size() == 1 ? "One tensor less" : number(oom.make_room.size()) + " tensors less",
            size_words(all));
  for (std::size_t i = 0; i < std::min(oom.make_room.size(), kMakeRoom); ++i) {
    const inspect::Tensor& tensor = oom.make_room[i];
    page.line("  {:>10}  {:<22} {}", size_words(tensor.bytes), name_of(tensor.kind), one_line(tensor.path, 90));
  }
  if (oom.make_room.size() > kMakeRoom)
    page.line("  … {} more: --json has them", number(oom.make_room.size() - kMakeRoom));
  page.blank();
}

void remedies(Page& page, const inspect::OutOfMemory& oom) {
  if (oom.short_at_peak > Bytes(0)) page.line("  Now short by {} at the peak.", size_words(oom.short_at_peak));
  for (const inspect::Remedy& remedy : oom.remedies) {
    page.line("  {} {}leaves {}: {}", remedy.name, remedy.at_best ? "at best " : "", size_words(remedy.leaves),
              remedy.fits ? "fits" : size_words(remedy.leaves - oom.capacity) + " over");
  }
  const bool halved = std::any_of(oom.remedies.begin(), oom.remedies.end(), [](const inspect::Remedy& remedy) {
    return remedy.name.find("bf16") != std::string::npos;
  });
  if (halved) page.line("  (bf16 is counted as half: so it is of what is float32 now.)");
}

void out_of_memory(Page& page, const Inspection& seen, const inspect::OutOfMemory& oom) {
  page.line("{}", oom.headline);
  page.verdict(oom.verdict, oom.any_setting_helps);
  if (oom.short_by == Bytes(0)) page.line("{}", oom.why);
  if (oom.already_at) {
    page.line("With the recorded settings fragmentation ends it earlier, at event {}.", number(*oom.already_at));
  }
  page.blank();
  kinds_table(page, "Live at that moment", oom.live, true, oom.recorded ? "" : "the request included");
  page.blank();
  make_room(page, oom);
  if (!oom.recorded) {
    page.head("If it had continued");
    page.line("  {}", peak_words(seen));
    if (seen.has_segments) sum(page, "  reserved at end", seen.at_end);
  }
  page.line("{}", oom.to_fit);
  remedies(page, oom);
  if (!seen.has_segments) return;
  page.line("{} is what {}.", size_words(oom.capacity),
            oom.recorded ? "was reserved and what the card had free: contexts and other programs not in it"
                         : "the allocator may reserve: a card has that beside its CUDA context and other programs");
}

void findings(Page& page, const Inspection& seen) {
  bool first = true;
  for (const inspect::Finding& finding : seen.findings) {
    const bool told = seen.oom && std::exchange(first, false);
    if (told) continue;
    page.line("* {}", one_line(finding.text, 600));
    if (!finding.action.empty()) page.line("    → {}", one_line(finding.action, 400));
  }
}

/// As many as a line holds, each in full.
std::string holders_of(const inspect::PinnedSegment& segment) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& holder : segment.holders) {
    const std::string one = size_words(holder.requested) + (holder.path.empty() ? "" : " " + one_line(holder.path));
    if (shown > 0 && text.size() + one.size() > kHolders) break;
    text += (shown++ > 0 ? "; " : "") + one;
  }
  if (shown < segment.blocks) text += fmt::format("; {} more", number(segment.blocks - shown));
  return text;
}

void pinned_table(Page& page, const inspect::Fragmentation& parts) {
  if (parts.pinned.empty()) return;
  page.blank();
  page.head(fmt::format("{:>12}{:>12}{:>8}  {}", "free", "of segment", "blocks", "kept by (smallest first)"));
  for (std::size_t i = 0; i < std::min(parts.pinned.size(), kPinned); ++i) {
    const inspect::PinnedSegment& segment = parts.pinned[i];
    const std::string holders = holders_of(segment);
    page.line("{:>12}{:>12}{:>8}  {}", size_words(segment.free), size_words(segment.total), number(segment.blocks),
              holders);
  }
}

void leaks_table(Page& page, const inspect::Leaks& leaks) {
  if (leaks.found.empty()) return;
  page.blank();
  page.head(fmt::format("{:>12}{:>12}{:>9}  {}", "bytes a step", "held", "times", "leaks at"));
  for (const inspect::Leak& leak : leaks.found) {
    page.line("{:>12}{:>12}{:>9}  {}", size_words(leak.bytes_per_step), size_words(leak.held), number(leak.periods),
              one_line(leak.path, 100));
  }
}

void ranks_table(Page& page, const inspect::Ranks& ranks) {
  page.head(
      fmt::format("{:<44}{:>6}{:>12}{:>14}{:>14}{:>14}", "file", "GPU", "events", "peak", "reserved", "at the end"));
  for (std::size_t i = 0; i < ranks.all.size(); ++i) {
    const inspect::Rank& rank = ranks.all[i];
    if (!rank.error.empty()) {
      page.line("  {:<42} not read: {}", one_line(rank.source, 42), one_line(rank.error, 160));
      continue;
    }
    page.line("{} {:<42}{:>6}{:>12}{:>14}{:>14}{:>14}  {}", ranks.outlier == i ? "▶" : " ", one_line(rank.source, 42),
              rank.device, number(rank.events), size_words(rank.peak), size_words(rank.peak_reserved),
              size_words(rank.end), rank.ran_out ? "ran out of memory" : "");
  }
  page.line("  {:<60}{:>14}{:>14}", "total", size_words(ranks.peak_total), size_words(ranks.peak_reserved_total));
}
}  // namespace

std::string text(const Inspected& inspected, bool colour) {
  const Inspection& seen = inspected.inspection;
  Page page(colour);
  if (seen.oom) {
    out_of_memory(page, seen, *seen.oom);
    page.blank();
  }
  findings(page, seen);
  page.blank();
  // A recording mostly ends in the failure at its peak: that table has been shown.
  const bool told = seen.oom && seen.oom->live.bytes == seen.peak.bytes && seen.oom->event == seen.peak.event;
  if (!told) kinds_table(page, seen.has_history ? "At the peak" : "At the dump", seen.peak, false);
  paths_table(page, seen.peak);
  if (seen.has_segments) {
    page.blank();
    if (!seen.oom || seen.oom->recorded)
      sum(page, seen.has_history ? "Reserved at the end" : "Reserved at the dump", seen.at_end);
    if (seen.peak.event != seen.end.event) sum(page, "Reserved at the peak", seen.at_peak, false);
    pinned_table(page, seen.at_end);
  }
  leaks_table(page, seen.leaks);
  if (inspected.devices) {
    page.blank();
    page.line("Above: {}, whose peak is the highest.{}", inspected.environment.device,
              inspected.devices->sentence.empty() ? "" : " " + inspected.devices->sentence);
    ranks_table(page, *inspected.devices);
  }
  if (!inspected.written.empty()) page.line("Wrote {}", one_line(inspected.written));
  return page.take();
}

std::string text(const InspectedRanks& inspected, bool colour) {
  const inspect::Ranks& ranks = inspected.ranks;
  Page page(colour);
  if (!ranks.sentence.empty()) page.verdict(ranks.sentence, !ranks.outlier);
  page.blank();
  ranks_table(page, ranks);
  if (ranks.largest) {
    page.blank();
    page.line("Next: cinch inspect {}",
              internal::shell_word(inspected.source + "/" + ranks.all[*ranks.largest].source));
  }
  return page.take();
}
}  // namespace cinch::report
