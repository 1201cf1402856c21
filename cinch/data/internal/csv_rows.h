#pragma once
// Rows of CSV files, one after another, read in pieces.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/data/internal/files.h"

namespace cinch::data {

/// A place in a list of files.
struct RowPosition {
  std::uint32_t file = 0;
  std::uint64_t offset = 0;
};

/// Walks the rows of `files`: line ends LF or CRLF, a byte-order mark, a header row (its first field is no number) and
/// blank lines are passed over. `longest`: bytes a row may have; a longer one throws DataError before it is held.
class RowReader {
 public:
  RowReader(std::span<const DataFile> files, std::uint64_t longest, RowPosition start = {});
  /// False after the last row. `line` lives until the next call; `where` is its first byte.
  bool next(std::string_view& line, RowPosition& where);

 private:
  bool next_line(std::string_view& line);
  void check_length(std::size_t length) const;
  void refill();

  std::span<const DataFile> files_;
  std::uint64_t longest_;
  RowPosition at_;             ///< Of the first byte not given out yet.
  std::string buffer_;         ///< Bytes of the current file from `at_`, after the first `used_`.
  std::size_t used_ = 0;
};

/// "label,number,number,…" → label and numbers / 255. Throws DataError with the byte offset of the faulty field: a
/// column too few or too many, a label outside [0, classes), a value that is not a number from 0 to 255.
std::int64_t parse_row(std::string_view line, const DataFile& file, std::uint64_t offset, std::int64_t classes,
                       std::span<float> pixels);
}  // namespace cinch::data
