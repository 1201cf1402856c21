#include "cinch/interchange/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>

#include "cinch/core/error.h"

namespace cinch::interchange {
namespace {
constexpr std::size_t kLargestWrite = 16u << 20;

void announce(const char* moment, const char* action, const std::filesystem::path& path) {
  if (io_hook()) io_hook()(std::string(moment) + " " + action + " " + path.string());
}

/// Runs one system call between its two announcements.
template <class Call>
auto announced(const char* action, const std::filesystem::path& path, Call call) {
  announce("before", action, path);
  const auto result = call();
  if (result < 0) throw IoError(path, action, errno);
  announce("after", action, path);
  return result;
}

int open_or_throw(const std::filesystem::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (descriptor < 0) throw IoError(path, "open", errno);
  return descriptor;
}
}  // namespace

std::function<void(std::string_view)>& io_hook() {
  static std::function<void(std::string_view)> hook;
  return hook;
}

DurableFile::DurableFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(open_or_throw(path_, O_WRONLY | O_CREAT | O_TRUNC)) {}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void DurableFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ::ssize_t written = announced("write", path_, [&] {
      ::ssize_t result;
      do {
        result = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kLargestWrite));
      } while (result < 0 && errno == EINTR);
      return result;
    });
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void DurableFile::close() {
  announced("sync", path_, [&] { return ::fsync(descriptor_); });
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) < 0) throw IoError(path_, "close", errno);
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = open_or_throw(folder, O_RDONLY | O_DIRECTORY);
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } closer{descriptor};
  announced("sync", folder, [&] { return ::fsync(descriptor); });
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  announced("rename", from, [&] { return std::rename(from.c_str(), to.c_str()); });
}
}  // namespace cinch::interchange
