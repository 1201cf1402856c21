// Any bytes as a Hugging Face config.json: a Job that reads back the same, or a ConfigError.
#include <cstdlib>
#include <string_view>

#include "cinch/core/error.h"
#include "cinch/job/huggingface.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string printed;
  try {
    printed = to_toml(cinch::job::from_config(text, "fuzz"));
  } catch (const cinch::ConfigError&) {
    return 0;
  }
  if (to_toml(cinch::job::parse(printed, "printed")) != printed) std::abort();
  return 0;
}
