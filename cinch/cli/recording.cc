#include "cinch/cli/recording.h"

#include <fstream>
#include <string>
#include <system_error>

namespace cinch::cli {

bool is_trace(const std::filesystem::path& file) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(file, failed)) return false;  // What a pipe gives, it gives once.
  std::ifstream in(file, std::ios::binary);
  std::string start(8, '\0');
  return in.read(start.data(), 8) && start == "CINCHTRC";
}
}  // namespace cinch::cli
