#pragma once
// Recordings for other programs to read.

#include <filesystem>

#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/trace.h"

namespace cinch::snapshot {

enum class Format {
  kPickle,  ///< Protocol 2 with the opcodes that PyTorch's viewer knows.
  kJson,    ///< The same keys.
  kChrome   ///< Live bytes as counters and phases as slices, for chrome://tracing and Perfetto.
};

/// By the name's end: ".pickle", ".pkl"; ".chrome.json", ".trace.json"; ".json". Throws UsageError for others.
Format format_of(const std::filesystem::path& file);

/// Throws IoError; the file appears whole or not at all.
void write(const Snapshot& snapshot, const std::filesystem::path& file, Format format);

/// A trace of cinch's own. It has no addresses, so that made-up ones are given out, none twice; module paths, op names
/// and tensors' names become frames, phases annotations.
void write(const trace::Trace& trace, const std::filesystem::path& file, Format format);
}  // namespace cinch::snapshot
