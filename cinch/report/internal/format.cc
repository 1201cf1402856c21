#include "cinch/report/internal/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "cinch/core/text.h"
#include "cinch/report/internal/frontier.h"

namespace cinch::report::internal {
namespace {

using trace::Category;

constexpr std::array kOrder{Category::kParameter, Category::kOptimizerState, Category::kGradient,  Category::kBuffer,
                            Category::kInput,     Category::kActivation,     Category::kTemporary, Category::kUnknown};
static_assert(kOrder.size() == trace::kCategoryCount);

std::string joined(const std::string& first, const std::string& second) {
  return first.empty() ? second : second.empty() ? first : first + ", " + second;
}
}  // namespace

std::string pattern(const std::string& path) {
  std::string result;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    if (begin > 0) result += '.';
    result += number ? "*" : part;
    begin = end + 1;
  }
  return result;
}

std::span<const Category> display_order() { return kOrder; }

std::string_view label(Category category) {
  switch (category) {
    case Category::kParameter:
      return "parameters";
    case Category::kGradient:
      return "gradients";
    case Category::kActivation:
      return "activations";
    case Category::kOptimizerState:
      return "optimizer state";
    case Category::kInput:
      return "inputs";
    case Category::kBuffer:
      return "buffers";
    case Category::kTemporary:
      return "temporaries";
    case Category::kUnknown:
      break;
  }
  return "unknown";
}

Unit unit_for(Bytes largest) {
  const double bytes = static_cast<double>(largest.count());
  if (bytes >= 4.0 * (1ll << 30)) return {static_cast<double>(1ll << 30), "GiB", 2};
  if (bytes >= 4.0 * (1 << 20)) return {static_cast<double>(1 << 20), "MiB", 1};
  if (bytes >= 4.0 * (1 << 10)) return {static_cast<double>(1 << 10), "KiB", 1};
  return {1, "B", 0};
}

std::string in_unit(Bytes bytes, const Unit& unit) {
  const std::string figure =
      fmt::format("{:.{}f}", std::abs(static_cast<double>(bytes.count())) / unit.bytes, unit.decimals);
  const std::size_t point = std::min(figure.find('.'), figure.size());
  return fmt::format("{}{}{}", bytes.count() < 0 ? "-" : "", with_thousands(std::stoll(figure.substr(0, point))),
                     figure.substr(point));
}

std::string exact(Bytes bytes) { return with_thousands(bytes.count()) + " B"; }

std::string share(Bytes part, Bytes whole) {
  if (part.count() == 0 || whole.count() == 0) return "";
  const double percent = 100.0 * static_cast<double>(part.count()) / static_cast<double>(whole.count());
  return percent < 0.5 ? "<1 %" : fmt::format("{:.0f} %", percent);
}

std::string seconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 0.0995) return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.00995 ? 2 : 1);
  if (seconds < 99.5) return fmt::format("{:.{}f} s", seconds, seconds < 10 ? 2 : 1);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string shape(const plan::PeakTensor& tensor) {
  if (!tensor.sizes.empty()) return fmt::format("{} {}", fmt::join(tensor.sizes, "×"), name_of(tensor.dtype));
  // Of an allocation that no tensor was seen for, the shape is not known.
  return tensor.bytes == element_size(tensor.dtype) ? fmt::format("scalar {}", name_of(tensor.dtype)) : "";
}

std::size_t change_width(const std::vector<Suggestion>& suggestions, std::size_t least) {
  std::size_t width = least;
  for (const Suggestion& suggestion : suggestions) width = std::max(width, suggestion.change.size());
  return std::min<std::size_t>(width, 60);
}

std::string one_line(std::string_view text, std::size_t width) {
  const std::string clean = printable(text);
  std::vector<std::string> points;
  for (const char c : clean) {
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) {
      points.back() += c;
    } else {
      points.emplace_back(1, c == '\n' || c == '\t' ? ' ' : c);
    }
  }
  if (points.size() > width) {
    const std::size_t head = width / 2, tail = width - head - 1;
    points.erase(points.begin() + static_cast<std::ptrdiff_t>(head), points.end() - static_cast<std::ptrdiff_t>(tail));
    points.insert(points.begin() + static_cast<std::ptrdiff_t>(head), "…");
  }
  return fmt::format("{}", fmt::join(points, ""));
}

std::string where(const PeakSummary& peak) {
  std::string place = peak.phase == trace::Phase::kInit ? "initialization"
                      : peak.step == 0                  ? std::string(name_of(peak.phase))
                                                        : fmt::format("step {}, {}", peak.step, name_of(peak.phase));
  const std::string code = joined(one_line(peak.module, 60), one_line(peak.op, 60));
  return code.empty() ? place : place + ", at " + code;
}

