#include "cinch/report/oom_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "cinch/core/text.h"
#include "cinch/core/version.h"
#include "cinch/report/internal/page.h"

namespace cinch::report {
namespace {

using inspect::OomError;
using inspect::Printed;
using inspect::Verdict;
using nlohmann::ordered_json;
using Source = OomError::Source;

constexpr std::size_t kWidth = 120;            // Columns of a terminal.
constexpr std::size_t kProcesses = 4;          // That are named one by one.
constexpr Bytes kMuch(std::int64_t{1} << 30);  // Beside PyTorch's own: more than contexts and libraries usually take.

constexpr std::array<std::string_view, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};

std::size_t unit_of(Bytes bytes) {
  std::size_t unit = 0;
  for (std::int64_t rest = std::abs(bytes.count()); rest >= 1024 && unit + 1 < kUnits.size(); rest /= 1024) ++unit;
  return unit;
}

/// "22.78 GiB", with PyTorch's two decimals: such figures can be added by eye.
std::string size(Bytes bytes, std::optional<std::size_t> unit = {}) {
  const std::size_t u = unit.value_or(unit_of(bytes));
  if (u == 0) return fmt::format("{} bytes", bytes.count());
  const double value = static_cast<double>(bytes.count()) / static_cast<double>(std::int64_t{1} << (10 * u));
  return fmt::format("{:.2f} {}", value, kUnits[u]);
}

std::string wrapped(std::string_view words) {
  std::string lines;
  std::size_t column = 0;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (column > 0 && column + 1 + end > kWidth) {
      lines += '\n';
      column = 0;
    } else if (column > 0) {
      lines += ' ';
      ++column;
    }
    lines += words.substr(0, end);
    column += end;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return lines;
}

std::string_view advice_words(const OomError& error) {
  return error.advice == "expandable_segments:True" ? "expandable segments" : std::string_view(error.advice);
}

bool advises_allocator(const OomError& error) {
  return error.advice == "expandable_segments:True" || error.advice == "max_split_size_mb";
}

/// What shows who holds the card.
std::string_view monitor(const OomError& error) {
  return error.source == Source::kHip ? "rocm-smi" : error.source == Source::kXpu ? "xpu-smi" : "nvidia-smi";
}

std::string_view fraction_call(const OomError& error) {
  return error.source == Source::kXpu ? "torch.xpu.set_per_process_memory_fraction"
                                      : "torch.cuda.set_per_process_memory_fraction";
}

bool for_small_tensors(const OomError& error) { return error.asked->bytes.count() == 2 << 20; }

/// "asked 22.78 GiB; 12.73 GiB free on the card + 9.35 GiB reserved but unallocated = 22.08 GiB."
std::string figures(const OomError& error) {
  if (!error.asked) return "No figures in this message.";
  const std::string asked = "asked " + size(error.asked->bytes);
  if (error.source == Source::kMps && error.allowed) {
    return fmt::format("{}; {} of {} allowed are in use.", asked, size(error.allocated.value_or(Printed{}).bytes),
                       size(error.allowed->bytes));
  }
  if (!error.room) return asked + (error.free ? "; " + size(error.free->bytes) + " free on the card." : ".");
  const std::size_t unit = std::max(unit_of(error.asked->bytes), unit_of(error.room->bytes));
  const std::string room = size(error.room->bytes, unit);
  if (!error.free || !error.unallocated) {
    return fmt::format("{}; of {} on the card {} is allocated: at most {} was left.", asked,
                       size(error.capacity->bytes), size(error.allocated->bytes), room);
  }
  const Bytes usable = error.room->bytes - error.unallocated->bytes;
  const std::string free = usable < error.free->bytes
                               ? size(usable) + " left of the " + size(error.allowed->bytes) + " allowed"
                               : size(usable) + " free on the card";
  return fmt::format("{}; {} + {} reserved but unallocated = {}.", asked, free, size(error.unallocated->bytes), room);
}

struct Judgement {
  std::string headline, rest;
};

Judgement no_setting(const OomError& error) {
  if (error.source == Source::kCpu) {
    return {"NO ALLOCATOR SETTING HELPS:",
            "this is memory of the host, and the operating system refused it to this program."};
  }
  if (error.block_limit && !error.short_by) {
    return {"NO ALLOCATOR SETTING HELPS:",
            fmt::format("one allocation may not be larger than {} there.", size(error.block_limit->bytes))};
  }
  const Bytes missing = error.short_by->bytes;
  std::string amount = size(missing, unit_of(error.asked->bytes));
  if (amount.starts_with("0.00")) amount = size(missing);
  std::string rest = fmt::format("even with no fragmentation it is {} short.", amount);
  if (error.asked_is_segment) {
    rest += " (With another setting this tensor may get in, and one of the next fails instead.)";
  } else if (advises_allocator(error)) {
    rest += fmt::format(" (The advice in the message, {}, would not have fixed it.)", advice_words(error));
  }
  return {"NO ALLOCATOR SETTING HELPS:", rest};
}

Judgement some_setting(const OomError& error) {
  if (error.source == Source::kMps) {
    return {"A SETTING LIFTS THE LIMIT:",
            "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0. The system may then swap, or fail as a whole."};
  }
  std::string rest = "enough was there, but not in one piece. ";
  if (error.source == Source::kXpu) {
    rest += "Emptying the cache between phases may join the pieces.";
  } else if (error.advice == "expandable_segments:True") {
    rest +=
        "Try the message's advice, expandable segments; if they are on already, record a snapshot and let `cinch "
        "replay --grid` find out.";
  } else {
    rest += "expandable_segments:True (PyTorch 2.1 and later) makes free memory usable wherever it lies";
    rest +=
        error.advice.empty() ? "." : "; max_split_size_mb, which the message advises, only keeps large blocks whole.";
  }
  return {"A SETTING MAY HELP:", rest};
}

Judgement not_fragmentation(const OomError& error) {
  return {"NOT FRAGMENTATION:",
          fmt::format(
              "the card had room (asked {}, free {}), and the driver refused all the same. Another program may have "
              "held it a moment before: watch {} while it happens, and try again. Or there is a limit, on this program "
              "or on one allocation: MIG, WSL, a container or virtual machine, a fraction set by {}.",
              size(error.asked->bytes), size(error.free->bytes), monitor(error), fraction_call(error))};
}

Judgement cannot_tell(const OomError& error) {
  if (error.source == Source::kDriver) {
    return {"CANNOT BE TOLD:",
            "the driver, or a library on it, refused memory outside PyTorch's allocator and gave no figures. What "
            "PyTorch keeps cached can be in its way: torch.cuda.set_per_process_memory_fraction(0.95) leaves it room."};
  }
  if (!error.asked || !error.room) {
    return {"CANNOT BE TOLD:", "the message, or what was pasted of it, leaves out the figures that decide."};
  }
  if (!error.free) return {"CANNOT BE TOLD:", "the message does not say what was free on the card."};
  if (!error.unallocated) return {"CANNOT BE TOLD:", "the message does not say what is reserved but unallocated."};
  const Bytes missing = error.asked->most - error.room->least, spare = error.room->most - error.asked->least;
  return {"CANNOT BE TOLD FROM THESE FIGURES:",
          fmt::format("they are rounded, and it was anywhere from {} short to {} to spare. A little less of anything "
                      "makes it fit.",
                      size(missing), size(spare))};
}

Judgement judgement(const OomError& error) {
  switch (error.verdict) {
    case Verdict::kNo:
      return no_setting(error);
    case Verdict::kPossible:
      return some_setting(error);
    case Verdict::kNotFragmentation:
      return not_fragmentation(error);
    case Verdict::kUncertain:
      break;
  }
  return cannot_tell(error);
}

struct Note {
  std::string text;
  Bytes bytes;
  std::string action;
};

void note_processes(const OomError& error, std::vector<Note>& notes) {
  std::vector<OomError::Process> others;
  Bytes sum;
  for (const OomError::Process& process : error.processes) {
    if (process.perhaps_this) {
      notes.push_back(
          {fmt::format("Process {} ({}) is probably this program: in a container it does not know its own number.",
                       process.id, size(process.in_use.bytes)),
           process.in_use.bytes, ""});
      continue;
    }
    others.push_back(process);
    sum += process.in_use.bytes;
  }
  if (others.empty()) return;
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.in_use.bytes > b.in_use.bytes; });
  std::string names;
  for (std::size_t i = 0; i < std::min(others.size(), kProcesses); ++i) {
    names += fmt::format("{}process {} {}", i > 0 ? ", " : "", others[i].id, size(others[i].in_use.bytes));
  }
  if (others.size() > kProcesses) names += fmt::format(", {} more", others.size() - kProcesses);
  const bool enough = error.short_by && sum >= error.short_by->bytes;
  notes.push_back({fmt::format("Other programs hold {} of this card: {}.{}", size(sum), names,
                               enough ? " Without them it would have fitted." : ""),
                   sum, "Stop them, or take another card."});
}

