#pragma once
// What `cinch verify` found: whether a plan trains to the weights that plain training gives.

#include <cstdint>
#include <string>
#include <vector>

#include "cinch/plan/plan.h"
#include "cinch/report/summaries.h"

namespace cinch::report {

/// Two trainings held against each other.
struct VerifyCheck {
  std::string what;  ///< "planned against plain: every weight after each step"
  plan::Equivalence equivalence = plan::Equivalence::kBitwise;  ///< What was promised.
  std::int64_t steps = 0;
  double difference = 0, bound = 0;  ///< Relative, in norm; of lossy techniques in units of the loss.
  bool holds = false;
  std::string parting;  ///< Where they part first: "step 2, layers.0.mlp.weight"; empty if they do not.
};

struct Verification {
  Environment environment;
  std::string job;
  plan::Plan plan;
  std::size_t modules = 0;  ///< That could be given a policy.
  std::vector<VerifyCheck> checks;
  double elapsed_seconds = 0;

  bool holds() const;
  /// The check of the plan's own class; nullptr if there is none.
  const VerifyCheck* of_plan() const;
};

/// For people, ending in a newline.
std::string text(const Verification& verification, bool colour = false);
/// cinch.verify/1
std::string json(const Verification& verification);
/// A page without a chart.
std::string html(const Verification& verification);
}  // namespace cinch::report
