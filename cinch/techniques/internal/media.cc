#include "cinch/techniques/internal/media.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "cinch/core/bytes.h"
#include "cinch/core/error.h"

namespace cinch::techniques::internal {
namespace {

std::size_t in_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

std::optional<std::uint64_t> take_idle(std::multimap<std::size_t, std::uint64_t>& idle, std::size_t bytes) {
  const auto found = idle.find(bytes);
  if (found == idle.end()) return std::nullopt;
  const auto place = found->second;
  idle.erase(found);
  return place;
}

char* address(std::uint64_t place) { return reinterpret_cast<char*>(static_cast<std::uintptr_t>(place)); }

/// Its name is gone before anybody can see it.
int open_unnamed(const std::filesystem::path& folder) {
  int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return file;
  auto name = (folder / "cinch-XXXXXX").string();  // a file system without such files
  file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file >= 0) ::unlink(name.c_str());
  return file;
}

}  // namespace

HostMemory::~HostMemory() {
  for (const auto& [bytes, place] : idle_) ::munmap(address(place), bytes);
}

std::uint64_t HostMemory::take(std::size_t bytes) {
  const auto size = in_pages(bytes);
  if (const auto idle = take_idle(idle_, size)) return *idle;
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(memory));
}

void HostMemory::give(std::uint64_t place, std::size_t bytes) noexcept { idle_.emplace(in_pages(bytes), place); }

void HostMemory::write(std::uint64_t place, const void* from, std::size_t bytes) {
  std::memcpy(address(place), from, bytes);
}

void HostMemory::read(std::uint64_t place, void* to, std::size_t bytes) { std::memcpy(to, address(place), bytes); }

SwapFile::SwapFile(std::filesystem::path folder) : folder_(std::move(folder)), file_(open_unnamed(folder_)) {
  if (file_ < 0) throw IoError(folder_, "make a file for activations in", errno);
}

SwapFile::~SwapFile() { ::close(file_); }

std::uint64_t SwapFile::take(std::size_t bytes) {
  const auto size = in_pages(bytes);
  if (const auto idle = take_idle(idle_, size)) return *idle;
  return std::exchange(end_, end_ + size);
}

void SwapFile::give(std::uint64_t place, std::size_t bytes) noexcept { idle_.emplace(in_pages(bytes), place); }

void SwapFile::write(std::uint64_t place, const void* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const auto count =
        ::pwrite(file_, static_cast<const char*>(from) + done, bytes - done, static_cast<off_t>(place + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw IoError(folder_,
                    "write " + to_string(Bytes(static_cast<std::int64_t>(bytes))) + " of activations to a file in",
                    count < 0 ? errno : ENOSPC, "Free space there, or offload to another folder or to host memory.");
    }
    done += static_cast<std::size_t>(count);
  }
}

void SwapFile::read(std::uint64_t place, void* to, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const auto count = ::pread(file_, static_cast<char*>(to) + done, bytes - done, static_cast<off_t>(place + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw IoError(
          folder_, "read " + to_string(Bytes(static_cast<std::int64_t>(bytes))) + " of activations back from a file in",
          count < 0 ? errno : EIO);
    }
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace cinch::techniques::internal
