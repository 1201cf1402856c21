#include "cinch/report/internal/text_parts.h"

#include "cinch/core/text.h"
#include "cinch/report/internal/format.h"

namespace cinch::report::internal {
namespace {
using trace::Category;
constexpr std::size_t kGroups = 8;  // Rows of largest tensors.
}  // namespace

void categories_table(Writer& out, const PeakSummary& peak, std::int64_t parameters) {
  const Unit unit = unit_for(peak.requested);
  out.line("{}", out.bold(fmt::format("{:<44}{:>17}{:>11}{:>7}", "", "bytes", unit.name, "share")));
  for (const Category category : display_order()) {
    const Bytes bytes = peak.categories[category];
    if (bytes.count() == 0) continue;
    const bool count = category == Category::kParameter && parameters > 0;
    out.line("  {:<18}{:<24}{:>17}{:>11}{:>7}", label(category), count ? with_thousands(parameters) + " numbers" : "",
             with_thousands(bytes.count()), in_unit(bytes, unit), share(bytes, peak.requested));
  }
  out.line("  {:<42}{:>17}{:>11}{:>7}", "total", with_thousands(peak.requested.count()), in_unit(peak.requested, unit),
           share(peak.requested, peak.requested));
  if (peak.card) out.line("  {}", beside_tensors(peak, unit));
}

void tensors_table(Writer& out, const std::vector<plan::PeakTensor>& tensors, Bytes whole) {
  const auto rows = groups(tensors, kGroups);
  if (rows.empty()) return;
  const Unit unit = unit_for(whole);
  out.blank();
  out.line("{}", out.bold(fmt::format("{:<88}{:>11}{:>7}", "Largest tensors there", unit.name, "share")));
  for (const TensorGroup& group : rows) {
    out.line("  {:<16}{:<40} {:<21}{:>7} {:>11}{:>7}", label(group.category), one_line(group.name, 40),
             one_line(group.shape, 21), group.count > 1 ? fmt::format("×{}", group.count) : "",
             in_unit(group.bytes, unit), share(group.bytes, whole));
  }
}

void notes(Writer& out, const std::string& budget, const std::vector<std::string>& others) {
  if (!budget.empty()) out.line("  {}", budget);
  for (const std::string& sentence : others) out.line("  {}", sentence);
  out.blank();
}
}  // namespace cinch::report::internal
