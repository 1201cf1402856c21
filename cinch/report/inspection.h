#pragma once
// What a recording says, as text for people, JSON for programs, HTML for a browser. Computes nothing.

#include <optional>
#include <string>

#include "cinch/inspect/inspect.h"
#include "cinch/inspect/ranks.h"
#include "cinch/report/summaries.h"

namespace cinch::report {

/// An Inspection and what every document has.
struct Inspected {
  Environment environment;  ///< Without LibTorch in it: `libtorch` may be "", `threads` 0.
  inspect::Inspection inspection;
  std::optional<inspect::Ranks> devices;  ///< If the recording has several: the inspected one is the largest.
  std::string written;                    ///< File the recording was written to; "" if it was not.
};

/// Several recordings, and the one to look at in full.
struct InspectedRanks {
  Environment environment;
  std::string source;  ///< Folder or file.
  inspect::Ranks ranks;
};

std::string text(const Inspected& inspected, bool colour = false);
std::string text(const InspectedRanks& inspected, bool colour = false);

/// Schema "cinch.inspect/1".
std::string json(const Inspected& inspected);
std::string json(const InspectedRanks& inspected);

std::string html(const Inspected& inspected);
std::string html(const InspectedRanks& inspected);
}  // namespace cinch::report
