#include "cinch/inspect/words.h"

#include <fmt/format.h>

#include "cinch/core/text.h"

namespace cinch::inspect {

std::string size_words(Bytes bytes) {
  constexpr double kKiB = 1024, kMiB = kKiB * 1024, kGiB = kMiB * 1024;
  const auto count = static_cast<double>(bytes.count());
  const double size = count < 0 ? -count : count;
  if (size < kKiB) return fmt::format("{} B", bytes.count());
  const double unit = size < kMiB ? kKiB : size < kGiB ? kMiB : kGiB;
  const char* name = unit == kKiB ? "KiB" : unit == kMiB ? "MiB" : "GiB";
  const double value = count / unit;
  if (value == static_cast<double>(static_cast<std::int64_t>(value))) {
    return fmt::format("{} {}", with_thousands(static_cast<std::int64_t>(value)), name);
  }
  return fmt::format("{:.{}f} {}", value, unit == kGiB ? 2 : 1, name);
}

std::string phase_words(trace::Phase phase, std::uint32_t step) {
  const std::string of_step = step > 1 ? fmt::format(" of step {}", step) : "";
  switch (phase) {
    case trace::Phase::kInit:
      return "while the model was made or loaded";
    case trace::Phase::kData:
      return "while data was loaded";
    case trace::Phase::kForward:
      return "in forward" + of_step;
    case trace::Phase::kBackward:
      return "in backward" + of_step;
    case trace::Phase::kOptimizer:
      return step <= 1 ? (step == 1 ? "in the first optimizer step" : "in the optimizer")
                       : fmt::format("in optimizer step {}", step);
    case trace::Phase::kEvaluation:
      return "in evaluation";
    case trace::Phase::kSave:
      return "in saving";
    case trace::Phase::kOther:
      break;
  }
  return "";
}

std::string event_words(std::size_t event, std::size_t events) {
  return fmt::format("event {} of {}", with_thousands(static_cast<std::int64_t>(event)),
                     with_thousands(static_cast<std::int64_t>(events)));
}
}  // namespace cinch::inspect
