#include "cinch/inspect/internal/plain_text.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace cinch::inspect::internal {
namespace {

constexpr std::size_t kLongestPrefix = 120;  // Of a line that a logger puts there.

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Walks over a text and hands out the letters that stay, each with its place.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}

  template <typename Take>
  void run(Take&& take) {
    skip_line_prefix();
    while (at_ < text_.size()) {
      if (text_[at_] == '\n') {
        ++at_;
        skip_line_prefix();
      } else if (!skip_invisible()) {
        take(static_cast<char>(std::tolower(static_cast<unsigned char>(text_[at_]))), at_);
        ++at_;
      }
    }
  }

 private:
  bool starts_with(std::string_view words) const { return text_.substr(at_).starts_with(words); }

  bool skip(std::string_view words) {
    if (!starts_with(words)) return false;
    at_ += words.size();
    return true;
  }

  /// White space, a colour, an escaped newline, Markdown's marks.
  bool skip_invisible() {
    const char c = text_[at_];
    if (std::isspace(static_cast<unsigned char>(c)) || c == '`' || c == '*' || c == '\0') {
      ++at_;
      return true;
    }
    for (const std::string_view escape : {"\x1b", "\\x1b", "\\u001b", "\\033"}) {
      if (starts_with(escape)) return skip_colour(escape.size());
    }
    for (const std::string_view space : {"\\n", "\\r", "\\t", "\xc2\xa0", "\xe2\x80\x8b", "\xe2\x94\x82"}) {
      if (skip(space)) return true;
    }
    return false;
  }

  /// An escape sequence of a terminal: CSI … letter, or two characters.
  bool skip_colour(std::size_t escape) {
    at_ += escape;
    if (at_ >= text_.size() || text_[at_] != '[') return true;
    ++at_;
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == ';' || text_[at_] == '?')) ++at_;
    if (at_ < text_.size()) ++at_;
    return true;
  }

  void skip_line_prefix() {
    for (std::size_t before = at_ + 1; before != at_ && at_ < text_.size();) {
      before = at_;
      while (at_ < text_.size() && text_[at_] != '\n' && skip_invisible()) {
      }
      if (skip(">") || skip("|") || skip("#")) continue;
      if (starts_with("[")) skip_bracket('[', ']');
      if (starts_with("(")) skip_process();
      skip_level();
      skip_time();
    }
  }

  std::string_view line_ahead() const {
    const std::string_view ahead = text_.substr(at_, kLongestPrefix);
    return ahead.substr(0, ahead.find('\n'));
  }

  /// "[rank0]:". PyTorch's sentences have no such bracket, so that none can be part of a wrapped one.
  bool skip_bracket(char open, char close) {
    const std::string_view line = line_ahead();
    const std::size_t end = line.find(close);
    if (line.empty() || line.front() != open || end == std::string_view::npos) return false;
    at_ += end + 1;
    skip(":");
    return true;
  }

  /// "(EngineCore_DP0 pid=39535)", not "(GPU 0; …".
  void skip_process() {
    const std::string_view line = line_ahead();
    const std::string_view inside = line.substr(0, line.find(')'));
    if (inside.find("pid=") != std::string_view::npos || inside.find("rank") != std::string_view::npos) {
      skip_bracket('(', ')');
    }
  }

  /// "ERROR 03-03 19:38:29 [core.py:708]".
  void skip_level() {
    for (const std::string_view level : {"ERROR", "WARNING", "INFO", "CRITICAL"}) {
      if (!starts_with(level)) continue;
      const std::string_view line = line_ahead();
      const std::size_t open = line.find('['), close = line.find(']');
      if (open != std::string_view::npos && close != std::string_view::npos && open < close) at_ += close + 1;
      return;
    }
  }

  /// "2025-11-12T11:25:13.4961658Z", "2024-06-17 13:18:29,371".
  void skip_time() {
    const std::string_view line = line_ahead();
    constexpr std::string_view form = "0000-00-00?00:00:00";
    if (line.size() < form.size()) return;
    for (std::size_t i = 0; i < form.size(); ++i) {
      const bool fits = form[i] == '0'   ? is_digit(line[i])
                        : form[i] == '?' ? line[i] == 'T' || line[i] == ' '
                                         : line[i] == form[i];
      if (!fits) return;
    }
    at_ += form.size();
    while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '.' || text_[at_] == ',')) ++at_;
    skip("Z");
  }

  std::string_view text_;
  std::size_t at_ = 0;
};
}  // namespace

std::string squeeze(std::string_view text) {
  std::string squeezed;
  squeezed.reserve(text.size());
  Walk(text).run([&](char c, std::size_t) { squeezed.push_back(c); });
  return squeezed;
}

std::vector<std::size_t> origins(std::string_view text, const std::vector<std::size_t>& positions) {
  std::vector<std::size_t> places;
  std::size_t letter = 0;
  Walk(text).run([&](char, std::size_t place) {
    while (places.size() < positions.size() && positions[places.size()] == letter) places.push_back(place);
    ++letter;
  });
  places.resize(positions.size(), text.size());
  return places;
}
}  // namespace cinch::inspect::internal
