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
enum class ActivationPolicy : std::uint8_t { kKeep, kCheckpoint, kSelective, kOffload, kCheckpointOffload };
/// "keep", "checkpoint", "selective", "offload", "checkpoint_offload", as in plan files.
std::string_view name_of(ActivationPolicy policy);

/// Mixed precision for a job that trains in float32.
enum class Autocast : std::uint8_t { kNone, kBf16, kFp16 };
std::string_view name_of(Autocast autocast);  ///< "none", "bf16", "fp16"

/// How the optimizer's moments are kept.
enum class OptimizerState : std::uint8_t { kFp32, k8Bit };
std::string_view name_of(OptimizerState state);  ///< "fp32", "8bit"

/// Where the optimizer's state stays between steps.
enum class StatePlace : std::uint8_t { kDevice, kHost, kDisk };
std::string_view name_of(StatePlace place);  ///< "device", "host", "disk"

struct OptimizerPlan {
  OptimizerState state = OptimizerState::kFp32;
  StatePlace place = StatePlace::kDevice;
  bool in_backward = false;  ///< A parameter is stepped, and its gradient dropped, as soon as the gradient is whole.
  friend bool operator==(const OptimizerPlan&, const OptimizerPlan&) = default;
};

struct Plan {
  std::int64_t micro_batch_size = 0;                         ///< Divides work, not results. 0: the whole batch.
  std::map<std::string, ActivationPolicy> activations = {};  ///< By module path; unnamed modules keep.
  std::int64_t loss_chunk_size = 0;                          ///< Tokens whose logits live at a time. 0: all of them.
  OptimizerPlan optimizer = {};
  Autocast autocast = Autocast::kNone;
  std::string alloc_conf = {};  ///< PYTORCH_CUDA_ALLOC_CONF of the process: "expandable_segments:True". Empty: unset.
  friend bool operator==(const Plan&, const Plan&) = default;
};

/// One row a technique: its name, as in --allow; its class; whether a plan uses it; the plan without it; one sentence.
/// Docs and tests read this table.
struct TechniqueInfo {
  std::string_view key;
  Equivalence equivalence;
  bool (*used)(const Plan& plan);
  void (*drop)(Plan& plan);
  std::string_view summary;
  bool needs_host = false;  ///< It puts tensors into host memory: nothing is saved where the device is the host.
};
std::span<const TechniqueInfo> techniques();

/// `plan` with those of its techniques that are of class `kept` alone.
Plan only(Plan plan, std::span<const Equivalence> kept);

/// What of a model and its training decides which techniques they allow.
struct JobFacts {
  bool divides_loss = true;  ///< The model can compute its loss in chunks.
  bool adamw = true;         ///< The optimizer is AdamW.
  bool clips = false;        ///< Gradients are clipped by their global norm.
  bool fp32 = true;          ///< Its own precision is float32.
  bool scales_loss = false;  ///< fp16: whether a step is taken is known once all gradients are there.
  bool on_card = true;       ///< The step runs on a CUDA card.
  friend bool operator==(const JobFacts&, const JobFacts&) = default;
};
/// What a plan combines that excludes each other, or what such a job excludes, a sentence each; empty when legal.
/// Module paths and batches are validate()'s business.
std::vector<std::string> conflicts(const Plan& plan, const JobFacts& facts = {});

/// The weakest of the techniques that `plan` uses; kBitwise for the default plan.
Equivalence equivalence(const Plan& plan);

/// "micro-batch 4, checkpoint 3 of 6 modules"; "nothing" for the default plan. `modules`: how many could be given a
/// policy.
std::string describe(const Plan& plan, std::size_t modules);

/// TOML, versioned, canonical order: parse_plan(to_toml(p)) == p, and equal plans print equally.
std::string to_toml(const Plan& plan);
/// Throws ConfigError with the line. Unknown module paths are checked by validate(), which knows the model.
Plan parse_plan(std::string_view text, const std::filesystem::path& name_for_errors);
Plan load_plan(const std::filesystem::path& file);
}  // namespace cinch::plan