Bytes quarter(Bytes bytes) { return Bytes(bytes.count() / 4); }

/// Held by what the message does not name, where that is more than contexts and libraries usually take, or much of the
/// card.
std::optional<Note> held_elsewhere(const OomError& error) {
  if (!error.elsewhere || error.elsewhere->least < std::min(kMuch, quarter(error.capacity->bytes))) return {};
  const bool enough = error.short_by && error.elsewhere->least >= error.short_by->most;
  return Note{fmt::format("{} of the card is neither free nor this program's{}: another program, contexts, NCCL.{}",
                          size(error.elsewhere->bytes), error.this_process ? "" : " PyTorch",
                          enough ? " Without it it would have fitted." : ""),
              error.elsewhere->bytes, fmt::format("See {}.", monitor(error))};
}

/// So much that it comes before everything else.
bool leads(const OomError& error) { return error.elsewhere->bytes >= std::max(kMuch, quarter(error.capacity->bytes)); }

void note_segment(const OomError& error, std::vector<Note>& notes) {
  if (!error.asked_is_segment) return;
  notes.push_back({fmt::format("{} is the segment that PyTorch takes for a tensor {}, not the tensor{}.",
                               size(error.asked->bytes), for_small_tensors(error) ? "of up to 1 MiB" : "of 1 to 10 MiB",
                               for_small_tensors(error) ? "" : " (unless that has 18 to 20 MiB)"),
                   error.asked->bytes, ""});
}

