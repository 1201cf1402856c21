#pragma once
// A folder of one's own among the system's temporary files; removed with what is in it.

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "cinch/core/error.h"

namespace cinch::train {

/// The system's folder for temporary files: TMPDIR, or /tmp. Throws IoError if there is none.
inline std::filesystem::path temporary_files() {
  std::error_code error;
  std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  if (!error) return folder;
  const char* named = std::getenv("TMPDIR");
  throw IoError(named != nullptr ? named : "/tmp", "put temporary files into", error.value(),
                "Set the environment variable TMPDIR to a folder that is there.");
}

class ScratchFolder {
 public:
  /// Throws IoError.
  ScratchFolder() {
    std::string name = (temporary_files() / "cinch-XXXXXX").string();
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
