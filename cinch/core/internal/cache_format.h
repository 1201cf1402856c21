#pragma once
// The bytes of a cache file (../cache_file.h). Little endian:
//
//   "cinchkpt"  u32 version  u64 checksum of all that follows
//   title: u32 length, bytes
//   entries up to the end, by ascending key: u32 length of the key, u32 length of the value, both
//
// What is read may be anybody's: every length is checked before it is believed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace cinch::internal {

using CacheEntries = std::map<std::string, std::string, std::less<>>;  // Ordered: no file can make its keys collide.

constexpr std::size_t kMostCacheBytes = 16u << 20;
constexpr std::size_t kMostCacheEntries = 1u << 16;

/// What follows the checksum.
std::string encode_entries(std::string_view title, const CacheEntries& entries);
/// Nothing if it is damaged, or of another title.
std::optional<CacheEntries> decode_entries(std::string_view body, std::string_view title);

std::uint64_t checksum(std::string_view bytes);

/// With magic, version and checksum in front.
std::string seal(std::string_view body);
/// The body; nothing if that is not what was sealed. A view of `file`.
std::optional<std::string_view> unseal(std::string_view file);
}  // namespace cinch::internal
