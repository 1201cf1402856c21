#pragma once
// Call paths as rows that can be told apart.

#include <string>
#include <vector>

#include "cinch/inspect/inspect.h"

namespace cinch::report::internal {

/// Paths that read the same, as one.
struct PathRow {
  inspect::Kind kind{};
  std::string where;  ///< Op and frames, "(before the recording)".
  Bytes bytes, largest;
  std::size_t tensors = 0, paths = 1;
};
/// Largest first. Of each path `frames` frames; where that makes several of a kind read the same, also the first frame
/// in which they differ. What still reads the same is summed.
std::vector<PathRow> path_rows(const inspect::Live& live, std::size_t frames);
}  // namespace cinch::report::internal
