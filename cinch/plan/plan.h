#pragma once
// A plan: every technique's setting, as a value. The default plan is plain training.

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cinch::plan {

/// How a technique's result compares with plain training's.
enum class Equivalence : std::uint8_t { kBitwise, kReassociated, kLossy };
std::string_view name_of(Equivalence equivalence);  ///< "bitwise"

/// What is done with what a module's forward saves for backward.
enum class ActivationPolicy : std::uint8_t { kKeep, kCheckpoint };
std::string_view name_of(ActivationPolicy policy);  ///< "keep", "checkpoint", as in plan files

struct Plan {
  std::int64_t micro_batch_size = 0;                      ///< Divides work, not results. 0: the whole batch.
  std::map<std::string, ActivationPolicy> activations;    ///< By module path; unnamed modules keep.
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// One row a technique: its key in plan files, its class, one sentence. Docs, parsing and tests read this table.
struct TechniqueInfo {
  std::string_view key;
  Equivalence equivalence;
  std::string_view summary;
};
std::span<const TechniqueInfo> techniques();

/// The weakest of the techniques that `plan` uses; kBitwise for the default plan.
Equivalence equivalence(const Plan& plan);

/// "micro-batch 4, checkpoint 3 of 6 modules"; "nothing" for the default plan. `modules`: how many could be given a policy.
std::string describe(const Plan& plan, std::size_t modules);

/// TOML, versioned, canonical order: parse_plan(to_toml(p)) == p, and equal plans print equally.
std::string to_toml(const Plan& plan);
/// Throws ConfigError with the line. Unknown module paths are checked by validate(), which knows the model.
Plan parse_plan(std::string_view text, const std::filesystem::path& name_for_errors);
Plan load_plan(const std::filesystem::path& file);
}  // namespace cinch::plan
