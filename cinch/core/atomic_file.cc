#include "cinch/core/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cinch/core/error.h"

namespace cinch {
namespace {
constexpr std::size_t kBufferBytes = 1u << 20;

// A rename is on disk only once its folder is. File systems that cannot sync a folder answer EINVAL: nothing to do.
void sync_folder_of(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw IoError(folder, "open", errno);
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error != 0 && error != EINVAL) throw IoError(folder, "sync", error);
}
}  // namespace

AtomicFile::AtomicFile(std::filesystem::path file) : file_(std::move(file)) {
  std::error_code ignored;
  const auto status = std::filesystem::status(file_, ignored);
  if (std::filesystem::is_directory(status)) throw IoError(file_, "write", EISDIR);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    temporary_ = file_.string() + ".tmp";
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  }
  if (descriptor_ < 0) fail("write");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* action) const { throw IoError(file_, action, errno); }

void AtomicFile::write(std::string_view bytes) {
  if (bytes.size() >= kBufferBytes) {
    flush();
    write_through(bytes);
    return;
  }
  buffer_.append(bytes);
  if (buffer_.size() >= kBufferBytes) flush();
}

void AtomicFile::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void AtomicFile::write_through(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write");
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  flush();
  if (!temporary_.empty()) {
    if (::fsync(descriptor_) != 0) fail("sync");
    if (::rename(temporary_.c_str(), file_.c_str()) != 0) fail("write");
    temporary_.clear();
    sync_folder_of(file_);
  }
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("close");
}
}  // namespace cinch
