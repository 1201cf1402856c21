#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/placement/placement.h"

namespace cinch::placement {
namespace {
constexpr std::array<std::string_view, 4> kColumns = {"id", "lower", "upper", "size"};
constexpr std::size_t kId = 0;
constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 30;

/// A text, line by line and field by field, that knows where it is.
class Csv {
 public:
  Csv(std::string_view text, const std::filesystem::path& name) : text_(text), name_(name) {}

  bool next_line() {
    if (next_ >= text_.size()) return false;
    begin_ = next_;
    const std::size_t end = std::min(text_.find('\n', begin_), text_.size());
    next_ = end + 1;
    end_ = end > begin_ && text_[end - 1] == '\r' ? end - 1 : end;
    ++line_;
    return true;
  }
  bool blank() const { return begin_ == end_; }
  /// The next field of the line, without spaces around; past the last one, `missing` throws.
  bool next_field(std::string_view& field) {
    if (begin_ > end_) return false;
    std::size_t end = std::min(text_.find(',', begin_), end_);
    field_ = begin_;
    begin_ = end + 1;
    for (; field_ < end && text_[field_] == ' ';) ++field_;
    for (; field_ < end && text_[end - 1] == ' ';) --end;
    field = text_.substr(field_, end - field_);
    return true;
  }
  /// About the last field.
  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(name_, field_, problem + " (line " + std::to_string(line_) + ")",
                    "The form is a header with id, lower, upper and size in any order, then a buffer a line.");
  }
  void at_end_of_line() { field_ = end_; }

 private:
  std::string_view text_;
  const std::filesystem::path& name_;
  std::size_t next_ = 0, begin_ = 0, end_ = 0, field_ = 0;
  int line_ = 0;
};

std::string quoted(std::string_view field) {
  constexpr std::size_t kShown = 32;
  return "\"" + std::string(field.substr(0, kShown)) + (field.size() > kShown ? "…\"" : "\"");
}

/// Which of kColumns each field of a line is.
std::vector<std::size_t> read_header(Csv& csv) {
  std::vector<std::size_t> columns;
  std::string_view field;
  if (!csv.next_line()) csv.fail("an empty file");
  while (csv.next_field(field)) {
    const auto known = std::find(kColumns.begin(), kColumns.end(), field);
    if (known == kColumns.end()) csv.fail("an unknown column " + quoted(field));
    const auto column = static_cast<std::size_t>(known - kColumns.begin());
    if (std::find(columns.begin(), columns.end(), column) != columns.end())
      csv.fail("column " + quoted(field) + " twice");
    columns.push_back(column);
  }
  for (std::size_t column = 0; column < kColumns.size(); ++column) {
    if (std::find(columns.begin(), columns.end(), column) == columns.end()) {
      csv.fail("no column " + quoted(kColumns[column]));
    }
  }
  return columns;
}

std::int64_t read_number(const Csv& csv, std::string_view field) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error == std::errc::result_out_of_range) csv.fail(quoted(field) + " does not fit 64 bits");
  if (error != std::errc() || end != field.data() + field.size()) csv.fail(quoted(field) + " is no integer");
  return number;
}

Buffer read_buffer(Csv& csv, const std::vector<std::size_t>& columns) {
  std::array<std::int64_t, kColumns.size()> values{};
  std::string_view field;
  for (const std::size_t column : columns) {
    if (!csv.next_field(field)) {
      csv.at_end_of_line();
      csv.fail("no " + std::string(kColumns[column]));
    }
    if (column != kId) values[column] = read_number(csv, field);
    if (column == 3 && values[column] < 0) csv.fail("a negative size");
  }
  if (csv.next_field(field)) csv.fail("more fields than columns: " + quoted(field));
  if (values[2] < values[1]) csv.fail("a buffer that ends before it begins");
  return {values[1], values[2], Bytes(values[3])};
}
}  // namespace

std::vector<Buffer> parse_csv(std::string_view text, const std::filesystem::path& name) {
  Csv csv(text, name);
  const std::vector<std::size_t> columns = read_header(csv);
  std::vector<Buffer> buffers;
  while (csv.next_line()) {
    if (!csv.blank()) buffers.push_back(read_buffer(csv, columns));
  }
  return buffers;
}

std::vector<Buffer> read_csv(const std::filesystem::path& file) { return parse_csv(read_file(file, kMostBytes), file); }
}  // namespace cinch::placement
