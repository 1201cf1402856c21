#include "cinch/optim/internal/state_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cinch/core/error.h"

namespace cinch::optim::internal {
namespace {
void tell(std::string_view what) {
  if (disk_hook()) disk_hook()(what);
}
}  // namespace

std::function<void(std::string_view)>& disk_hook() {
  static auto* hook = new std::function<void(std::string_view)>;
  return *hook;
}

StateStore::StateStore(std::size_t bytes, const std::filesystem::path& folder)
    : name_(folder.empty() ? std::filesystem::path("memory") : folder / "offloaded optimizer state"), bytes_(bytes) {
  if (!folder.empty()) open_file(folder);
  const int kind = descriptor_ < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, kind, descriptor_, 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    throw IoError(name_, "map", error);
  }
  data_ = static_cast<char*>(data);
}

void StateStore::open_file(const std::filesystem::path& folder) {
  descriptor_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // Not every file system has files without a name.
    std::string path = folder / ".cinch-state-XXXXXX";
    descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (descriptor_ >= 0) ::unlink(path.c_str());
  }
  if (descriptor_ < 0) throw IoError(name_, "create", errno);
  // All blocks now: a disk that fills up later must not fail a write, or kill a process that touches the map.
  const int error = ::posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes_));
  if (error == 0) return;
  ::close(descriptor_);
  throw IoError(name_, "reserve " + std::to_string(bytes_) + " bytes for", error);
}

StateStore::~StateStore() {
  ::munmap(data_, bytes_);
  if (descriptor_ >= 0) ::close(descriptor_);
}

void StateStore::read(std::size_t offset, char* to, std::size_t bytes) const {
  if (descriptor_ < 0) {
    std::memcpy(to, data_ + offset, bytes);
    return;
  }
  tell("read");
  for (std::size_t done = 0; done < bytes;) {
    const auto count = ::pread(descriptor_, to + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw IoError(name_, "read", count < 0 ? errno : EIO);
    done += static_cast<std::size_t>(count);
  }
}

void StateStore::write(std::size_t offset, const char* from, std::size_t bytes) {
  if (descriptor_ < 0) {
    std::memcpy(data_ + offset, from, bytes);
    return;
  }
  tell("write");
  for (std::size_t done = 0; done < bytes;) {
    const auto count = ::pwrite(descriptor_, from + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError(name_, "write", errno);
    done += static_cast<std::size_t>(count);
  }
}
}  // namespace cinch::optim::internal
