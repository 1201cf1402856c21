#pragma once
// Parts that the reports for a terminal share.

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "cinch/report/summaries.h"

namespace cinch::report::internal {

class Writer {
 public:
  explicit Writer(bool colour) : colour_(colour) {}

  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text_ += text + "\n";
  }
  void blank() { text_ += "\n"; }
  /// The verdict: bold, green when good and red when not.
  std::string verdict(const std::string& words, bool good) const {
    return colour_ ? fmt::format("\x1b[1;{}m{}\x1b[0m", good ? 32 : 31, words) : words;
  }
  std::string bold(const std::string& words) const { return colour_ ? "\x1b[1m" + words + "\x1b[0m" : words; }
  std::string take() { return std::move(text_); }

 private:
  bool colour_;
  std::string text_;
};

/// What is live at the peak, by category. `parameters`: how many numbers they are; 0: not said.
void categories_table(Writer& out, const PeakSummary& peak, std::int64_t parameters);
/// The largest of `tensors`, alike ones together, as shares of `whole`.
void tensors_table(Writer& out, const std::vector<plan::PeakTensor>& tensors, Bytes whole);
/// An indented line each, none for an empty one; an empty line ends them.
void notes(Writer& out, const std::string& budget, const std::vector<std::string>& others = {});
}  // namespace cinch::report::internal