std::string needs(Bytes peak, Bytes budget, std::string_view budget_name) {
  std::string need = to_string(peak), limit = to_string(budget);
  if (need == limit && peak != budget) {
    need = exact(peak);
    limit = exact(budget);
  }
  if (peak <= budget) return fmt::format("needs {} of {}: {} spare", need, limit, to_string(budget - peak));
  return fmt::format("needs {}, {} {}: {} too much", need, budget_name, limit, to_string(peak - budget));
}

std::string_view result_of(plan::Equivalence equivalence) {
  switch (equivalence) {
    case plan::Equivalence::kBitwise:
      return "same weights";
    case plan::Equivalence::kReassociated:
      return "same weights but for rounding";
    case plan::Equivalence::kLossy:
      break;
  }
  return "lossy";
}

std::string_view result_of(const Suggestion& suggestion) {
  return suggestion.other_training ? "not the same training" : result_of(suggestion.equivalence);
}

namespace {
std::string budget_note(bool given, const std::optional<CardBytes>& card, Bytes capacity, const std::string& device) {
  if (given) return "";
  if (!card) return "Budget: this machine's memory less 2 %; --budget sets another.";
  return fmt::format("Budget: the {} of {} less 2 %; --budget sets another.", to_string(capacity),
                     one_line(device, 40));
}

/// "aten::nonzero in head, aten::unique and 3 more".
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 3;
  const std::size_t shown = names.size() > kMost + 1 ? kMost : names.size();
  std::string text = one_line(fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", ")), 160);
  return shown < names.size() ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}
}  // namespace

std::string budget_note(const Estimate& estimate) {
  return budget_note(estimate.budget_given, estimate.peak.card, estimate.capacity, estimate.environment.device);
}

std::string budget_note(const Planned& planned) {
  return budget_note(planned.budget_given, planned.peak.card, planned.capacity, planned.environment.device);
}

std::string beside_tensors(const PeakSummary& peak, const Unit& unit) {
  if (!peak.card) return "";
  return fmt::format("+ rounding, fragmentation {} + CUDA context {} = on the card {} {}",
                     in_unit(peak.card->reserved - peak.requested, unit), in_unit(peak.card->context, unit),
                     in_unit(peak.card->on_card(), unit), unit.name);
}

std::vector<std::string> inexact(const Estimate& estimate) {
  std::vector<std::string> sentences;
  if (!estimate.bounded.empty()) {
    sentences.push_back(
        fmt::format("An upper bound: values decide the sizes of {}; the largest count.", listed(estimate.bounded)));
  }
  if (!estimate.by_shape_alone.empty()) {
    sentences.push_back(
        fmt::format("By shapes alone: {}; what these take inside does not count.", listed(estimate.by_shape_alone)));
  }
  return sentences;
}

std::string step_times(const Planned& planned) {
  return fmt::format("Step times: roofline of {}, {}.", one_line(planned.environment.device, 40),
                     planned.calibrated ? "calibrated on this machine" : "not calibrated here");
}

std::vector<TensorGroup> groups(const std::vector<plan::PeakTensor>& tensors, std::size_t limit) {
  std::vector<TensorGroup> result;
  std::map<std::tuple<Category, std::string, std::string>, std::size_t> known;
  for (const plan::PeakTensor& tensor : tensors) {
    const bool named = !tensor.name.empty();
    const std::string name = joined(named ? tensor.name : tensor.module, named ? "" : tensor.op);
    const std::string alike = joined(pattern(named ? tensor.name : tensor.module), named ? "" : tensor.op);
    const auto [place, is_new] = known.try_emplace({tensor.category, alike, shape(tensor)}, result.size());
    if (is_new) {
      result.push_back({tensor.category, one_line(name.empty() ? "-" : name), shape(tensor), 0, Bytes()});
    } else {
      result[place->second].name = one_line(alike.empty() ? "-" : alike);
    }
    result[place->second].count += 1;
    result[place->second].bytes += tensor.bytes;
  }
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (result.size() > limit) result.resize(limit);
  return result;
}

namespace {
std::string command(std::string_view verb, const std::string& job, const std::vector<std::string>& options) {
  std::string line = fmt::format("cinch {} {}", verb, shell_word(job));
  for (const std::string& word : options) line += fmt::format(" {}", shell_word(word));
  return line;
}
/// The budget exactly, in the largest unit that allows it.
std::string budget_flag(Bytes budget, bool given) {
  if (!given) return "";
  std::int64_t count = budget.count();
  std::size_t unit = 0;
  constexpr std::array<std::string_view, 4> kUnits{"", "KiB", "MiB", "GiB"};
  while (unit + 1 < kUnits.size() && count != 0 && count % 1024 == 0) {
    count /= 1024;
    ++unit;
  }
  return fmt::format(" --budget {}{}", count, kUnits[unit]);
}
}  // namespace

