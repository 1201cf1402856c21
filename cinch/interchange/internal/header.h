#pragma once
// The header of a safetensors file, without the tensors: what is where.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace cinch::interchange {

/// The most bytes a JSON header may have.
inline constexpr std::uint64_t kLargestHeader = 100'000'000;

struct HeaderEntry {
  std::string name;
  at::ScalarType dtype{};
  std::vector<std::int64_t> sizes;
  std::uint64_t begin = 0, end = 0;  ///< Bytes, from the end of the header.
};
struct Header {
  std::vector<HeaderEntry> entries;  ///< By place in the file.
  std::map<std::string, std::string> metadata;
};

/// Reads the JSON of a header that `data_size` bytes of tensors follow. Throws DataError, `file` being its name.
Header parse_header(std::string_view json, std::uint64_t data_size, const std::filesystem::path& file);

/// "F32"; "" for a dtype the format does not have.
std::string_view format_name(at::ScalarType dtype);
}  // namespace cinch::interchange
