#include "cinch/report/internal/card_text.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "cinch/core/text.h"
#include "cinch/report/internal/format.h"

namespace cinch::report::internal {
namespace {

using trace::Category;
using Kind = ActivationGroup::Kind;

std::string styled(const std::string& words, const char* code, bool colour) {
  return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, words) : words;
}

/// Of what this version has.
std::string_view shrinks_by(Category category) {
  return category == Category::kActivation ? "checkpointing, micro-batches" : "";
}
std::string_view shrinks_by(Kind kind) {
  return kind == Kind::kBlocks ? "checkpointing" : kind == Kind::kLogits ? "chunked loss, micro-batches" : "";
}

std::string group_name(const ActivationGroup& group) {
  switch (group.kind) {
    case Kind::kLogits:
      return "logits and their gradient";
    case Kind::kWeightCopies:
      return "copies of weights (autocast)";
    case Kind::kBlocks:
      return fmt::format("{} block{}, {}", group.count, group.count == 1 ? "" : "s", group.name);
    case Kind::kOther:
      break;
  }
  return group.name.empty() ? "outside modules" : group.name;
}

std::string row(std::string_view name, Bytes bytes, Bytes whole, const Unit& unit, std::string_view advice) {
  std::string line = fmt::format("  {:<46}{:>11}{:>8}  {}", name, in_unit(bytes, unit), share(bytes, whole), advice);
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string table(const Estimate& estimate, const Unit& unit, bool colour) {
  const PeakSummary& peak = estimate.peak;
  std::string out = "Peak: " + where(peak) + "\n" +
                    styled(fmt::format("{:<48}{:>11}{:>8}  {}", "", unit.name, "share", "can shrink by"), "1", colour) +
                    "\n";
  for (const Category category : display_order()) {
    const Bytes bytes = peak.categories[category];
    const bool gradient = category == Category::kGradient;
    if (bytes == Bytes() && !gradient) continue;
    const std::string note = category == Category::kParameter && estimate.parameters > 0
                                 ? with_thousands(estimate.parameters) + " numbers"
                             : gradient && bytes == Bytes() ? "(not yet allocated)"
                                                            : "";
    out += row(fmt::format("{:<17}{}", label(category), note), bytes, peak.requested, unit, shrinks_by(category));
  }
  if (!estimate.groups.empty()) out += "  of activations and temporaries:\n";
  for (const ActivationGroup& group : estimate.groups)
    out += row("  " + one_line(group_name(group), 42), group.bytes, peak.requested, unit, shrinks_by(group.kind));
  out += row("tensors", peak.requested, peak.requested, unit, "");
  return out + "  " + beside_tensors(peak, unit) + "\n";
}

std::string versus(double step, double plain) {
  if (!(plain > 0) || !std::isfinite(step)) return "?";
  return fmt::format("{:+.0f} %", 100 * (step / plain - 1));
}

std::string trials(const Estimate& estimate, const Unit& unit, bool colour) {
  if (estimate.suggestions.empty()) return "";
  const std::size_t width = internal::change_width(estimate.suggestions, 46);
  std::string out = "\n" +
                    styled(fmt::format("{:<{}}{:>11}{:>8}  {}", estimate.fits ? "Could be smaller" : "Try first",
                                       width + 2, fmt::format("peak {}", unit.name), "step", "result"),
                           "1", colour) +
                    "\n";
  bool lossy = false;
  for (const Suggestion& suggestion : estimate.suggestions) {
    const bool marked = suggestion.equivalence == plan::Equivalence::kLossy;
    lossy = lossy || marked;
    out += fmt::format("  {:<{}}{:>11}{:>8}  {}{}{}\n", one_line(suggestion.change, width), width,
                       in_unit(suggestion.peak, unit), versus(suggestion.step_seconds, estimate.step_seconds),
                       suggestion.fits ? "FITS, " : "no: too much, ", result_of(suggestion), marked ? "*" : "");
  }
  if (lossy) out += "* would give: another arithmetic, so only if you ask for it\n";
  return out;
}

std::string place(const OutOfMemoryPlace& out_of_memory) {
  const std::string phase = out_of_memory.phase == trace::Phase::kInit
                                ? "initialization"
                                : fmt::format("{} of step {}", name_of(out_of_memory.phase), out_of_memory.step);
  std::string at = one_line(out_of_memory.module.empty() ? out_of_memory.op : out_of_memory.module, 60);
  if (!at.empty()) at = " at " + at;
  return fmt::format("Runs out in {}{}, asking {}.\n", phase, at, to_string(out_of_memory.asked));
}
}  // namespace

std::string card_text(const Estimate& estimate, bool colour) {
  const Unit unit = unit_for(estimate.peak.needed());
  std::string out =
      styled((estimate.fits ? "FITS: " : "DOES NOT FIT: ") + needs(estimate.peak.needed(), estimate.budget),
             estimate.fits ? "1;32" : "1;31", colour);
  out += fmt::format("   ({}, nothing allocated)\n", seconds(estimate.elapsed_seconds));
  if (!estimate.budget_given) out += "  " + budget_note(estimate) + "\n";
  if (estimate.runs_out) out += "  " + place(*estimate.runs_out);
  for (const std::string& sentence : inexact(estimate)) out += "  " + sentence + "\n";
  out += "\n" + table(estimate, unit, colour) + trials(estimate, unit, colour);
  if (estimate.step_seconds > 0)
    out += fmt::format("\nA plain step takes {} or more: the data sheet's rates, not measured.\n",
                       seconds(estimate.step_seconds));
  const std::string next = next_command(estimate);
  return out + (next.empty() ? "" : (estimate.step_seconds > 0 ? "Next: " : "\nNext: ") + next + "\n");
}
}  // namespace cinch::report::internal
