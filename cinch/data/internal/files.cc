#include "cinch/data/internal/files.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "cinch/core/error.h"

namespace cinch::data {
namespace {
namespace fs = std::filesystem;

/// Closes on the way out.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw IoError(path, "read", errno);
  }
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

std::vector<fs::path> files_below(const fs::path& folder, bool recursive) {
  std::vector<fs::path> found;
  std::error_code error;
  auto keep = [&](const fs::directory_entry& entry) {
    if (entry.is_regular_file(error)) found.push_back(entry.path());
  };
  if (recursive) {
    fs::recursive_directory_iterator entry(folder, error), end;
    for (; !error && entry != end; entry.increment(error)) keep(*entry);
  } else {
    fs::directory_iterator entry(folder, error), end;
    for (; !error && entry != end; entry.increment(error)) keep(*entry);
  }
  if (error) throw IoError(folder, "list", error.value());
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<fs::path> expand(const std::string& pattern) {
  const fs::path path(pattern);
  std::error_code error;
  if (fs::is_directory(path, error)) return files_below(path, true);
  const std::string last = path.filename().string();
  if (fs::exists(path, error) || last.find_first_of("*?") == std::string::npos) return {path};
  std::vector<fs::path> found = files_below(path.has_parent_path() ? path.parent_path() : fs::path("."), false);
  std::erase_if(found, [&](const fs::path& file) {
    return ::fnmatch(last.c_str(), file.filename().c_str(), FNM_PERIOD) != 0;
  });
  return found;
}
}  // namespace

std::vector<DataFile> list_files(const std::vector<std::string>& patterns) {
  if (patterns.empty()) throw ConfigError("data.path", 0, "data.path", "names no file", "Name a file, a folder or a pattern.");
  std::vector<DataFile> files;
  std::set<fs::path> seen;
  for (const std::string& pattern : patterns) {
    const std::vector<fs::path> matches = expand(pattern);
    if (matches.empty()) {
      throw ConfigError(pattern, 0, "data.path", "no file matches",
                        "Paths are relative to the working directory.");
    }
    for (const fs::path& path : matches) {
      if (!seen.insert(path.lexically_normal()).second) continue;
      std::error_code error;
      if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {  // Opening a pipe would wait for its writer.
        throw ConfigError(path, 0, "data.path", "is no regular file", "Data is read at any place: pipes and devices cannot be.");
      }
      const OpenFile file(path);  // A file that cannot be read is found before training, not in the middle.
      const ::off_t size = ::lseek(file.descriptor(), 0, SEEK_END);
      if (size < 0) throw IoError(path, "measure", errno, "Data must be regular files, not pipes.");
      files.push_back({path, static_cast<std::uint64_t>(size)});
    }
  }
  return files;
}

void read_at(const DataFile& file, std::uint64_t offset, std::uint64_t count, char* out) {
  const OpenFile open(file.path);
  while (count > 0) {
    const ::ssize_t got = ::pread(open.descriptor(), out, count, static_cast<::off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(file.path, "read", errno);
    if (got == 0) {
      throw DataError(file.path, offset,
                      "the file ends here, but had " + std::to_string(file.size) + " bytes when it was opened",
                      "Leave the data alone while it is trained on.");
    }
    out += got;
    offset += static_cast<std::uint64_t>(got);
    count -= static_cast<std::uint64_t>(got);
  }
}
}  // namespace cinch::data
