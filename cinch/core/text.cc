#include "cinch/core/text.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <new>

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

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Length of the valid UTF-8 sequence at the start of `text`; 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first <= 0xDF   ? 2
                             : (first & 0xF0) == 0xE0         ? 3
                             : first >= 0xF0 && first <= 0xF4 ? 4
                                                              : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) > 0x9F;
  const bool too_large = first == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || too_large ? 0 : length;
}

bool is_control(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
  return sequence.size() == 2 && first == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;  // C1
}

/// Closed however it ends.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};
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
    } else if (!std::isalnum(static_cast<unsigned char>(c)) &&
               std::string_view("_-\"' \t").find(c) == std::string_view::npos) {
      dots = 0;
    }
    if (c == '\n') ++line;
  }
  return 0;
}

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const std::string_view sequence = text.substr(0, std::max<std::size_t>(length, 1));
    result += length == 0 || is_control(sequence) ? kReplacement : sequence;
    text.remove_prefix(sequence.size());
  }
  return result;
}

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  if (printable(text) == text && text.find_first_of("\n\t") == std::string_view::npos) {
    std::string quoted = "'";
    for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
  }
  std::string quoted = "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 0x7F && c != '\'' && c != '\\') {
      quoted += c;
    } else {
      quoted += '\\';
      for (const int shift : {6, 3, 0}) quoted += static_cast<char>('0' + (byte >> shift & 7));
    }
  }
  return quoted + "'";
}

std::string read_file(const std::filesystem::path& file, std::uint64_t limit) {
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (in.number() < 0) throw IoError(file, "read", errno);
  std::string text;
  std::array<char, 1 << 16> buffer;
  while (text.size() <= limit) {
    const ssize_t got = ::read(in.number(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(file, "read", errno);
    if (got == 0) break;
    try {
      text.append(buffer.data(), static_cast<std::size_t>(got));
    } catch (const std::bad_alloc&) {
      const auto read = static_cast<std::int64_t>(text.size());
      text = {};
      throw UsageError(
          file.string() + " does not fit into memory: there was none left after " + with_thousands(read) + " bytes",
          "Check that it names the file you mean.");
    }
  }
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
