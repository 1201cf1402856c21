// Any bytes as a cache file, as they are and with a right checksum: read or refused, and what was read is written as it
// was.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cinch/core/internal/cache_format.h"

using namespace cinch::internal;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto body = unseal(bytes))
    if (seal(*body) != bytes) std::abort();
  const std::string sealed = seal(bytes);
  const auto body = unseal(sealed);
  if (!body || *body != bytes) std::abort();
  const std::string_view title("title");
  if (const auto entries = decode_entries(*body, title))
    if (entries->size() > kMostCacheEntries || encode_entries(title, *entries) != bytes) std::abort();
  return 0;
}
