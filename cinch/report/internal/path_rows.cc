#include "cinch/report/internal/path_rows.h"

#include <algorithm>
#include <map>
#include <utility>

namespace cinch::report::internal {
namespace {

using inspect::Live;

std::string short_text(const Live::Path& path, std::size_t frames) {
  const bool nothing = path.before && path.path.op.empty() && path.path.frames.empty();
  return nothing ? "(before the recording)" : inspect::to_string(path.path, frames);
}

std::string frame_of(const Live::Path& path, std::size_t at) {
  return at < path.path.frames.size() ? path.path.frames[at] : "";
}

/// The first frame from `begin` on that is not the same in all; the number of frames if there is none.
std::size_t first_difference(const std::vector<const Live::Path*>& paths, std::size_t begin) {
  std::size_t most = 0;
  for (const Live::Path* path : paths) most = std::max(most, path->path.frames.size());
  for (std::size_t at = begin; at < most; ++at) {
    const std::string first = frame_of(*paths.front(), at);
    const auto same = [&](const Live::Path* path) { return frame_of(*path, at) == first; };
    if (!std::all_of(paths.begin(), paths.end(), same)) return at;
  }
  return most;
}
}  // namespace

std::vector<PathRow> path_rows(const Live& live, std::size_t frames) {
  using Key = std::pair<inspect::Kind, std::string>;
  std::map<Key, std::vector<const Live::Path*>> alike;
  for (const Live::Path& path : live.paths) alike[{path.kind, short_text(path, frames)}].push_back(&path);
  std::map<Key, PathRow> rows;
  for (const auto& [key, paths] : alike) {
    const std::size_t differ = first_difference(paths, frames);
    for (const Live::Path* path : paths) {
      std::string where = key.second;
      const std::string frame = paths.size() > 1 ? frame_of(*path, differ) : "";
      if (!frame.empty()) where += (differ > frames ? " < … < " : " < ") + frame;
      const auto [row, added] =
          rows.insert({{path->kind, where}, {path->kind, where, path->bytes, path->largest, path->tensors, 1}});
      if (added) continue;
      row->second.bytes += path->bytes;
      row->second.largest = std::max(row->second.largest, path->largest);
      row->second.tensors += path->tensors;
      ++row->second.paths;
    }
  }
  std::vector<PathRow> result;
  result.reserve(rows.size());
  for (const auto& [key, row] : rows) result.push_back(row);
  std::stable_sort(result.begin(), result.end(),
                   [](const PathRow& left, const PathRow& right) { return left.bytes > right.bytes; });
  return result;
}
}  // namespace cinch::report::internal
