#include "cinch/plan/plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "cinch/allocator/settings.h"
#include "cinch/core/error.h"

namespace cinch::plan {
namespace {
std::size_t count(const Plan& plan, ActivationPolicy policy) {
  return static_cast<std::size_t>(
      std::ranges::count(plan.activations, policy, &std::pair<const std::string, ActivationPolicy>::second));
}

template <ActivationPolicy policy>
bool has(const Plan& plan) {
  return count(plan, policy) > 0;
}
template <ActivationPolicy policy>
void drop(Plan& plan) {
  std::erase_if(plan.activations, [](const auto& entry) { return entry.second == policy; });
}

template <StatePlace place>
bool stays_in(const Plan& plan) {
  return plan.optimizer.place == place;
}
void to_device(Plan& plan) { plan.optimizer.place = StatePlace::kDevice; }

template <Autocast autocast>
bool casts_to(const Plan& plan) {
  return plan.autocast == autocast;
}
void cast_nothing(Plan& plan) { plan.autocast = Autocast::kNone; }

constexpr std::array<TechniqueInfo, 13> kTechniques{{
    {"micro_batch", Equivalence::kReassociated, [](const Plan& plan) { return plan.micro_batch_size != 0; },
     [](Plan& plan) { plan.micro_batch_size = 0; },
     "The batch goes through the model in parts whose gradients add up: activations of one part live at a time."},
    {"checkpoint", Equivalence::kBitwise, has<ActivationPolicy::kCheckpoint>, drop<ActivationPolicy::kCheckpoint>,
     "A checkpointed module keeps its inputs alone and runs its forward again when backward needs the rest."},
    {"selective", Equivalence::kBitwise, has<ActivationPolicy::kSelective>, drop<ActivationPolicy::kSelective>,
     "As checkpointing, but results of matrix products and attention are kept: only what is cheap runs again."},
    {"offload", Equivalence::kBitwise, has<ActivationPolicy::kOffload>, drop<ActivationPolicy::kOffload>,
     "What a module saves for backward waits in host memory, and comes back when backward needs it.",
     /*needs_host=*/true},
    {"checkpoint_offload", Equivalence::kBitwise, has<ActivationPolicy::kCheckpointOffload>,
     drop<ActivationPolicy::kCheckpointOffload>, "As checkpointing, and the inputs that are kept wait in host memory.",
     /*needs_host=*/true},
    {"chunked_loss", Equivalence::kReassociated, [](const Plan& plan) { return plan.loss_chunk_size != 0; },
     [](Plan& plan) { plan.loss_chunk_size = 0; },
     "The last linear layer and the loss go over the tokens in chunks: the logits of one chunk live at a time."},
    {"step_in_backward", Equivalence::kBitwise, [](const Plan& plan) { return plan.optimizer.in_backward; },
     [](Plan& plan) { plan.optimizer.in_backward = false; },
     "A parameter is stepped as soon as its gradient is whole, and the gradient dropped: they never live all at once."},
    {"adam8bit", Equivalence::kLossy, [](const Plan& plan) { return plan.optimizer.state == OptimizerState::k8Bit; },
     [](Plan& plan) { plan.optimizer.state = OptimizerState::kFp32; },
     "AdamW's two moments are kept in 8 bits a value with a scale a block, a quarter of their bytes."},
    {"state_on_host", Equivalence::kBitwise, stays_in<StatePlace::kHost>, to_device,
     "The optimizer's state waits in host memory and visits the device a parameter at a time.",
     /*needs_host=*/true},
    {"state_on_disk", Equivalence::kBitwise, stays_in<StatePlace::kDisk>, to_device,
     "The optimizer's state waits in a file and visits the device a parameter at a time."},
    {"bf16", Equivalence::kLossy, casts_to<Autocast::kBf16>, cast_nothing,
     "Matrix products and convolutions run in bfloat16; weights, gradients and optimizer state stay float32."},
    {"fp16", Equivalence::kLossy, casts_to<Autocast::kFp16>, cast_nothing,
     "As bf16, in fp16: the loss is scaled, and a step whose gradients overflow is left out."},
    {"alloc_conf", Equivalence::kBitwise, [](const Plan& plan) { return !plan.alloc_conf.empty(); },
     [](Plan& plan) { plan.alloc_conf.clear(); },
     "Other settings of the card's caching allocator: less of what it reserves lies idle."},
}};

/// What is wrong with allocator settings; empty if nothing is.
std::string fault_of(const std::string& alloc_conf) {
  try {
    static_cast<void>(allocator::Settings::parse(alloc_conf));
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
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
  constexpr std::array<std::string_view, 5> names{"keep", "checkpoint", "selective", "offload", "checkpoint_offload"};
  return names.at(static_cast<std::size_t>(policy));
}

std::string_view name_of(Autocast autocast) {
  constexpr std::array<std::string_view, 3> names{"none", "bf16", "fp16"};
  return names.at(static_cast<std::size_t>(autocast));
}

std::string_view name_of(OptimizerState state) { return state == OptimizerState::k8Bit ? "8bit" : "fp32"; }

std::string_view name_of(StatePlace place) {
  constexpr std::array<std::string_view, 3> names{"device", "host", "disk"};
  return names.at(static_cast<std::size_t>(place));
}

std::span<const TechniqueInfo> techniques() { return kTechniques; }

Plan only(Plan plan, std::span<const Equivalence> kept) {
  for (const TechniqueInfo& technique : kTechniques)
    if (technique.used(plan) && std::ranges::find(kept, technique.equivalence) == kept.end()) technique.drop(plan);
  return plan;
}

Equivalence equivalence(const Plan& plan) {
  Equivalence weakest = Equivalence::kBitwise;
  for (const TechniqueInfo& technique : kTechniques)
    if (technique.used(plan)) weakest = std::max(weakest, technique.equivalence);
  return weakest;
}

std::vector<std::string> conflicts(const Plan& plan, const JobFacts& facts) {
  std::vector<std::string> faults;
  const OptimizerPlan& optimizer = plan.optimizer;
  if (plan.loss_chunk_size != 0 && !facts.divides_loss)
    faults.emplace_back(
        "loss_chunk_size is for models that score many classes for each token, which this one does not");
  if (optimizer.state == OptimizerState::k8Bit && !facts.adamw)
    faults.emplace_back("optimizer.state = \"8bit\" is for AdamW, and this job has another optimizer");
  if (optimizer.state == OptimizerState::k8Bit && optimizer.place != StatePlace::kDevice)
    faults.emplace_back("optimizer.state = \"8bit\" stays on the device: leave out one of the two, 8bit or place");
  if (optimizer.in_backward && (facts.scales_loss || plan.autocast == Autocast::kFp16))
    faults.emplace_back("optimizer.in_backward steps before it is known whether an fp16 gradient overflowed: use bf16");
  if (optimizer.in_backward && facts.clips && plan.micro_batch_size != 0)
    faults.emplace_back(
        "optimizer.in_backward saves nothing where gradients are clipped by their global norm and added up over "
        "micro-batches: leave out one of the three");
  if (plan.autocast != Autocast::kNone && !facts.fp32)
    faults.push_back(fmt::format(
        "autocast = \"{}\" is for jobs whose train.precision is fp32, and this one's is not: leave out one of the two",
        name_of(plan.autocast)));
  if (!plan.alloc_conf.empty() && !facts.on_card)
    faults.emplace_back("alloc_conf sets the allocator of CUDA cards, and this job trains on the CPU");
  if (std::string fault = fault_of(plan.alloc_conf); !fault.empty()) faults.push_back("alloc_conf: " + fault);
  return faults;
}

std::string describe(const Plan& plan, std::size_t modules) {
  std::vector<std::string> parts;
  if (plan.micro_batch_size != 0) parts.push_back(fmt::format("micro-batch {}", plan.micro_batch_size));
  constexpr std::array<std::pair<ActivationPolicy, std::string_view>, 4> policies{
      {{ActivationPolicy::kCheckpoint, "checkpoint"},
       {ActivationPolicy::kSelective, "selective checkpoint"},
       {ActivationPolicy::kOffload, "offload"},
       {ActivationPolicy::kCheckpointOffload, "offloaded checkpoint"}}};
  for (const auto& [policy, words] : policies) {
    const std::size_t modules_with = count(plan, policy);
    if (modules_with == 0) continue;
    parts.push_back(fmt::format("{} {} of {} module{}", words, modules_with, modules, modules == 1 ? "" : "s"));
  }
  if (plan.loss_chunk_size != 0) parts.push_back(fmt::format("loss in chunks of {}", plan.loss_chunk_size));
  if (plan.optimizer.in_backward) parts.emplace_back("optimizer in backward");
  if (plan.optimizer.state == OptimizerState::k8Bit) parts.emplace_back("8-bit optimizer state");
  if (plan.optimizer.place != StatePlace::kDevice)
    parts.push_back(fmt::format("optimizer state to {}", name_of(plan.optimizer.place)));
  if (plan.autocast != Autocast::kNone) parts.push_back(fmt::format("{} autocast", name_of(plan.autocast)));
  if (!plan.alloc_conf.empty()) parts.push_back(fmt::format("allocator set to {}", plan.alloc_conf));
  return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, ", "));
}
}  // namespace cinch::plan
