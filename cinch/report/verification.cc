#include "cinch/report/verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cinch/core/version.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/page.h"

namespace cinch::report {
namespace {
using nlohmann::ordered_json;
using plan::Equivalence;

/// "0", "2.1e-07"
std::string figure(double value) { return value == 0 ? "0" : fmt::format("{:.1e}", value); }

std::string verdict_of(const Verification& verification) {
  if (!verification.holds()) return "DOES NOT HOLD";
  switch (plan::equivalence(verification.plan)) {
    case Equivalence::kBitwise:
      return "HOLDS: the same weights, bit for bit";
    case Equivalence::kReassociated:
      return "HOLDS: the same weights but for rounding";
    case Equivalence::kLossy:
      return "HOLDS: no further from plain training than another seed";
  }
  return "";
}

ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }
}  // namespace

bool Verification::holds() const { return !checks.empty() && std::ranges::all_of(checks, &VerifyCheck::holds); }

const VerifyCheck* Verification::of_plan() const {
  const auto found = std::ranges::find(checks, plan::equivalence(plan), &VerifyCheck::equivalence);
  return found == checks.end() ? nullptr : &*found;
}

std::string text(const Verification& verification, bool colour) {
  const bool holds = verification.holds();
  std::string head = verdict_of(verification);
  if (colour) head = fmt::format("\x1b[1;{}m{}\x1b[0m", holds ? 32 : 31, head);
  std::string out = fmt::format("{}   ({})\n\nPlan: {}\n\n", head, internal::seconds(verification.elapsed_seconds),
                                plan::describe(verification.plan, verification.modules));
  const std::string titles = fmt::format("{:<72}{:>6}{:>12}{:>10}", "check", "steps", "difference", "at most");
  out += colour ? fmt::format("\x1b[1m{}\x1b[0m\n", titles) : titles + "\n";
  for (const VerifyCheck& check : verification.checks) {
    out += fmt::format("  {:<70}{:>6}{:>12}{:>10}  {}\n", check.what, check.steps, figure(check.difference),
                       figure(check.bound), check.holds ? "holds" : "PARTS");
    if (!check.parting.empty()) out += fmt::format("    first at {}\n", internal::one_line(check.parting, 100));
  }
  return out;
}

std::string json(const Verification& verification) {
  ordered_json checks = ordered_json::array();
  for (const VerifyCheck& check : verification.checks) {
    checks.push_back({{"what", check.what},
                      {"equivalence", name_of(check.equivalence)},
                      {"steps", check.steps},
                      {"difference", number(check.difference)},
                      {"bound", check.bound},
                      {"holds", check.holds},
                      {"first_at", check.parting}});
  }
  const VerifyCheck* main = verification.of_plan();
  const ordered_json document{{"schema", "cinch.verify/1"},
                              {"cinch", kVersion},
                              {"libtorch", verification.environment.libtorch},
                              {"device", verification.environment.device},
                              {"threads", verification.environment.threads},
                              {"job", verification.job},
                              {"plan", plan::describe(verification.plan, verification.modules)},
                              {"equivalence", name_of(plan::equivalence(verification.plan))},
                              {"max_relative_difference", main ? number(main->difference) : ordered_json(nullptr)},
                              {"bound", main ? ordered_json(main->bound) : ordered_json(nullptr)},
                              {"holds", verification.holds()},
                              {"checks", checks},
                              {"elapsed_seconds", verification.elapsed_seconds}};
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string html(const Verification& verification) {
  std::string rows;
  for (const VerifyCheck& check : verification.checks) {
    rows +=
        fmt::format("<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>", internal::escape(check.what),
                    check.parting.empty() ? "" : "<br>first at " + internal::escape(check.parting), check.steps,
                    figure(check.difference), figure(check.bound), check.holds ? "holds" : "parts");
  }
  const std::string table =
      "<table><tr><th>check</th><th>steps</th><th>difference</th><th>at most</th><th></th></tr>" + rows + "</table>";
  const std::string plan = plan::describe(verification.plan, verification.modules);
  return internal::page(
      "cinch verify", verification.environment, verification.job,
      internal::verdict(verdict_of(verification), verification.holds(), plan) + internal::section("Checks", "", table));
}
}  // namespace cinch::report