std::string next_command(const Estimate& estimate) {
  if (estimate.peak.card && estimate.fits) return "";
  return command(estimate.fits ? "train" : "plan", estimate.job, estimate.options) +
         budget_flag(estimate.budget, estimate.budget_given);
}

namespace {
/// Of these, the device replaced by all there are.
std::string which_card(const Planned& planned) {
  std::vector<std::string> options = planned.options;
  if (const auto flag = std::ranges::find(options, "--device"); flag != options.end() && flag + 1 != options.end())
    options.erase(flag, flag + 2);  // The flag and its name.
  return command("plan", planned.job, options) + " --device all";
}

/// The first that would do: a technique that is not allowed, a smaller job, more memory, another card.
std::string next_command(const Planned& planned, const plan::Infeasible& infeasible) {
  const std::string budget = budget_flag(planned.budget, planned.budget_given);
  for (const plan::WouldGive& give : infeasible.would_give) {
    if (give.candidate.peak > planned.budget) continue;
    return command("plan", planned.job, planned.options) + " " + allow_flags(planned, give.candidate.plan) + budget;
  }
  if (!planned.smaller.empty()) {
    std::vector<std::string> options = planned.options;
    for (const std::string& set : planned.smaller.front().sets) options.insert(options.end(), {"--set", set});
    return command("plan", planned.job, options) + budget;
  }
  // On a card the least memory that a plan runs in is known to 0.2 %.
  const Bytes floor = infeasible.smallest.peak;
  const Bytes enough = planned.peak.card ? floor + Bytes(floor.count() / 100) : floor;
  if (!planned.budget_given || enough.count() > planned.capacity.count() / 50 * 49) return which_card(planned);
  return command("plan", planned.job, planned.options) + budget_flag(enough, true);
}
}  // namespace

std::string next_command(const Planned& planned) {
  if (const auto* infeasible = std::get_if<plan::Infeasible>(&planned.result))
    return next_command(planned, *infeasible);
  if (planned.peak.card) {
    if (!planned.plan_file.empty()) return "";
    return command("plan", planned.job, planned.options) + budget_flag(planned.budget, planned.budget_given) +
           " --out plan.toml";
  }
  std::string line = command("train", planned.job, planned.options) + budget_flag(planned.budget, planned.budget_given);
  if (!planned.plan_file.empty()) line += " --plan " + shell_word(planned.plan_file);
  return line;
}

std::string next_command(const FitSummary& fit) {
  if (fit.already_done) {
    const auto further = fit.resumed_at + std::max(fit.resumed_at, *fit.already_done);
    return command("train", fit.run_dir + "/job.toml", {"--resume", "--set", "train.steps=" + std::to_string(further)});
  }
  if (fit.run_dir.empty() || !fit.interrupted) return "";
  return command("train", fit.run_dir + "/job.toml", {"--resume"});
}

std::string proof(double gap) {
  if (gap <= 0) return "optimum proven";
  if (!std::isfinite(gap)) return "optimum not proven";
  return fmt::format("within {:.1f} % of the optimum", 100 * gap);
}

std::string agreement(const FitSummary& fit) {
  const Bytes predicted = fit.predicted.requested, measured = fit.measured.requested;
  if (predicted == measured) return "predicted = measured, to the byte";
  const Bytes apart = predicted > measured ? predicted - measured : measured - predicted;
  return fmt::format("predicted {}, measured {}: {} apart", exact(predicted), exact(measured), exact(apart));
}

std::string outcome(const FitSummary& fit) {
  if (fit.already_done) {
    return fmt::format("ALREADY DONE: the training is at step {}, train.steps is {}", with_thousands(fit.resumed_at),
                       with_thousands(*fit.already_done));
  }
  const std::int64_t done = fit.steps.empty() ? fit.resumed_at : fit.steps.back().step;
  if (fit.interrupted) {
    return fmt::format("INTERRUPTED after step {}, {}", with_thousands(done),
                       fit.run_dir.empty() ? "not saved (the job names no run_dir)" : "saved");
  }
  const std::int64_t now = done - fit.resumed_at;
  std::string words = fmt::format("TRAINED {} step{}", with_thousands(now), now == 1 ? "" : "s");
  if (fit.resumed_at > 0) words += fmt::format(", {} to {}", with_thousands(fit.resumed_at + 1), with_thousands(done));
  return words;
}
}  // namespace cinch::report::internal
