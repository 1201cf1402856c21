#pragma once
// The frontier in words: what each plan changes against the one before, and what for.

#include <cstddef>
#include <string>
#include <vector>

#include "cinch/report/summaries.h"

namespace cinch::report::internal {

/// What `to` does that `from` does not, technique by technique: "checkpoint 5 of 6 modules, no chunked loss"; "nothing"
/// for equal plans.
std::string changes(const plan::Plan& from, const plan::Plan& to, std::size_t modules);

/// "+10 %", "-31 %", "0 %"; one decimal below a percent. "?" if there is nothing to compare with.
std::string relative(double from, double to);

/// "for 10 % more time, 31 % less memory: checkpoint 3 of 6 modules".
std::string exchange(const plan::Candidate& from, const plan::Candidate& to, std::size_t modules);

/// A row of the frontier as shown, fastest first. The plain plan and the best one are always among them.
struct FrontierRow {
  plan::Candidate candidate;
  bool best = false, fits = false;
  bool beaten = false;  ///< Another one is as fast and as small: the plain plan may be.
  std::string plan;     ///< "micro-batch 4, checkpoint 3 of 6 modules"; "nothing".
  std::string change;  ///< From the row above that is on the frontier; of the first row, and of a beaten one, the plan.
  std::string versus;  ///< "+9 %" of time against the fastest; "-" for it.
  std::string time, memory;  ///< "+9 %", "-31 %" against the row above that is on the frontier; "" where there is none.
};
std::vector<FrontierRow> frontier_rows(const Planned& planned, const plan::Solution& solution, std::size_t limit);

/// Of the exchanges that the best plan's neighbours on the frontier offer, a sentence each: the next smaller one, the
/// next faster one.
std::vector<std::string> neighbours(const Planned& planned, const plan::Solution& solution);

/// Flags that a plan needs beyond what the search could use: "--allow adam8bit"; "" if none.
std::string allow_flags(const Planned& planned, const plan::Plan& plan);

/// "--allow adam8bit would give 1.20 GiB less: 3.40 GiB, +1 % time (lossy)". `from`: without it.
std::string would_give(const Planned& planned, const plan::Candidate& from, const plan::WouldGive& give);
}  // namespace cinch::report::internal
