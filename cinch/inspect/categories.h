#pragma once
// What the allocations of a program that we did not write were for.
//
//   const Kinds kinds = categorize(snapshot, device);
//   trace::Category what = category_of(kinds.of[id]);       // id: as Snapshot::play numbers them

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/event.h"

namespace cinch::inspect {

/// A category, or a part of one that the stack gives away.
enum class Kind : std::uint8_t {
  kParameter,
  kGradient,
  kActivation,
  kOptimizerState,
  kInput,
  kBuffer,
  kTemporary,
  kUnknown,          // So far as trace::Category, in its order.
  kFrozen,           ///< Parameters for which no gradient was seen, among many for which one was: parameter.
  kGradientBucket,   ///< Of DistributedDataParallel: gradient.
  kAutocastCopy,     ///< Of a weight, in autocast's cache: activation.
  kRecomputed,       ///< By activation checkpointing, until backward has used it: activation.
  kCublasWorkspace,  ///< One for each thread that uses the library, and stream: temporary.
  kCudnnWorkspace,   ///< Temporary.
  kCommunication,    ///< Made by torch.distributed or NCCL outside a bucket: temporary.
  kLeaked            ///< Made where a program leaks, and never freed: unknown. By inspect() alone.
};
inline constexpr int kKindCount = 16;

trace::Category category_of(Kind kind);
/// "parameters", "cuBLAS workspaces", "autocast weight copies".
std::string_view name_of(Kind kind);

/// A stretch of events of one phase.
struct PhaseRun {
  std::size_t first_event = 0;  ///< Position among the events played that are not `before`, from 0.
  trace::Phase phase = trace::Phase::kOther;
  std::uint32_t step = 0;  ///< Of the optimizer, from 1: how many had begun, and the one to come.
  friend bool operator==(const PhaseRun&, const PhaseRun&) = default;
};

struct Kinds {
  std::vector<Kind> of;               ///< By AllocationId.
  std::vector<PhaseRun> phases;       ///< By first event; not empty.
  std::uint32_t optimizer_steps = 0;  ///< Seen at least in part.
  std::string optimizer;              ///< "AdamW", from annotations; "" where none names it.
  bool by_stacks = false;             ///< False: nothing but lifetimes and annotations to go by.

  const PhaseRun& phase_at(std::size_t event) const;
};

/// By stacks (PyTorch's own modules, autograd's engine, optimizers, library workspaces), annotations and lifetimes.
/// Where nothing tells, kUnknown. Plays the recording once; a byte an allocation, else memory bounded by what lives.
Kinds categorize(const snapshot::Snapshot& snapshot, const snapshot::Device& device);
}  // namespace cinch::inspect
