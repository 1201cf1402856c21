// Any bytes as a model.safetensors.index.json: names of files beside it, or a DataError.
#include <cstdlib>
#include <string_view>

#include "cinch/core/error.h"
#include "cinch/interchange/huggingface_weights.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& [tensor, file] : cinch::interchange::parse_shard_index(text, "fuzz")) {
      if (std::filesystem::path(file).filename() != file || file == "..") std::abort();
    }
  } catch (const cinch::DataError&) {
  }
  return 0;
}
