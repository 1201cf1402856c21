#pragma once
// What the allocator's model made of a recording, as text for people, JSON for programs. Computes nothing.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cinch/allocator/replay.h"
#include "cinch/report/summaries.h"

namespace cinch::report {

/// One recording under several settings.
struct Replayed {
  Environment environment;        ///< `libtorch` "" in a build without it.
  std::string source;             ///< The file as the user gave it.
  std::size_t other_devices = 0;  ///< GPUs of the recording that were not looked at.
  std::size_t events = 0;
  std::optional<allocator::Verdict> verdict;       ///< None for a trace of cinch's: it has no addresses.
  std::optional<Bytes> capacity;                   ///< What the process may reserve; none: without limit.
  bool capacity_given = false;                     ///< False: as the recording's own out-of-memory states it.
  allocator::WhatIf now;                           ///< Under the recording's own settings.
  std::vector<allocator::WhatIf> runs;             ///< Others, best first; those asked for by name lead.
  std::size_t tried = 0;                           ///< Settings, those left out of `runs` included.
  std::optional<allocator::Settings> recommended;  ///< One of `runs`.
  bool searched = false;                           ///< --grid.
  double elapsed_seconds = 0;

  /// Whether any run stays within `capacity`.
  bool fits() const;
};

std::string text(const Replayed& replayed, bool colour = false);
/// Schema "cinch.replay/1".
std::string json(const Replayed& replayed);
}  // namespace cinch::report
