#include "cinch/inspect/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>
#include <utility>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/inspect/internal/passes.h"
#include "cinch/inspect/words.h"

namespace cinch::inspect {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kOutlier = 20;  // A twentieth of the median.

bool is_snapshot(const fs::path& file) {
  std::string name = file.filename().string();
  for (const char* packed : {".gz", ".zst"}) {
    if (name.ends_with(packed)) name.resize(name.size() - std::string_view(packed).size());
  }
  return name.ends_with(".pickle") || name.ends_with(".pkl") || name.ends_with(".json");
}

/// "rank2" before "rank10".
bool natural_less(const std::string& left, const std::string& right) {
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto run = [&](const std::string& text, std::size_t& at) {
    const std::size_t begin = at;
    while (at < text.size() && digit(text[at])) ++at;
    std::string number = text.substr(begin, at - begin);
    number.erase(0, std::min(number.find_first_not_of('0'), number.size() - 1));
    return number;
  };
  std::size_t i = 0, j = 0;
  while (i < left.size() && j < right.size()) {
    if (digit(left[i]) && digit(right[j])) {
      const std::string a = run(left, i), b = run(right, j);
      if (a != b) return a.size() != b.size() ? a.size() < b.size() : a < b;
    } else if (left[i] != right[j]) {
      return left[i] < right[j];
    } else {
      ++i;
      ++j;
    }
  }
  return left.size() - i < right.size() - j;
}

std::string rank_words(const Rank& rank) {
  const std::string name = printable(rank.source);
  return rank.device == 0 ? name : fmt::format("{} (GPU {})", name, rank.device);
}

/// The ranks of one file; one with the reason if it has none.
std::vector<Rank> ranks_in(const fs::path& file) {
  const std::string name = file.filename().string();
  std::vector<Rank> ranks;
  Rank unread;
  unread.source = name;
  try {
    const auto snapshot = snapshot::Snapshot::open(file);
    for (const snapshot::Device& device : snapshot.devices()) ranks.push_back(summarize(snapshot, device, name));
    unread.error = file.string() + " holds no segment and no event of any GPU";
  } catch (const Error& error) {
    ranks.clear();
    unread.error = error.what();
  }
  if (ranks.empty()) ranks.push_back(std::move(unread));
  return ranks;
}
}  // namespace

Rank summarize(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const std::string& source) {
  internal::Meter meter(nullptr, device.events, 1, std::nullopt);
  snapshot.play(device, meter);
  const auto totals = meter.take();
  return {source,     device.index,        totals.events,          totals.peak, totals.peak_reserved,
          totals.end, totals.end_reserved, totals.oom.has_value(), ""};
}

Ranks ranks_of(const snapshot::Snapshot& snapshot, const std::string& source) {
  std::vector<Rank> ranks;
  for (const snapshot::Device& device : snapshot.devices()) ranks.push_back(summarize(snapshot, device, source));
  return compare_ranks(std::move(ranks));
}

Ranks compare_ranks(std::vector<Rank> ranks) {
  Ranks result;
  result.all = std::move(ranks);
  std::vector<Bytes> peaks;
  for (std::size_t i = 0; i < result.all.size(); ++i) {
    const Rank& rank = result.all[i];
    if (!rank.error.empty()) continue;
    peaks.push_back(rank.peak);
    result.peak_total += rank.peak;
    result.peak_reserved_total += rank.peak_reserved;
    if (!result.largest || rank.peak > result.all[*result.largest].peak) result.largest = i;
  }
  if (peaks.empty()) return result;
  std::nth_element(peaks.begin(), peaks.begin() + static_cast<std::ptrdiff_t>((peaks.size() - 1) / 2), peaks.end());
  result.median_peak = peaks[(peaks.size() - 1) / 2];
  const auto distance = [&](const Rank& rank) {
    return rank.peak > result.median_peak ? rank.peak - result.median_peak : result.median_peak - rank.peak;
  };
  Bytes farthest;
  for (std::size_t i = 0; i < result.all.size() && peaks.size() > 1; ++i) {
    const Rank& rank = result.all[i];
    if (!rank.error.empty() || distance(rank) <= farthest) continue;
    farthest = distance(rank);
    if (farthest.count() > result.median_peak.count() / kOutlier) result.outlier = i;
  }
  if (!result.outlier) {
    if (peaks.size() == 1) return result;
    result.sentence = fmt::format("All {} peaks are within a twentieth of the median, {}.", peaks.size(),
                                  size_words(result.median_peak));
    return result;
  }
  const Rank& rank = result.all[*result.outlier];
  result.sentence = fmt::format("{} is the outlier: its peak is {}, {} {} than the median of {}.", rank_words(rank),
                                size_words(rank.peak), size_words(distance(rank)),
                                rank.peak > result.median_peak ? "more" : "less", size_words(result.median_peak));
  return result;
}

Ranks inspect_folder(const fs::path& folder, const std::function<void(const std::string&)>& progress) {
  std::error_code failed;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
    if (it->is_regular_file() && is_snapshot(it->path())) names.push_back(it->path().filename().string());
  }
  if (failed) throw IoError(folder, "read", failed.value());
  if (names.empty()) {
    throw UsageError(folder.string() + ": no snapshot in this folder",
                     "Snapshots are files that end in .pickle, .pkl or .json, also with .gz or .zst behind it.");
  }
  std::sort(names.begin(), names.end(), natural_less);
  std::vector<Rank> ranks;
  for (const std::string& name : names) {
    if (progress) progress(name);
    for (Rank& rank : ranks_in(folder / name)) ranks.push_back(std::move(rank));
  }
  if (std::ranges::none_of(ranks, [](const Rank& rank) { return rank.error.empty(); })) {
    throw UsageError(fmt::format("{}: none of its {} could be read: {}", folder.string(),
                                 names.size() == 1 ? "one snapshot" : fmt::format("{} snapshots", names.size()),
                                 ranks.front().error),
                     names.size() == 1 ? "" : "cinch inspect FILE says of each why.");
  }
  return compare_ranks(std::move(ranks));
}
}  // namespace cinch::inspect
