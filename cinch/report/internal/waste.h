#pragma once
// The parts of reserved memory, as words and as rows.

#include <string>
#include <string_view>
#include <vector>

#include "cinch/inspect/fragmentation.h"

namespace cinch::report::internal {

/// One part of what is reserved.
struct WastePart {
  std::string_view key;  ///< As in the JSON, without "_bytes": "unsplittable".
  std::string name;      ///< "283 whole cached segments".
  Bytes bytes;
};
/// What was requested first, then all parts in a fixed order, 0 or not: they sum to the reserved bytes.
std::vector<WastePart> waste_parts(const inspect::Fragmentation& parts);

/// "requested 54,597,857,284", "rounding 508", …: those that are not 0, and always the first.
std::vector<std::string> waste_terms(const inspect::Fragmentation& parts);
}  // namespace cinch::report::internal
