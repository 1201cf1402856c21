#pragma once
// Several recordings of one program: a file a rank, or the GPUs of one snapshot.
//
//   Ranks ranks = inspect_folder("snapshots/");          // or ranks_of(snapshot, "oom.pickle")
//   if (ranks.outlier) puts(ranks.all[*ranks.outlier].source.c_str());

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cinch/inspect/inspect.h"

namespace cinch::inspect {

/// One device of one recording, in a few figures.
struct Rank {
  std::string source;  ///< File name.
  int device = 0;
  std::size_t events = 0;
  Bytes peak, peak_reserved, end, end_reserved;  ///< peak and end: requested.
  bool ran_out = false;                          ///< An out of memory was recorded.
  std::string error;                             ///< Why it could not be read; the figures are 0 then.
};

struct Ranks {
  std::vector<Rank> all;  ///< By file name, numbers in it as numbers; then by device.
  Bytes peak_total, peak_reserved_total;
  Bytes median_peak;
  /// The rank whose peak lies farthest from the median, if that is more than a twentieth of it.
  std::optional<std::size_t> outlier;
  std::optional<std::size_t> largest;  ///< That with the highest peak.
  std::string sentence;                ///< "Rank 3 (rank3.pickle) is the outlier: …"
};

/// Figures of one device. One pass.
Rank summarize(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const std::string& source);

/// The GPUs of one snapshot, in its order.
Ranks ranks_of(const snapshot::Snapshot& snapshot, const std::string& source);

/// Totals, median and outlier of what was summarized.
Ranks compare_ranks(std::vector<Rank> ranks);

/// The snapshots (.pickle, .pkl, .json, compressed or not) of a folder, one after the other. One that cannot be read
/// has its reason. `progress` hears each name. Throws IoError; UsageError for a folder without any, or in which none
/// could be read.
Ranks inspect_folder(const std::filesystem::path& folder, const std::function<void(const std::string&)>& progress = {});
}  // namespace cinch::inspect
