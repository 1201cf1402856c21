#include "cinch/core/text.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <array>
#include <cerrno>

#include "cinch/core/atomic_file.h"
#include "cinch/core/error.h"

namespace cinch {
namespace {
// Edits (insert, drop, replace a letter, swap two neighbours) that make `a` of `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}
}  // namespace

std::string with_thousands(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) text.insert(at -= 3, 1, ',');
  return text;
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::size_t most = std::max<std::size_t>(1, name.size() / 3);
  std::string best;
  bool found = false;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(name.size(), candidate.size()),
                      shorter = std::min(name.size(), candidate.size());
    if (longer - shorter > most) continue;
    const std::size_t distance = edit_distance(name, candidate);
    if (distance < most || (distance == most && !found)) {
      best = candidate;
      most = distance;
      found = true;
    }
  }
  return best;
}

int line_of_deep_key(std::string_view toml) {
  constexpr int kDeepest = 100;
  int line = 1, dots = 0;
  for (const char c : toml) {
    if (c == '.') {
      if (++dots > kDeepest) return line;
    } else if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("_-\"' \t").find(c) == std::string_view::npos) {
      dots = 0;
    }
    if (c == '\n') ++line;
  }
  return 0;
}

std::string read_file(const std::filesystem::path& file, std::uint64_t limit) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw IoError(file, "read", errno);
  std::string text;
  std::array<char, 1 << 16> buffer;
  int error = 0;
  while (text.size() <= limit) {
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(descriptor);
  if (error != 0) throw IoError(file, "read", error);
  if (text.size() > limit) {
    throw UsageError(file.string() + " is larger than " + with_thousands(static_cast<std::int64_t>(limit)) +
                         " bytes, the most that is read of such a file",
                     "Check that the path names the file you mean.");
  }
  return text;
}

void write_file(const std::filesystem::path& file, std::string_view text) {
  AtomicFile out(file);
  out.write(text);
  out.commit();
}
}  // namespace cinch
