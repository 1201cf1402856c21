#include "cinch/report/internal/answers.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/json_parts.h"
#include "cinch/report/questions.h"

namespace cinch::report {
namespace {

using internal::candidate;
using internal::close;
using internal::head;
using internal::next_command;
using internal::number;
using internal::ordered_json;

ordered_json tried(const Largest::Tried& tried) {
  ordered_json entry = candidate(tried.candidate);
  entry["value"] = tried.value;
  entry["fits"] = tried.fits;
  return entry;
}

ordered_json or_null(const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); }

std::string_view name_of(CardAnswer::Fit fit) {
  switch (fit) {
    case CardAnswer::Fit::kPlain:
      return "plain";
    case CardAnswer::Fit::kPlanned:
      return "plan";
    case CardAnswer::Fit::kNot:
      break;
  }
  return "no";
}
}  // namespace

std::string json(const Largest& largest) {
  const Planned& planned = largest.planned;
  ordered_json document = head("cinch.maximize/1", planned.environment, planned.job);
  const auto* solution = std::get_if<plan::Solution>(&planned.result);
  document["maximize"] = largest.what;
  document["key"] = largest.key;
  document["fits"] = solution != nullptr;
  document["value"] = largest.value;
  document["own_value"] = largest.own;
  document["budget_bytes"] = planned.budget.count();
  document["budget_given"] = planned.budget_given;
  document["capacity_bytes"] = planned.capacity.count();
  document["plan"] = solution ? internal::plan_object(solution->best.plan) : ordered_json(nullptr);
  document["predicted"]["peak"] = internal::peak(planned.peak);
  document["predicted"]["step_seconds"] = solution ? number(solution->best.step_time.count()) : ordered_json(nullptr);
  document["gap"] = solution ? number(solution->gap) : ordered_json(nullptr);
  document["beyond"] = largest.beyond ? tried(*largest.beyond) : ordered_json(nullptr);
  document["adjacent"] = largest.adjacent;
  document["limit"] = or_null(largest.limit);
  document["tried"] = ordered_json::array();
  for (const Largest::Tried& one : largest.tried) document["tried"].push_back(tried(one));
  document["simulated"] = largest.simulated;
  document["calibrated"] = planned.calibrated;
  document["plan_file"] = or_null(planned.plan_file);
  document["next"] = or_null(next_command(largest));
  document["elapsed_seconds"] = number(largest.elapsed_seconds);
  return close(document);
}

std::string json(const Cards& cards) {
  ordered_json document = head("cinch.cards/1", cards.environment, cards.job);
  document["cards"] = ordered_json::array();
  for (const CardAnswer& card : cards.cards) {
    ordered_json entry = {{"device", card.device},
                          {"memory_bytes", card.memory.count()},
                          {"budget_bytes", card.budget.count()},
                          {"fits", name_of(card.fit)},
                          {"plain_bytes", card.plain.count()}};
    entry.update(candidate(card.candidate));
    if (card.fit == CardAnswer::Fit::kNot) entry["step_seconds"] = nullptr;
    document["cards"].push_back(std::move(entry));
  }
  const auto name = [](const CardAnswer* card) { return card ? ordered_json(card->device) : ordered_json(nullptr); };
  document["smallest"] = {{"plain", name(internal::smallest_card(cards, CardAnswer::Fit::kPlain))},
                          {"plan", name(internal::smallest_card(cards, CardAnswer::Fit::kPlanned))}};
  document["simulated"] = cards.simulated;
  document["next"] = or_null(next_command(cards));
  document["elapsed_seconds"] = number(cards.elapsed_seconds);
  return close(document);
}
}  // namespace cinch::report