std::vector<Note> notes_on(const OomError& error) {
  std::vector<Note> notes;
  if (const auto elsewhere = held_elsewhere(error); elsewhere && !leads(error)) notes.push_back(*elsewhere);
  note_segment(error, notes);
  if (error.asked && error.capacity && error.asked->least > error.capacity->most) {
    notes.push_back({fmt::format("This one allocation is larger than the card ({}).", size(error.capacity->bytes)),
                     error.asked->bytes - error.capacity->bytes,
                     "Make it in parts: a smaller batch, a shorter sequence, attention without its full matrix."});
  }
  note_processes(error, notes);
  if (error.allowed && error.source != Source::kMps) {
    notes.push_back({fmt::format("A memory fraction allows this program {} of the card.", size(error.allowed->bytes)),
                     error.allowed->bytes,
                     fmt::format("Raise it ({}), if the rest of the card is free.", fraction_call(error))});
  }
  if (error.private_pools) {
    notes.push_back({fmt::format("Private pools (CUDA graphs) keep {} that no other request may have.",
                                 size(error.private_pools->bytes)),
                     error.private_pools->bytes, "Capture fewer sizes, or let graphs share a pool."});
  }
  if (error.allocated && error.capacity && error.allocated->least > error.capacity->most) {
    notes.push_back(
        {fmt::format("More is allocated ({}) than the card has ({}): the driver moved the rest to host memory.",
                     size(error.allocated->bytes), size(error.capacity->bytes)),
         error.allocated->bytes - error.capacity->bytes, ""});
  } else if (error.this_process && error.allocated && error.unallocated) {
    const Bytes beside = error.this_process->bytes - error.allocated->bytes - error.unallocated->bytes;
    if (beside > kMuch) {
      notes.push_back({fmt::format("{} of this program is not PyTorch's: contexts, libraries, communication buffers.",
                                   size(beside)),
                       beside, ""});
    }
  }
  if (error.source == Source::kCpu) {
    notes.push_back(
        {"What helps is fewer loader workers, smaller batches, data read in parts; or a larger machine.", Bytes(), ""});
  } else if (error.source == Source::kCuda && error.verdict != Verdict::kNotFragmentation) {
    notes.push_back(
        {"What to shrink, the message does not say.", Bytes(), "Record a snapshot: cinch record -- python train.py"});
  }
  return notes;
}

