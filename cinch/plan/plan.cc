#include "cinch/plan/plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace cinch::plan {
namespace {
constexpr std::array<TechniqueInfo, 2> kTechniques{{
    {"micro_batch_size", Equivalence::kReassociated,
     "The batch goes through the model in parts whose gradients add up: activations of one part live at a time."},
    {"activations", Equivalence::kBitwise,
     "A checkpointed module keeps its inputs alone and runs its forward again when backward needs the rest."},
}};

std::size_t checkpointed(const Plan& plan) {
  return static_cast<std::size_t>(std::ranges::count(
      plan.activations, ActivationPolicy::kCheckpoint, &std::pair<const std::string, ActivationPolicy>::second));
}
}  // namespace

std::string_view name_of(Equivalence equivalence) {
  switch (equivalence) {
    case Equivalence::kBitwise:
      return "bitwise";
    case Equivalence::kReassociated:
      return "reassociated";
    case Equivalence::kLossy:
      return "lossy";
  }
  return "";
}

std::string_view name_of(ActivationPolicy policy) {
  return policy == ActivationPolicy::kCheckpoint ? "checkpoint" : "keep";
}

std::span<const TechniqueInfo> techniques() { return kTechniques; }

Equivalence equivalence(const Plan& plan) {
  Equivalence weakest = Equivalence::kBitwise;
  if (plan.micro_batch_size != 0) weakest = std::max(weakest, kTechniques[0].equivalence);
  if (checkpointed(plan) > 0) weakest = std::max(weakest, kTechniques[1].equivalence);
  return weakest;
}

std::string describe(const Plan& plan, std::size_t modules) {
  std::string text;
  if (plan.micro_batch_size != 0) text = fmt::format("micro-batch {}", plan.micro_batch_size);
  const std::size_t count = checkpointed(plan);
  if (count > 0) {
    if (!text.empty()) text += ", ";
    text += fmt::format("checkpoint {} of {} module{}", count, modules, modules == 1 ? "" : "s");
  }
  return text.empty() ? "nothing" : text;
}
}  // namespace cinch::plan
