#include "cinch/core/cache_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <utility>

#include "cinch/core/atomic_file.h"
#include "cinch/core/error.h"
#include "cinch/core/internal/cache_format.h"

namespace cinch {
namespace {
namespace fs = std::filesystem;
using internal::CacheEntries;

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : value_(::open(path.c_str(), flags | O_CLOEXEC)) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }

 private:
  int value_;
};

// Of a regular file that is not too large; a pipe or a terminal in its place is not waited for.
std::optional<std::string> content(const fs::path& file) {
  const Descriptor descriptor(file, O_RDONLY | O_NONBLOCK | O_NOCTTY);
  struct stat status {};
  if (descriptor.value() < 0 || ::fstat(descriptor.value(), &status) != 0 || !S_ISREG(status.st_mode))
    return std::nullopt;
  if (static_cast<std::uint64_t>(status.st_size) > internal::kMostCacheBytes) return std::nullopt;
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t got = ::read(descriptor.value(), bytes.data() + done, bytes.size() - done);
    if (got <= 0) return std::nullopt;
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

// Two writers do not meet: the second adds to what the first has written. Released with the descriptor. False if
// another has it for long.
bool lock(const Descriptor& folder, const fs::path& path) {
  constexpr int kTries = 40;
  for (int i = 0; i < kTries; ++i) {
    if (folder.value() >= 0 && ::flock(folder.value(), LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK && errno != EINTR) throw IoError(path, "lock", errno);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// A pipe that somebody put there would be waited for without end.
bool may_be_written(const fs::path& file) {
  for (const fs::path& path : {file, fs::path(file.string() + ".tmp")}) {
    const auto type = fs::status(path).type();
    if (type != fs::file_type::not_found && type != fs::file_type::regular) return false;
  }
  return true;
}

std::string hash_of(std::string_view title) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(internal::checksum(title)));
  return text.data();
}

fs::path from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? fs::path() : fs::path(value);
}
}  // namespace

std::optional<fs::path> cache_folder() {
  if (const char* chosen = std::getenv("CINCH_CACHE_DIR")) {
    if (*chosen == '\0') return std::nullopt;
    return fs::path(chosen);
  }
  // The XDG Base Directory Specification: a relative path is to be ignored.
  if (const fs::path cache = from_environment("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "cinch";
  if (const fs::path home = from_environment("HOME"); home.is_absolute()) return home / ".cache" / "cinch";
  return std::nullopt;
}

CacheFile::CacheFile(const fs::path& folder, std::string_view name, std::string title)
    : folder_(folder), file_(folder / (std::string(name) + "-" + hash_of(title) + ".bin")), title_(std::move(title)) {
  entries_ = read();
}

CacheFile::Entries CacheFile::read() const {
  const auto bytes = content(file_);
  if (!bytes) return {};
  const auto body = internal::unseal(*bytes);
  return body ? internal::decode_entries(*body, title_).value_or(CacheEntries()) : CacheEntries();
}

const std::string* CacheFile::find(std::string_view key) const {
  for (const CacheEntries* entries : {&added_, &entries_}) {
    if (const auto found = entries->find(key); found != entries->end()) return &found->second;
  }
  return nullptr;
}

void CacheFile::add(std::string key, std::string value) { added_.insert_or_assign(std::move(key), std::move(value)); }

void CacheFile::write() {
  fs::create_directories(folder_);
  const Descriptor folder(folder_, O_RDONLY | O_DIRECTORY);
  if (!lock(folder, folder_)) return;
  writable_ = false;  // Unless all goes well.
  if (!may_be_written(file_)) return;
  const auto fits = [](const CacheEntries& entries, const std::string& file) {
    return entries.size() <= internal::kMostCacheEntries && file.size() <= internal::kMostCacheBytes;
  };
  CacheEntries all = added_;
  all.merge(read());
  std::string bytes = internal::seal(internal::encode_entries(title_, all));
  if (!fits(all, bytes)) {
    all = added_;
    bytes = internal::seal(internal::encode_entries(title_, all));
  }
  if (!fits(all, bytes)) return;
  AtomicFile out(file_);
  out.write(bytes);
  out.commit();
  entries_ = std::move(all);
  added_.clear();
  writable_ = true;
}

void CacheFile::save() noexcept {
  if (added_.empty() || !writable_) return;
  try {
    write();
  } catch (...) {  // No folder, no room, no memory: no cache.
    writable_ = false;
  }
}
}  // namespace cinch
