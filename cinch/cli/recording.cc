#include "cinch/cli/recording.h"

#include <fstream>
#include <string>

namespace cinch::cli {

bool is_trace(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string start(8, '\0');
  return in.read(start.data(), 8) && start == "CINCHTRC";
}
}  // namespace cinch::cli
