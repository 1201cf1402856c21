#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cinch/core/text.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/replay.h"

namespace cinch::report {
namespace {

using allocator::WhatIf;
using internal::exact;
using internal::in_unit;
using internal::one_line;

constexpr std::size_t kRows = 14, kSettingWidth = 56;

std::string bold(const std::string& words, bool colour) { return colour ? "\x1b[1m" + words + "\x1b[0m" : words; }
std::string verdict(const std::string& words, bool good, bool colour) {
  return colour ? fmt::format("\x1b[1;{}m{}\x1b[0m", good ? 32 : 31, words) : words;
}

std::string name_of(const allocator::Settings& settings) {
  const std::string conf = settings.to_string();
  return conf.empty() ? "PyTorch's defaults" : conf;
}

std::string agreement(const Replayed& replayed, bool colour) {
  const std::string origin =
      fmt::format("   ({}, {}{}, {})\n", one_line(replayed.source), replayed.environment.device,
                  replayed.other_devices > 0 ? fmt::format(" of {}", replayed.other_devices + 1) : "",
                  internal::seconds(replayed.elapsed_seconds));
  const auto events = static_cast<std::int64_t>(replayed.events);
  if (!replayed.verdict) {
    return bold(fmt::format("{} events of a trace without addresses: predicted, not compared", with_thousands(events)),
                colour) +
           origin;
  }
  const auto mismatches = static_cast<std::int64_t>(replayed.verdict->mismatches);
  if (mismatches == 0) {
    return verdict(fmt::format("Model and recording agree: {} events, 0 mismatches", with_thousands(events)), true,
                   colour) +
           origin;
  }
  return verdict(fmt::format("Model and recording DIFFER: {} events, {} mismatches", with_thousands(events),
                             with_thousands(mismatches)),
                 false, colour) +
         origin + "  first: " + one_line(replayed.verdict->first) +
         "\n  Figures below are the model's: another PyTorch, or settings that the recording does not state.\n";
}

std::string range(const allocator::Interval& interval, const internal::Unit& unit) {
  const std::string low = in_unit(interval.low, unit), high = in_unit(interval.high, unit);
  return low == high ? high : low + "–" + high;
}

std::string outcome(const WhatIf& run) {
  if (!run.failure) return "-";
  if (run.failure->at_start) return "at the start";
  return fmt::format(
      "event {}{}", with_thousands(static_cast<std::int64_t>(run.failure->event)),
      run.orders_failed < run.orders ? fmt::format(" ({} of {} orders)", run.orders_failed, run.orders) : "");
}

/// fmt pads by code points, so that the dash of a range keeps columns straight.
std::string row(const std::string& mark, const std::string& setting, const std::string& allocated,
                const std::string& reserved, const std::string& against, const std::string& retries,
                const std::string& end) {
  std::string line =
      fmt::format("{} {:<56} {:>11} {:>12} {:>8} {:>7}  {}", mark, setting, allocated, reserved, against, retries, end);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string run_row(const Replayed& replayed, const WhatIf& run, const internal::Unit& unit, bool is_now) {
  const bool chosen = replayed.recommended && !is_now && *replayed.recommended == run.settings;
  const double before = static_cast<double>(replayed.now.peak_reserved.high.count()),
               change = static_cast<double>(run.peak_reserved.high.count()) - before;
  const bool comparable = !is_now && before > 0 && !run.failure && !replayed.now.failure;
  const std::string setting = is_now ? "now: " + name_of(run.settings) : name_of(run.settings);
  const std::string mark = chosen ? "▶" : " ";
  const bool wide = setting.size() > kSettingWidth;  // Cut, it would be some other setting: it gets a line of its own.
  return (wide ? mark + " " + setting + "\n" : "") +
         row(wide ? " " : mark, wide ? "" : setting, range(run.peak_allocated, unit), range(run.peak_reserved, unit),
             comparable ? fmt::format("{:+.1f} %", 100 * change / before) : "", fmt::format("{}", run.alloc_retries),
             outcome(run));
}

bool same(const allocator::Interval& left, const allocator::Interval& right) {
  return left.low == right.low && left.high == right.high;
}

/// A setting of the grid that changes nothing; those that were asked for by name are shown all the same.
bool without_effect(const Replayed& replayed, const WhatIf& run) {
  const WhatIf& now = replayed.now;
  return replayed.searched && same(run.peak_allocated, now.peak_allocated) &&
         same(run.peak_reserved, now.peak_reserved) && run.alloc_retries == now.alloc_retries &&
         outcome(run) == outcome(now);
}

std::string table(const Replayed& replayed, bool colour) {
  Bytes largest = replayed.now.peak_reserved.high;
  for (const WhatIf& run : replayed.runs) largest = std::max(largest, run.peak_reserved.high);
  const internal::Unit unit = internal::unit_for(largest);
  std::string text = bold(row(" ", fmt::format("Setting ({} tried), peaks in {}", replayed.tried, unit.name),
                              "allocated", "reserved", "vs now", "retries", "runs out"),
                          colour);
  text += run_row(replayed, replayed.now, unit, true);
  std::size_t rows = 0, idle = 0;
  bool ranges = false;
  for (const WhatIf& run : replayed.runs) {
    if (without_effect(replayed, run)) {
      ++idle;
    } else if (++rows <= kRows) {
      text += run_row(replayed, run, unit, false);
      ranges = ranges || run.peak_allocated.low != run.peak_allocated.high ||
               run.peak_reserved.low != run.peak_reserved.high;
    }
  }
  if (rows > kRows) text += fmt::format("  … {} more: --json has them\n", rows - kRows);
  if (idle > 0) text += fmt::format("  {} settings change nothing: --json has them\n", idle);
  if (ranges) text += "  Ranges: over several orders of addresses that the driver may choose.\n";
  return text;
}

const WhatIf& run_of(const Replayed& replayed, const allocator::Settings& settings) {
  const auto found = std::find_if(replayed.runs.begin(), replayed.runs.end(),
                                  [&](const WhatIf& run) { return run.settings == settings; });
  return found == replayed.runs.end() ? replayed.now : *found;
}

/// "51.70 GiB reserved at the peak instead of 56.91 GiB (-9.2 %)".
std::string gain(const WhatIf& run, const WhatIf& now) {
  if (now.failure) return fmt::format("does not run out, {} reserved at the peak", to_string(run.peak_reserved.high));
  if (run.alloc_retries < now.alloc_retries) {
    return fmt::format("{} retries instead of {}", run.alloc_retries, now.alloc_retries);
  }
  const Bytes before = now.peak_reserved.high, after = run.peak_reserved.high;
  return fmt::format("{} reserved at the peak instead of {}: {} less", to_string(after), to_string(before),
                     to_string(before - after));
}

/// Nothing fits: by arithmetic, or as far as was tried.
std::string refusal(const Replayed& replayed, bool colour) {
  const allocator::RanOut& failure = *replayed.now.failure;
  const std::string capacity = to_string(*replayed.capacity);
  const std::string now = fmt::format("now it runs out {}, asking {} with {} live.",
                                      failure.at_start ? "before the recording begins" : "at " + outcome(replayed.now),
                                      to_string(failure.asked), to_string(failure.live));
  if (replayed.verdict && replayed.verdict->stats.peak_requested > *replayed.capacity) {
    const Bytes needed = replayed.verdict->stats.peak_requested;
    return verdict("NO ALLOCATOR SETTING FITS " + capacity, false, colour) +
           fmt::format(": tensors alone need {}, {} more; {}\n", exact(needed), to_string(needed - *replayed.capacity),
                       now);
  }
  return verdict("NO SETTING TRIED FITS " + capacity, false, colour) + fmt::format(": {}\n", now);
}

std::string advice(const Replayed& replayed, bool colour) {
  if (replayed.recommended) {
    const WhatIf& run = run_of(replayed, *replayed.recommended);
    return verdict("RECOMMENDED: " + name_of(run.settings), true, colour) +
           fmt::format(" ({})\n", gain(run, replayed.now));
  }
  if (replayed.capacity && !replayed.fits()) return refusal(replayed, colour);
  if (!replayed.searched) return "";
  return "No setting that was tried is worth changing: less than 1 % and no retry to save.\n";
}

/// What none of them can go below.
std::string floor_line(const Replayed& replayed) {
  if (!replayed.verdict || replayed.now.failure) return "";
  const Bytes requested = replayed.verdict->stats.peak_requested;
  return fmt::format(
      "Tensors alone need {} at the peak; {} are reserved now, {} more. No setting goes below the first.\n",
      exact(requested), exact(replayed.now.peak_reserved.high), to_string(replayed.now.peak_reserved.high - requested));
}

std::string capacity_line(const Replayed& replayed) {
  if (!replayed.capacity) return "";
  return fmt::format(
      "  The process may reserve {} ({}).\n", to_string(*replayed.capacity),
      replayed.capacity_given ? "--capacity; the CUDA context comes on top" : "what it had when the recording ran out");
}
/// Keys that older versions of PyTorch refuse.
std::string since(const allocator::Settings& settings) {
  const std::string conf = settings.to_string();
  std::string text;
  for (const auto& [key, version] : {std::pair{"large_segment_size_mb", "2.11"},
                                     {"max_non_split_rounding_mb", "2.6"},
                                     {"expandable_segments", "2.1"}}) {
    if (conf.find(key) != std::string::npos) text += fmt::format("{} needs PyTorch {}. ", key, version);
  }
  return text.empty() ? text : text.substr(0, text.size() - 1) + "\n";
}
}  // namespace

bool Replayed::fits() const {
  return !now.failure || std::any_of(runs.begin(), runs.end(), [](const WhatIf& run) { return !run.failure; });
}

std::string text(const Replayed& replayed, bool colour) {
  std::string text = agreement(replayed, colour) + capacity_line(replayed) + advice(replayed, colour);
  text += "\n" + table(replayed, colour);
  const std::string floor = floor_line(replayed);
  if (!floor.empty()) text += "\n" + floor;
  if (replayed.recommended) {
    text += since(*replayed.recommended);
    text += fmt::format("Next: export PYTORCH_CUDA_ALLOC_CONF={}\n",
                        internal::shell_word(replayed.recommended->to_string()));
  } else if (!replayed.searched) {
    text += fmt::format("Next: cinch replay {} --grid\n", internal::shell_word(replayed.source));
  }
  return text;
}
}  // namespace cinch::report