std::string words_of(const Note& note) {
  return note.text + (note.text.empty() || note.action.empty() ? "" : " ") + note.action;
}

ordered_json bytes_or_null(const std::optional<Printed>& figure) {
  return figure ? ordered_json(figure->bytes.count()) : ordered_json(nullptr);
}

std::string_view name_of(Source source) {
  constexpr std::array<std::string_view, 7> names = {"cuda", "hip", "xpu", "mps", "cuda_malloc_async", "cpu", "driver"};
  return names[static_cast<std::size_t>(source)];
}

/// Null where the figures leave it open: too coarse, or a refusal that memory does not explain.
ordered_json helps(Verdict verdict) {
  const bool open = verdict == Verdict::kUncertain || verdict == Verdict::kNotFragmentation;
  return open ? ordered_json(nullptr) : ordered_json(verdict == Verdict::kPossible);
}

std::string_view name_of(Verdict verdict) {
  constexpr std::array<std::string_view, 4> names = {"a_setting_may_help", "no_setting_helps", "not_fragmentation",
                                                     "cannot_tell"};
  return names[static_cast<std::size_t>(verdict)];
}

ordered_json range_of(const OomError& error) {
  if (!error.short_by_range) return nullptr;
  return {error.short_by_range->first.count(), error.short_by_range->second.count()};
}

ordered_json oom_object(const OomError& error) {
  ordered_json processes = ordered_json::array();
  for (const OomError::Process& process : error.processes) {
    processes.push_back(
        {{"id", process.id}, {"bytes", process.in_use.bytes.count()}, {"perhaps_this", process.perhaps_this}});
  }
  return {{"asked_bytes", bytes_or_null(error.asked)},
          {"free_bytes", bytes_or_null(error.free)},
          {"short_by_bytes", bytes_or_null(error.short_by)},
          {"short_by_range_bytes", range_of(error)},
          {"any_setting_helps", helps(error.verdict)},
          {"verdict", name_of(error.verdict)},
          {"source", name_of(error.source)},
          {"device", error.device ? ordered_json(*error.device) : ordered_json(nullptr)},
          {"capacity_bytes", bytes_or_null(error.capacity)},
          {"allowed_bytes", bytes_or_null(error.allowed)},
          {"allocated_bytes", bytes_or_null(error.allocated)},
          {"unallocated_bytes", bytes_or_null(error.unallocated)},
          {"private_pools_bytes", bytes_or_null(error.private_pools)},
          {"this_process_bytes", bytes_or_null(error.this_process)},
          {"elsewhere_bytes", bytes_or_null(error.elsewhere)},
          {"room_bytes", bytes_or_null(error.room)},
          {"advice", error.advice},
          {"processes", processes},
          {"offset", error.offset},
          {"times", error.times}};
}

