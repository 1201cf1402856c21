#include "cinch/report/internal/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cinch/core/text.h"
#include "cinch/report/internal/format.h"

namespace cinch::report::internal {
namespace {
using Fit = CardAnswer::Fit;

std::string capitals(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}
}  // namespace

std::string answer(const Largest& largest) {
  const auto* solution = std::get_if<plan::Solution>(&largest.planned.result);
  if (solution == nullptr)
    return fmt::format("NO {} FITS: not even {} {}", capitals(largest.what), largest.key, largest.value);
  return fmt::format("LARGEST {}: {} (the job's own is {}), {}", capitals(largest.what), with_thousands(largest.value),
                     with_thousands(largest.own), needs(solution->best.peak, largest.planned.budget));
}

std::vector<std::string> remarks(const Largest& largest) {
  std::vector<std::string> sentences;
  if (largest.what == "batch")
    sentences.emplace_back(
        "The batch goes through whole: in micro-batches any would fit. All other techniques are used.");
  if (largest.beyond) {
    sentences.push_back(fmt::format("{} {} fits, {} does not, whatever the plan; {}.", largest.key, largest.value,
                                    largest.beyond->value,
                                    largest.adjacent ? "each was dry-run" : "time ran out before what lies between"));
  }
  return sentences;
}

const CardAnswer* smallest_card(const Cards& cards, CardAnswer::Fit fit) {
  const auto found = std::ranges::find_if(cards.cards, [&](const CardAnswer& card) {
    return card.fit == Fit::kPlain || (card.fit == Fit::kPlanned && fit == Fit::kPlanned);
  });
  return found == cards.cards.end() ? nullptr : &*found;
}

std::string answer(const Cards& cards) {
  const CardAnswer* plain = smallest_card(cards, Fit::kPlain);
  const CardAnswer* planned = smallest_card(cards, Fit::kPlanned);
  if (planned == nullptr) return "NO CARD HOLDS IT, whatever the plan";
  if (planned == plain) return fmt::format("SMALLEST CARD: {}, as it is", one_line(plain->device));
  return fmt::format("SMALLEST CARD: {} with a plan; {}", one_line(planned->device),
                     plain ? one_line(plain->device) + " as it is" : "none as it is");
}

std::string result_of(const CardAnswer& card, std::size_t modules) {
  switch (card.fit) {
    case Fit::kPlain:
      return "FITS as it is";
    case Fit::kPlanned:
      return "FITS with " + plan::describe(card.candidate.plan, modules);
    case Fit::kNot:
      break;
  }
  return fmt::format("no: {} too much", to_string(card.candidate.peak - card.budget));
}

std::string next_command(const Largest& largest) {
  if (std::holds_alternative<plan::Infeasible>(largest.planned.result)) return "";
  return next_command(largest.planned);
}

std::string next_command(const Cards& cards) {
  const CardAnswer* card = smallest_card(cards, Fit::kPlanned);
  if (card == nullptr) return "";
  std::string line = "cinch plan " + shell_word(cards.job);
  for (const std::string& word : cards.options) line += " " + shell_word(word);
  return line + " --device " + shell_word(card->device) + " --out plan.toml";
}
}  // namespace cinch::report::internal
