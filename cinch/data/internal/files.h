#pragma once
// The files behind a data source: which they are, and reads that notice when one changes underneath.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace cinch::data {

struct DataFile {
  std::filesystem::path path;
  std::uint64_t size = 0;  ///< When it was listed; nothing beyond is ever read.
};

/// The files that `patterns` mean, in their order: a file, a folder (all files below it, sorted by path), or a path whose
/// last part holds * or ? (matching files, sorted). A file met twice counts once. Throws IoError for what cannot be
/// read, ConfigError (key data.path) for a pattern that matches nothing.
std::vector<DataFile> list_files(const std::vector<std::string>& patterns);

/// Reads `count` bytes at `offset` into `out`. Throws IoError when the file is gone, DataError when it shrank.
void read_at(const DataFile& file, std::uint64_t offset, std::uint64_t count, char* out);
}  // namespace cinch::data
