#pragma once
// Answers about more than one job or device: the largest that fits, the cards that would do.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cinch/report/summaries.h"

namespace cinch::report {

/// The largest value of one size of a job for which some plan fits, and its neighbour, for which none does.
struct Largest {
  std::string what;        ///< "batch", "context", "layers", "width".
  std::string key;         ///< Of the job: "train.batch_size".
  std::int64_t own = 0;    ///< The job's own value.
  std::int64_t value = 0;  ///< The answer. If none fits the smallest there is, and `planned` says why it does not.
  Planned planned;         ///< Of the job with that value: its options have it.
  struct Tried {
    std::int64_t value;
    bool fits;
    plan::Candidate candidate;  ///< A plan that fits; else the smallest.
  };
  std::vector<Tried> tried = {};     ///< In the order in which they were.
  std::optional<Tried> beyond = {};  ///< The least known not to fit. None if nothing fits, or at the limit.
  bool adjacent = true;              ///< It is the neighbour; else time ran out between the two.
  std::string limit = {};            ///< What the job refuses beyond the answer, if that is what ends it.
  std::size_t simulated = 0;         ///< Plans dry-run, all values together.
  double elapsed_seconds = 0;
};

/// What training would take of one card.
struct CardAnswer {
  std::string device;
  Bytes memory, budget;  ///< `budget`: memory less 2 %.
  Bytes plain;           ///< What plain training needs of it.
  enum class Fit : std::uint8_t { kPlain, kPlanned, kNot } fit = Fit::kNot;
  plan::Candidate candidate;  ///< Plain training; a plan that fits, or the smallest that there is.
};
struct Cards {
  Environment environment;
  std::string job;
  std::vector<std::string> options;  ///< As in Estimate, without a device.
  std::size_t modules = 0;
  std::vector<CardAnswer> cards;  ///< By memory, smallest first.
  std::size_t simulated = 0;
  double elapsed_seconds = 0;
};

/// As in report.h: for a terminal; schemas "cinch.maximize/1", "cinch.cards/1"; a page.
std::string text(const Largest& largest, bool colour = false);
std::string text(const Cards& cards, bool colour = false);
std::string json(const Largest& largest);
std::string json(const Cards& cards);
std::string html(const Largest& largest);
std::string html(const Cards& cards);
}  // namespace cinch::report
