#pragma once
// What grew between two recordings: at the peak and at the end, by kind, module and call path.
//
//   const Diff diff = compare(holdings(Snapshot::open("before.pickle")), holdings(Snapshot::open("after.pickle")));
//   if (diff.peak.grown() > Bytes(0)) puts(diff.peak.paths.front().name.c_str());

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/trace.h"

namespace cinch::inspect {

/// Live allocations.
struct Share {
  Bytes bytes;
  std::size_t allocations = 0;
  friend bool operator==(const Share&, const Share&) = default;
};

/// What lives at one moment, by name. Each of the maps sums to the total.
struct Held {
  Share total;
  std::map<std::string, Share> categories;  ///< By Kind: "parameters", …
  std::map<std::string, Share> modules;     ///< Path; of a snapshot the user's function: "model.py forward". "": none.
  std::map<std::string, Share> paths;       ///< Without line numbers, which move when a program is edited.
};

/// Of one recording, its devices together.
struct Holdings {
  Held peak;  ///< Each device at its largest live total.
  Held end;   ///< After the last event.
};

/// Plays each device's recording three times.
Holdings holdings(const snapshot::Snapshot& snapshot);
/// `trace` must have been classified.
Holdings holdings(const trace::Trace& trace);

/// One name in both recordings.
struct Change {
  std::string name;
  Share before, after;
  Bytes grown() const { return after.bytes - before.bytes; }
};

/// The two recordings at corresponding moments.
struct Moment {
  Share before, after;
  /// Names whose bytes or number of allocations differ: what grew most first, what shrank most last. The growth of each
  /// list sums to grown().
  std::vector<Change> categories, modules, paths;
  Bytes grown() const { return after.bytes - before.bytes; }
};

struct Diff {
  Moment peak, end;
};
Diff compare(const Holdings& before, const Holdings& after);
}  // namespace cinch::inspect
