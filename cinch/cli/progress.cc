#include "cinch/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace cinch::cli {
namespace {

using std::chrono::steady_clock;

constexpr auto kBarEvery = std::chrono::milliseconds(100);
constexpr auto kLineEvery = std::chrono::seconds(5);
constexpr int kBarWidth = 20;

std::size_t columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}
}  // namespace

Progress::Style Progress::style(bool quiet) {
  if (quiet) return Style::kSilent;
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) && terminal && std::string_view(terminal) != "dumb" ? Style::kBar : Style::kLines;
}

Progress::~Progress() { end_line(); }

void Progress::end_line() {
  if (line_open_) std::fputs("\r\x1b[K", stderr);
  line_open_ = false;
}

void Progress::show(const std::string& words, bool must_show) {
  const auto now = steady_clock::now();
  if (style_ == Style::kSilent || (!must_show && now < next_)) return;
  if (style_ == Style::kBar) {
    std::fprintf(stderr, "\r%s\x1b[K", words.substr(0, columns() - 1).c_str());
    line_open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", words.c_str());
  }
  std::fflush(stderr);
  next_ = now + (style_ == Style::kBar ? steady_clock::duration(kBarEvery) : steady_clock::duration(kLineEvery));
}

void Progress::planned(std::size_t plans, Bytes smallest) {
  if (plans == 1 && style_ == Style::kLines) next_ = steady_clock::now() + kLineEvery;  // Most searches are shorter.
  show(fmt::format("planning: {} plans dry-run, least peak {}", plans, to_string(smallest)), false);
}

void Progress::now(const std::string& words) { show(words, false); }

void Progress::trained(const train::Progress& progress) {
  const bool must_show = progress.evaluation || progress.step == progress.steps;
  if (style_ == Style::kBar) return show(bar_of(progress, kBarWidth) + " " + words_of(progress), must_show);
  show(words_of(progress), must_show);
}

void Progress::note(const std::string& sentence) {
  if (style_ == Style::kSilent) return;
  end_line();
  std::fprintf(stderr, "%s\n", sentence.c_str());
}

std::string words_of(const train::Progress& progress) {
  std::string words = fmt::format("step {}/{}  loss {:.4f}", progress.step, progress.steps, progress.loss);
  if (progress.evaluation) words += fmt::format("  held out {:.4f}", *progress.evaluation);
  words += fmt::format("  {:.1f} samples/s  live {}  peak {}", progress.samples_per_second, to_string(progress.live),
                       to_string(progress.peak));
  if (progress.step < progress.steps) words += fmt::format("  {} left", clock_of(progress.seconds_left));
  return words;
}

std::string bar_of(const train::Progress& progress, int width) {
  const double done = progress.steps > 0 ? static_cast<double>(progress.step) / static_cast<double>(progress.steps) : 0;
  const auto full = static_cast<std::size_t>(std::clamp(done, 0.0, 1.0) * width);
  return fmt::format("[{:.<{}}]", std::string(full, '#'), width);
}

std::string clock_of(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const auto whole = static_cast<long long>(std::llround(std::min(seconds, 1e9)));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
}
}  // namespace cinch::cli
