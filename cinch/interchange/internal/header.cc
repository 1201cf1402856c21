#include "cinch/interchange/internal/header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "cinch/core/error.h"

namespace cinch::interchange {
namespace {
using nlohmann::json;

constexpr std::uint64_t kPrefix = 8;  ///< The header's length, before it.
constexpr std::size_t kMostDimensions = 64;

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 19> kDTypes{{
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U64", at::kUInt64},
    {"U32", at::kUInt32},
    {"U16", at::kUInt16},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
    {"C64", at::kComplexFloat},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
}};

/// Receives the header while it is read and builds the entries. Depth 1: names; 2: a tensor's keys or metadata; 3: the
/// numbers of shape or data_offsets. Nothing deeper is accepted, so that no header can grow a tree.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return fail("a null has no place in the header"); }
  bool boolean(bool) override { return fail("a boolean has no place in the header"); }
  bool number_float(double, const std::string&) override { return fail("a fraction has no place in the header"); }
  bool binary(json::binary_t&) override { return fail("binary data has no place in the header"); }
  bool number_integer(std::int64_t) override { return fail("a negative number has no place in the header"); }
  bool number_unsigned(std::uint64_t number) override {
    if (numbers_ == nullptr) return fail("a number where none belongs");
    if (numbers_->size() == kMostDimensions) return fail("more than " + std::to_string(kMostDimensions) + " numbers");
    numbers_->push_back(number);
    return true;
  }
  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      header.metadata[key_] = text;
      return true;
    }
    if (depth_ != 2 || key_ != "dtype") return fail("a string where none belongs");
    const auto* found = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& row) { return row.first == text; });
    if (found == kDTypes.end()) return fail("unknown dtype '" + text.substr(0, 32) + "'");
    entry_.dtype = found->second;
    return true;
  }
  bool start_object(std::size_t) override {
    if (++depth_ > 2 || numbers_ != nullptr) return fail("an object where none belongs");
    if (depth_ == 1) return true;
    keys_.clear();
    shape_.clear();
    offsets_.clear();
    in_metadata_ = key_ == "__metadata__";
    entry_ = {};
    entry_.name = key_;
    return true;
  }
  bool key(std::string& key) override {
    key_ = key;
    if (depth_ == 1) return names_.insert(key).second || fail("the name occurs twice");
    if (!keys_.insert(key).second) return fail("the key occurs twice");
    return in_metadata_ || key == "dtype" || key == "shape" || key == "data_offsets" || fail("unknown key");
  }
  bool end_object() override {
    if (depth_-- == 1) return true;
    if (in_metadata_) return true;
    key_ = entry_.name;
    if (keys_.size() != 3) return fail("a tensor needs dtype, shape and data_offsets");
    return add_entry();
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || numbers_ != nullptr) return fail("a list where none belongs");
    if (key_ == "shape") numbers_ = &shape_;
    if (key_ == "data_offsets") numbers_ = &offsets_;
    return numbers_ != nullptr || fail("a list where none belongs");
  }
  bool end_array() override {
    numbers_ = nullptr;
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    offset = position > 0 ? position - 1 : 0;
    problem = "the header is not JSON";
    return false;
  }

  Header header;
  std::string problem;
  std::uint64_t offset = 0;  ///< Of the fault in the JSON, where it is known.

 private:
  bool fail(const std::string& what) {
    problem = key_.empty() ? what : "'" + key_.substr(0, 200) + "': " + what;
    return false;
  }

  bool add_entry() {
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) return fail("data_offsets must be [begin, end]");
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    // Strides are products too, and count a size of 0 as 1: they must not overflow either.
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(entry_.dtype));
    bool overflow = false, empty = false;
    for (const std::uint64_t size : shape_) {
      overflow |= __builtin_mul_overflow(bytes, std::max<std::uint64_t>(size, 1), &bytes);
      empty |= size == 0;
      entry_.sizes.push_back(static_cast<std::int64_t>(size));
    }
    if (empty) bytes = 0;
    if (overflow) return fail("the shape overflows");
    if (static_cast<std::uint64_t>(bytes) != entry_.end - entry_.begin) {
      return fail("shape and dtype take " + std::to_string(bytes) + " bytes, data_offsets span " +
                  std::to_string(entry_.end - entry_.begin));
    }
    header.entries.push_back(std::move(entry_));
    return true;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string key_;
  std::set<std::string> names_, keys_;
  std::vector<std::uint64_t>* numbers_ = nullptr;
  std::vector<std::uint64_t> shape_, offsets_;
  HeaderEntry entry_;
};

/// The tensors must cover the data: no hole, no overlap, nothing behind.
void check_coverage(Header& header, std::uint64_t data_begin, std::uint64_t data_size,
                    const std::filesystem::path& file) {
  std::sort(header.entries.begin(), header.entries.end(), [](const HeaderEntry& left, const HeaderEntry& right) {
    return std::tie(left.begin, left.end, left.name) < std::tie(right.begin, right.end, right.name);
  });
  std::uint64_t reached = 0;
  for (const HeaderEntry& entry : header.entries) {
    if (entry.begin != reached) {
      throw DataError(file, data_begin + std::min(reached, entry.begin),
                      "'" + entry.name + (entry.begin > reached ? "' leaves a hole before it" : "' overlaps another tensor"));
    }
    reached = entry.end;
    if (reached > data_size) {
      throw DataError(file, data_begin + data_size, "the file ends before the data of '" + entry.name + "'",
                      "The file was cut short: copy or download it again.");
    }
  }
  if (reached != data_size) {
    throw DataError(file, data_begin + reached, std::to_string(data_size - reached) + " bytes belong to no tensor");
  }
}
}  // namespace

Header parse_header(std::string_view text, std::uint64_t data_size, const std::filesystem::path& file) {
  if (!text.starts_with('{')) throw DataError(file, kPrefix, "the header does not begin with '{'");
  HeaderReader reader;
  if (!json::sax_parse(text, &reader)) throw DataError(file, kPrefix + reader.offset, reader.problem);
  check_coverage(reader.header, kPrefix + text.size(), data_size, file);
  return std::move(reader.header);
}

std::string_view format_name(at::ScalarType dtype) {
  const auto* found = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const auto& row) { return row.second == dtype; });
  return found == kDTypes.end() ? std::string_view() : found->first;
}
}  // namespace cinch::interchange
