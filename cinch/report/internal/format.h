#pragma once
// Words and figures that the text and the HTML reports share.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/core/text.h"
#include "cinch/report/summaries.h"

namespace cinch::report::internal {

/// Categories in the order in which reports list and stack them: what stays first, what passes last.
std::span<const trace::Category> display_order();
/// "optimizer state".
std::string_view label(trace::Category category);

/// "layers.3.attention" → "layers.*.attention".
std::string pattern(const std::string& path);

/// One unit for a whole column, so that its figures can be compared.
struct Unit {
  double bytes;
  std::string_view name;  ///< "MiB"
  int decimals;
};
Unit unit_for(Bytes largest);
/// "1,239.8", without the unit's name.
std::string in_unit(Bytes bytes, const Unit& unit);
/// "1,234 B".
std::string exact(Bytes bytes);
/// "12 %"; "<1 %" for what is more than nothing; "" of nothing.
std::string share(Bytes part, Bytes whole);
/// "85 ms", "0.41 s", "3 min 12 s"; "?" if not finite.
std::string seconds(double seconds);
/// "32×128×128 float32"; "" where it is not known.
std::string shape(const plan::PeakTensor& tensor);

/// Wide enough for what each suggestion changes, from `least` to 60.
std::size_t change_width(const std::vector<Suggestion>& suggestions, std::size_t least);

/// printable(), newlines and tabs as spaces, cut in the middle to `width` code points.
std::string one_line(std::string_view text, std::size_t width = 1000);
using cinch::printable;
using cinch::shell_word;

/// "step 2, backward, at blocks.5.mlp, aten::gelu_backward"; initialization has no step.
std::string where(const PeakSummary& peak);
/// "needs 412 MiB of 500 MiB: 88.0 MiB spare", "needs …, budget …: 215 MiB too much". Exact bytes where the rounded
/// figures would be equal though the numbers are not.
std::string needs(Bytes peak, Bytes budget, std::string_view budget_name = "budget");
/// "same weights", "same weights but for rounding", "lossy".
std::string_view result_of(plan::Equivalence equivalence);
/// Of a suggestion too: "not the same training" for one of another batch.
std::string_view result_of(const Suggestion& suggestion);

/// Where a budget that nobody gave comes from: "Budget: the 23.6 GiB of rtx4090-24gb less 2 %; --budget sets another.";
/// "" if it was given.
std::string budget_note(const Estimate& estimate);
std::string budget_note(const Planned& planned);
/// What a card holds beside tensors: "+ rounding, fragmentation 3.70 + CUDA context 0.46 = on the card 33.47 GiB"; ""
/// on the CPU.
std::string beside_tensors(const PeakSummary& peak, const Unit& unit);
/// Sentences on what is not exact; none where all is.
std::vector<std::string> inexact(const Estimate& estimate);
/// "Step times: roofline of cpu, calibrated on this machine."
std::string step_times(const Planned& planned);

/// Tensors of the peak that are alike: equal category, place (layers as "*"), shape.
struct TensorGroup {
  trace::Category category;
  std::string name, shape;
  std::size_t count = 0;
  Bytes bytes;
};
/// Largest first, at most `limit`.
std::vector<TensorGroup> groups(const std::vector<plan::PeakTensor>& tensors, std::size_t limit);

/// The command that comes next, ready to type; "" where there is none: training is the CPU's in this version.
std::string next_command(const Estimate& estimate);
std::string next_command(const Planned& planned);
/// How to go on where it was interrupted, or, if it was done before, to twice as many steps; else "".
std::string next_command(const FitSummary& fit);

/// "optimum proven", "within 3 % of the optimum".
std::string proof(double gap);
/// "predicted = measured, to the byte"; "predicted 12 B, measured 16 B: 4 B apart".
std::string agreement(const FitSummary& fit);
/// What became of the training, first words of its reports: "TRAINED 300 steps", "INTERRUPTED after step 120, saved".
std::string outcome(const FitSummary& fit);
}  // namespace cinch::report::internal