std::string device_of(const OomError& error) {
  if (error.source == Source::kCpu) return "cpu";
  return error.device ? fmt::format("GPU {}", *error.device) : "GPU";
}

/// "Error 2 of 3, 4 times in this text:"
std::string title(const inspect::OomReport& report, std::size_t i) {
  return fmt::format("Error {} of {}{}:", i + 1, report.errors.size(),
                     report.errors[i].times > 1 ? fmt::format(", {} times in this text", report.errors[i].times) : "");
}
}  // namespace

std::string text(const inspect::OomReport& report, bool colour) {
  std::string lines;
  for (std::size_t i = 0; i < report.errors.size(); ++i) {
    const OomError& error = report.errors[i];
    if (report.errors.size() > 1) lines += (i > 0 ? "\n" : "") + title(report, i) + "\n";
    const Judgement said = judgement(error);
    std::string verdict = wrapped(said.headline + " " + said.rest);
    if (colour) {
      const int tint = error.verdict == Verdict::kNo ? 31 : error.verdict == Verdict::kPossible ? 32 : 33;
      verdict = fmt::format("\x1b[1;{}m{}\x1b[0m{}", tint, said.headline, verdict.substr(said.headline.size()));
    }
    if (const auto elsewhere = held_elsewhere(error); elsewhere && leads(error)) {
      lines += wrapped(words_of(*elsewhere)) + "\n";
    }
    lines += wrapped(figures(error)) + "\n" + verdict + "\n";
    for (const Note& note : notes_on(error)) lines += wrapped(words_of(note)) + "\n";
  }
  return lines;
}

std::string json(const inspect::OomReport& report, const Environment& environment, std::string_view source) {
  ordered_json errors = ordered_json::array(), findings = ordered_json::array();
  for (const OomError& error : report.errors) errors.push_back(oom_object(error));
  const OomError& first = report.errors.front();
  const Judgement said = judgement(first);
  const auto elsewhere = held_elsewhere(first);
  if (elsewhere && leads(first)) {
    findings.push_back({{"text", elsewhere->text}, {"bytes", elsewhere->bytes.count()}, {"action", elsewhere->action}});
  }
  findings.push_back({{"text", figures(first) + " " + said.headline + " " + said.rest},
                      {"bytes", first.short_by ? first.short_by->bytes.count() : 0},
                      {"action", ""}});
  for (const Note& note : notes_on(first)) {
    findings.push_back({{"text", note.text}, {"bytes", note.bytes.count()}, {"action", note.action}});
  }
  const ordered_json document = {{"schema", "cinch.inspect/1"},
                                 {"cinch", kVersion},
                                 {"libtorch", environment.libtorch},
                                 {"device", device_of(first)},
                                 {"threads", environment.threads},
                                 {"source", source},
                                 {"events", 0},
                                 {"peak", nullptr},
                                 {"categories_at_peak", nullptr},
                                 {"fragmentation", nullptr},
                                 {"leaks", ordered_json::array()},
                                 {"oom", oom_object(first)},
                                 {"errors", errors},
                                 {"findings", findings}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string html(const inspect::OomReport& report, const Environment& environment, std::string_view source) {
  std::string body;
  for (std::size_t i = 0; i < report.errors.size(); ++i) {
    const OomError& error = report.errors[i];
    const Judgement said = judgement(error);
    body += internal::verdict(said.headline, error.verdict == Verdict::kPossible, said.rest);
    std::string notes;
    if (const auto elsewhere = held_elsewhere(error); elsewhere && leads(error)) {
      notes += "<p>" + internal::escape(words_of(*elsewhere)) + "</p>\n";
    }
    for (const Note& note : notes_on(error)) notes += "<p>" + internal::escape(words_of(note)) + "</p>\n";
    body +=
        internal::section(report.errors.size() > 1 ? title(report, i) : "What the message says", figures(error), notes);
  }
  return internal::page("out of memory", environment, source, body);
}
}  // namespace cinch::report
