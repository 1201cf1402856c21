#include "cinch/core/internal/cache_format.h"

#include <cstdint>
#include <utility>

namespace cinch::internal {
namespace {
constexpr std::string_view kMagic = "cinchkpt";
constexpr std::uint32_t kVersion = 1;

template <class Number>
void put(std::string& bytes, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) bytes += static_cast<char>(number >> (8 * i));
}

template <class Number>
std::optional<Number> take(std::string_view& bytes) {
  if (bytes.size() < sizeof(Number)) return std::nullopt;
  Number number = 0;
  for (std::size_t i = sizeof number; i-- > 0;) number = (number << 8) | static_cast<unsigned char>(bytes[i]);
  bytes.remove_prefix(sizeof number);
  return number;
}

std::optional<std::string_view> take(std::string_view& bytes, std::size_t length) {
  if (length > bytes.size()) return std::nullopt;
  const std::string_view taken = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return taken;
}

void put_text(std::string& bytes, std::string_view text) {
  put(bytes, static_cast<std::uint32_t>(text.size()));
  bytes += text;
}
}  // namespace

// FNV-1a, 64 bits. Against accidents: whoever may write the file can compute it.
std::uint64_t checksum(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

std::string encode_entries(std::string_view title, const CacheEntries& entries) {
  std::string body;
  put_text(body, title);
  for (const auto& [key, value] : entries) {
    put(body, static_cast<std::uint32_t>(key.size()));
    put(body, static_cast<std::uint32_t>(value.size()));
    body += key;
    body += value;
  }
  return body;
}

std::optional<CacheEntries> decode_entries(std::string_view body, std::string_view title) {
  if (body.size() > kMostCacheBytes) return std::nullopt;
  const auto title_length = take<std::uint32_t>(body);
  if (!title_length || take(body, *title_length) != title) return std::nullopt;
  CacheEntries entries;
  while (!body.empty()) {
    const auto key_length = take<std::uint32_t>(body), value_length = take<std::uint32_t>(body);
    if (!key_length || !value_length) return std::nullopt;
    const auto key = take(body, *key_length), value = take(body, *value_length);
    if (!key || !value || entries.size() == kMostCacheEntries) return std::nullopt;
    if (!entries.empty() && *key <= entries.rbegin()->first) return std::nullopt;
    entries.emplace_hint(entries.end(), *key, *value);
  }
  return entries;
}

std::string seal(std::string_view body) {
  std::string file(kMagic);
  put(file, kVersion);
  put(file, checksum(body));
  file += body;
  return file;
}

std::optional<std::string_view> unseal(std::string_view file) {
  if (take(file, kMagic.size()) != kMagic || take<std::uint32_t>(file) != kVersion) return std::nullopt;
  const auto sum = take<std::uint64_t>(file);
  if (!sum || *sum != checksum(file)) return std::nullopt;
  return file;
}
}  // namespace cinch::internal
