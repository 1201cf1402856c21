#pragma once
// Progress on standard error: one line that changes on a terminal, now and then a line elsewhere.

#include <chrono>
#include <cstddef>
#include <string>

#include "cinch/core/bytes.h"
#include "cinch/train/train.h"

namespace cinch::cli {

class Progress {
 public:
  enum class Style { kSilent, kLines, kBar };
  /// What standard error is, and whether it is wanted.
  static Style style(bool quiet);

  explicit Progress(Style style) : style_(style) {}
  ~Progress();  ///< Ends the line.
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void planned(std::size_t plans, Bytes smallest);
  /// What is being done: the changing line.
  void now(const std::string& words);
  void trained(const train::Progress& progress);
  /// A sentence of its own.
  void note(const std::string& sentence);

 private:
  void show(const std::string& words, bool must_show);
  void end_line();

  Style style_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point next_{};
};

/// "step 12/300  loss 2.3456  held out 2.4012  76.1 samples/s  live 120 MiB  peak 412 MiB  1:23 left".
std::string words_of(const train::Progress& progress);
/// "[#####.....]", `width` characters between the brackets.
std::string bar_of(const train::Progress& progress, int width);
/// "0:07", "1:23", "2:03:04".
std::string clock_of(double seconds);
}  // namespace cinch::cli
