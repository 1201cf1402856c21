#include "cinch/core/durable_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

#include "cinch/core/error.h"

namespace cinch {
namespace {
constexpr std::size_t kLargestWrite = 16u << 20;

void announce(const char* moment, const char* action, const std::filesystem::path& path) {
  if (io_hook()) io_hook()(std::string(moment) + " " + action + " " + path.string());
}

/// Runs one system call between its two announcements. `shown`: what an error calls `path`.
template <class Call>
auto announced(const char* action, const std::filesystem::path& path, const std::filesystem::path& shown, Call call) {
  announce("before", action, path);
  const auto result = call();
  if (result < 0) throw IoError(shown, action, errno);
  announce("after", action, path);
  return result;
}

/// What cannot be synced (devices, pipes, folders of some file systems) answers EINVAL: nothing to do.
int sync(int descriptor) { return ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : -1; }
}  // namespace

std::function<void(std::string_view)>& io_hook() {
  static std::function<void(std::string_view)> hook;
  return hook;
}

DurableFile::DurableFile(std::filesystem::path path, DurableFileOptions options)
    : path_(std::move(path)),
      shown_(options.shown.empty() ? path_ : std::move(options.shown)),
      descriptor_(::open(path_.c_str(),
                         O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (options.follow_links ? 0 : O_NOFOLLOW), 0666)) {
  if (descriptor_ < 0) throw IoError(shown_, "write", errno);
}

DurableFile::~DurableFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void DurableFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ::ssize_t written = announced("write", path_, shown_, [&] {
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
  announced("sync", path_, shown_, [&] { return sync(descriptor_); });
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) < 0) throw IoError(shown_, "close", errno);
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw IoError(folder, "open", errno);
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } closer{descriptor};
  announced("sync", folder, folder, [&] { return sync(descriptor); });
}

void rename_path(const std::filesystem::path& from, const std::filesystem::path& to) {
  announced("rename", from, from, [&] { return std::rename(from.c_str(), to.c_str()); });
}
}  // namespace cinch
