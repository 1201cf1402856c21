#include "cinch/data/internal/csv_rows.h"

#include <algorithm>
#include <charconv>

#include "cinch/core/error.h"

namespace cinch::data {
namespace {
constexpr std::uint64_t kPiece = 64 << 10;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

template <class Number>
bool read_number(std::string_view field, Number& number) {
  field = trimmed(field);
  const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  return error == std::errc() && stop == field.data() + field.size() && !field.empty();
}

/// A field as an error message shows it: short, in quotes.
std::string shown(std::string_view field) {
  std::string text = "'";
  for (const char c : trimmed(field).substr(0, 24)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + "'";
}
}  // namespace

RowReader::RowReader(std::span<const DataFile> files, std::uint64_t longest, RowPosition start)
    : files_(files), longest_(longest), at_(start) {}

bool RowReader::next(std::string_view& line, RowPosition& where) {
  while (at_.file < files_.size()) {
    where = at_;
    if (!next_line(line)) {
      at_ = {at_.file + 1, 0};
      buffer_.clear();
      used_ = 0;
      continue;
    }
    if (where.offset == 0) {
      if (line.starts_with(kByteOrderMark)) {
        line.remove_prefix(kByteOrderMark.size());
        where.offset += kByteOrderMark.size();
      }
      double number = 0;
      if (!read_number(line.substr(0, line.find(',')), number)) continue;
    }
    if (!trimmed(line).empty()) return true;
  }
  return false;
}

bool RowReader::next_line(std::string_view& line) {
  const DataFile& file = files_[at_.file];
  std::size_t searched = used_;
  std::size_t end = std::string::npos;
  while ((end = buffer_.find('\n', searched)) == std::string::npos) {
    const std::size_t pending = buffer_.size() - used_;
    check_length(pending);
    if (at_.offset + pending >= file.size) break;
    refill();
    searched = pending;
  }
  const bool whole = end != std::string::npos;
  if (!whole) end = buffer_.size();
  if (!whole && end == used_) return false;
  check_length(end - used_);
  line = std::string_view(buffer_).substr(used_, end - used_);
  const std::size_t taken = end - used_ + (whole ? 1 : 0);
  used_ += taken;
  at_.offset += taken;
  return true;
}

void RowReader::check_length(std::size_t length) const {
  if (length <= longest_) return;
  throw DataError(files_[at_.file].path, at_.offset, "a row of more than " + std::to_string(longest_) + " bytes",
                  "Rows are \"label,number,number,...\", each on a line of its own.");
}

void RowReader::refill() {
  buffer_.erase(0, used_);
  used_ = 0;
  const std::size_t kept = buffer_.size();
  const DataFile& file = files_[at_.file];
  const std::uint64_t from = at_.offset + kept;
  buffer_.resize(kept + std::min(kPiece, file.size - from));
  read_at(file, from, buffer_.size() - kept, buffer_.data() + kept);
}

std::int64_t parse_row(std::string_view line, const DataFile& file, std::uint64_t offset, std::int64_t classes,
                       std::span<float> pixels) {
  const auto columns = static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1;
  if (columns != pixels.size() + 1) {
    throw DataError(file.path, offset,
                    "a row of " + std::to_string(columns) + " columns, where the model takes a label and " +
                        std::to_string(pixels.size()) + " numbers",
                    "Set the model's input size to the data's, or the other way round.");
  }
  std::size_t begin = 0, end = line.find(',');
  std::int64_t label = 0;
  if (!read_number(line.substr(0, end), label) || label < 0 || label >= classes) {
    throw DataError(file.path, offset,
                    "the label " + shown(line.substr(0, end)) + " is not a whole number from 0 to " +
                        std::to_string(classes - 1),
                    "The first column is the label; the model has " + std::to_string(classes) + " classes.");
  }
  for (float& pixel : pixels) {
    begin = end + 1;
    end = std::min(line.find(',', begin), line.size());
    const std::string_view field = line.substr(begin, end - begin);
    if (!read_number(field, pixel) || !(pixel >= 0 && pixel <= 255)) {
      throw DataError(file.path, offset + begin, shown(field) + " is not a number from 0 to 255");
    }
    pixel /= 255;
  }
  return label;
}
}  // namespace cinch::data
