#pragma once
// What the traces of a few plans say about the memory of all others of the same division of the batch.
//
// Checkpointing module k takes from every moment of a step what k's forward saved for backward, and adds, at the moment
// of k's own backward, what is computed again. The traces show both, allocation by allocation, so one moment of one
// trace bounds the same moment under any other choice. The bound rests on this: a module's policy frees nothing that
// was allocated outside it, and another one frees nothing but what this one recomputed, brought back or made for
// itself. Of the loss, the gradients and the optimizer's state a change of option may free all that they are seen to
// hold.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cinch/plan/internal/cover.h"
#include "cinch/plan/internal/items.h"
#include "cinch/plan/internal/walk.h"
#include "cinch/trace/trace.h"

namespace cinch::plan::internal {

/// What does not depend on the division: learnt once.
struct SharedFacts {
  PerOption<std::int64_t> state_bytes;  ///< By option of the state: what of it lives on the device between steps.
  std::set<std::string, std::less<>> loss_modules;  ///< Whose allocations another chunk of the loss changes; "" may be.
};

class MemoryModel {
 public:
  /// All of these outlive it. `plain`: all options 0. Every later trace is of the same division. `shared` may be filled
  /// later, before add().
  MemoryModel(const Items& items, const ModuleIndex& modules, const trace::Trace& plain, const SharedFacts& shared);

  /// Learns from the trace of a plan that gives `choice` which saved tensors a policy does not free, since somebody
  /// else keeps them (a block's output is its successor's input). Only where no two neighbours have a policy is this
  /// sure: a checkpointed successor keeps its inputs in any case.
  void learn_kept(const trace::Trace& trace, const Choice& choice);
  /// The same from what another division learnt, where modules make the same tensors. False: they do not.
  bool learn_kept(const MemoryModel& other);
  /// Takes the moments of a trace into the bounds. After all learn_kept().
  void add(const trace::Trace& trace, const Choice& choice);

  /// Modules in the order in which a step's forward reaches them; those it never reaches last.
  std::vector<std::size_t> forward_order() const;

  const std::vector<Moment>& moments() const { return moments_; }

 private:
  using Mask = std::uint8_t;  // A bit a policy, by its option.
  // An allocation of a module's forward, in the order in which they were made.
  struct Made {
    std::int64_t bytes = 0;
    bool held = false;  // Lives until its micro-batch's backward.
    Mask given_up = 0;  // The policies under which it is freed earlier.
    trace::AllocationId id{};
  };
  struct Key {
    std::uint32_t step, micro_batch;
    int module;
    auto operator<=>(const Key&) const = default;
  };
  using MadeBy = std::map<Key, std::vector<Made>>;
  // What an allocation means for the other options of its module.
  struct Role {
    bool brought = false;  // By the module's policy: no other has it.
    Mask removed_by = 0;   // The policies that free it.
  };
  class Sweep;

  MadeBy made_in_forward(const trace::Trace& trace) const;
  static std::vector<std::size_t> twins(const std::vector<Made>& plain, const std::vector<Made>& other);
  std::vector<Role> roles(const trace::Trace& trace, const Choice& choice) const;
  void sum_given_up();
  std::int64_t lost(const Key& key, std::size_t from, std::size_t to) const;
  void take(Moment moment);

  const Items& items_;
  const ModuleIndex& modules_;
  const SharedFacts& shared_;
  MadeBy plain_;
  std::map<Key, std::vector<std::int64_t>>
      given_up_;                    // Sums by policies from × to: freed under `from`, not under `to`.
  std::vector<bool> called_often_;  // Modules that run more than once in a micro-batch.
  std::map<PerOption<std::int64_t>, std::size_t> known_;  // Savings → position in moments_.
  std::vector<Moment> moments_;
};

}  // namespace cinch::plan::internal
