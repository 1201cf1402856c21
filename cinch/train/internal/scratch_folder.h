#pragma once
// A folder of one's own among the system's temporary files; removed with what is in it.

#include <stdlib.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "cinch/core/error.h"

namespace cinch::train {

class ScratchFolder {
 public:
  /// Throws IoError.
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "cinch-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw IoError(name, "make the folder", errno);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};
}  // namespace cinch::train
