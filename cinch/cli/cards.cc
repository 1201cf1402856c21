#include "cinch/cli/cards.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cinch/device/device_spec.h"
#include "cinch/plan/cost_model.h"
#include "cinch/plan/solver.h"
#include "cinch/train/train.h"

namespace cinch::cli {
namespace {
using Fit = report::CardAnswer::Fit;
constexpr plan::Seconds kForOne{3};      // Whether a card holds the job at all.
constexpr plan::Seconds kForSpeed{0.5};  // Of a search for a plan of a card that is not only small.

/// What decides which kernels run and what they take: cards that are equal in it make equal dry runs.
std::pair<int, Bytes> kind(const device::DeviceSpec& card) { return {card.compute_capability, card.cublas_workspace}; }

/// Grouped by kind, in a group the largest first.
std::vector<device::DeviceSpec> cards() {
  std::vector<device::DeviceSpec> all;
  for (const std::string& name : device::known()) {
    device::DeviceSpec device = device::find(name);
    if (device.type == device::DeviceType::kCuda) all.push_back(std::move(device));
  }
  std::ranges::sort(
      all, [](const auto& a, const auto& b) { return std::pair(kind(a), b.memory) < std::pair(kind(b), a.memory); });
  return all;
}

report::CardAnswer ask(const Request& request, plan::Seconds time_limit, report::Cards& cards) {
  const device::DeviceSpec& card = request.device;
  const train::Plain plain = train::plain_run(request.job, card, request.limit());
  const plan::Problem& problem = plain.problem;
  const plan::CostModel costs(card);
  report::CardAnswer answer{
      .device = card.name, .memory = card.memory, .budget = problem.budget, .plain = {}, .candidate = {}};
  answer.plain = answer.candidate.peak = plan::bytes_on_device(problem, {}, plain.trace);
  answer.candidate.step_time = costs.step_time(plain.trace);
  cards.modules = problem.modules.size();
  ++cards.simulated;
  if (answer.plain <= problem.budget) {
    answer.fit = Fit::kPlain;
    return answer;
  }
  plan::SolveOptions options;
  options.first_fit = true;
  options.time_limit = time_limit;
  const plan::Simulate simulate = train::abridged_simulator(request.job, card);
  const auto result = plan::solve(problem, costs, simulate, options);
  if (const auto* solution = std::get_if<plan::Solution>(&result)) {
    answer.fit = Fit::kPlanned;
    answer.candidate = solution->best;
    cards.simulated += solution->simulated;
    options.first_fit = false;  // The first is seldom fast.
    options.time_limit = std::min(time_limit, kForSpeed);
    const auto better = plan::solve(problem, costs, simulate, options);
    if (const auto* faster = std::get_if<plan::Solution>(&better)) {
      cards.simulated += faster->simulated;
      if (faster->best.step_time < answer.candidate.step_time) answer.candidate = faster->best;
    }
  } else {
    answer.candidate = std::get<plan::Infeasible>(result).smallest;
    cards.simulated += std::get<plan::Infeasible>(result).simulated;
  }
  return answer;
}
}  // namespace

report::Cards which_card(const Request& request, const Search& how, Progress& progress) {
  const Stopwatch watch;
  report::Cards result;
  result.environment = request.environment;
  result.environment.device = kAllCards;
  result.job = request.path;
  result.options = request.repeat;
  // What a kind's largest card cannot hold no other can, if the context does not differ.
  std::map<std::pair<int, Bytes>, report::CardAnswer> floors;
  for (const device::DeviceSpec& card : cards()) {
    Request one = request;
    one.device = card;
    one.budget.reset();
    progress.now("planning for " + card.name);
    const auto floor = floors.find(kind(card));
    if (floor != floors.end() && floor->second.candidate.peak > one.limit()) {
      report::CardAnswer answer = floor->second;
      answer.device = card.name;
      answer.memory = card.memory;
      answer.budget = one.limit();
      answer.candidate.step_time = {};  // The other card's.
      result.cards.push_back(std::move(answer));
      continue;
    }
    report::CardAnswer answer = ask(one, std::min(how.left(), kForOne), result);
    if (answer.fit == Fit::kNot) floors.emplace(kind(card), answer);
    result.cards.push_back(std::move(answer));
  }
  std::ranges::stable_sort(result.cards, {}, &report::CardAnswer::memory);
  result.elapsed_seconds = watch.seconds();
  return result;
}
}  // namespace cinch::cli
