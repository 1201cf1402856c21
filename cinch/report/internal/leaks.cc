#include "cinch/report/internal/leaks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cinch/core/text.h"
#include "cinch/inspect/words.h"
#include "cinch/report/internal/format.h"

namespace cinch::report::internal {
namespace {

using inspect::Leak;
using inspect::Leaks;
using inspect::PeriodSource;
using inspect::size_words;
using nlohmann::ordered_json;

std::string_view name_of(PeriodSource source) {
  constexpr std::array<std::string_view, 5> names = {"none", "steps", "optimizer", "forward", "pattern"};
  return names[static_cast<std::size_t>(source)];
}

std::string_view period_word(const Leaks& leaks) {
  return leaks.source == PeriodSource::kPattern   ? "period"
         : leaks.source == PeriodSource::kForward ? "forward pass"
                                                  : "step";
}

std::string counted(std::size_t number, std::string_view what) {
  const std::string_view plural = number == 1 ? "" : what.ends_with("s") ? "es" : "s";
  return fmt::format("{} {}{}", with_thousands(static_cast<std::int64_t>(number)), what, plural);
}

/// How sure one may be: over what was looked.
std::string basis(const Leaks& leaks) {
  const std::string periods = counted(leaks.periods, period_word(leaks));
  return leaks.source == PeriodSource::kPattern ? periods + ", by what comes back regularly" : periods;
}
}  // namespace

std::string leaks_sentence(const Leaks& leaks) {
  if (leaks.source == PeriodSource::kNone || leaks.periods < 3) {
    return "Leaks: the recording holds no three steps, from which alone one could be told.";
  }
  if (leaks.found.empty()) return fmt::format("No leak: over {} nothing is kept for good.", basis(leaks));
  std::string sentence = fmt::format("LEAK: {} more with every {}, from {} ({}).", size_words(leaks.bytes_per_step),
                                     period_word(leaks), counted(leaks.found.size(), "call path"), basis(leaks));
  if (leaks.steps_until_full && leaks.capacity) {
    sentence += *leaks.steps_until_full == 0
                    ? fmt::format(" It is already past {}.", size_words(*leaks.capacity))
                    : fmt::format(" {} is full {} later.", size_words(*leaks.capacity),
                                  counted(static_cast<std::size_t>(*leaks.steps_until_full), period_word(leaks)));
  }
  return sentence;
}

std::string leaks_text(const Leaks& leaks, std::size_t paths) {
  std::string lines = leaks_sentence(leaks) + "\n";
  if (leaks.found.empty()) return lines;
  lines += fmt::format("  {:>14}{:>12}{:>14}  {}\n", fmt::format("bytes a {}", period_word(leaks)), "tensors", "held",
                       "call path");
  Bytes rest;
  for (std::size_t i = 0; i < leaks.found.size(); ++i) {
    const Leak& leak = leaks.found[i];
    if (i >= paths) {
      rest += leak.bytes_per_step;
      continue;
    }
    const std::string tensors =
        leak.kind == Leak::Kind::kGrowing ? "larger" : fmt::format("{:.3g}", leak.allocations_per_step);
    lines += fmt::format("  {:>14}{:>12}{:>14}  {}\n", with_thousands(leak.bytes_per_step.count()), tensors,
                         size_words(leak.held), one_line(leak.path, 76));
  }
  if (leaks.found.size() > paths) {
    lines += fmt::format("  {:>14}{:>12}{:>14}  {} more\n", with_thousands(rest.count()), "", "",
                         leaks.found.size() - paths);
  }
  if (leaks.graph_kept) {
    lines +=
        "  Many tensors of one step live on together: a loss kept with its graph (total += loss) does that; keep "
        "loss.item().\n";
  }
  return lines;
}

ordered_json leaks_array(const Leaks& leaks) {
  ordered_json array = ordered_json::array();
  for (const Leak& leak : leaks.found) {
    array.push_back({{"path", leak.path},
                     {"kind", leak.kind == Leak::Kind::kKept ? "kept" : "growing"},
                     {"phase", trace::name_of(leak.phase)},
                     {"bytes_per_step", leak.bytes_per_step.count()},
                     {"allocations_per_step", leak.allocations_per_step},
                     {"held_bytes", leak.held.count()},
                     {"periods", leak.periods}});
  }
  return array;
}

ordered_json leaks_summary(const Leaks& leaks) {
  return {{"period_source", name_of(leaks.source)},
          {"periods", leaks.periods},
          {"bytes_per_step", leaks.bytes_per_step.count()},
          {"steps_until_full", leaks.steps_until_full ? ordered_json(*leaks.steps_until_full) : ordered_json(nullptr)},
          {"graph_kept", leaks.graph_kept}};
}
}  // namespace cinch::report::internal
