#pragma once
// What the traces of a few plans say about the memory of all others of the same micro-batch size.
//
// Checkpointing module k takes from every moment of a step what k's forward saved for backward, and adds, at the moment
// of k's own backward, what is computed again. The traces show both, allocation by allocation, so one moment of one
// trace bounds the same moment under any other set of checkpointed modules. The bound rests on this: checkpointing a
// module frees nothing that was allocated outside it, and keeping it again frees nothing but what it recomputed and what
// its checkpoint itself made.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cinch/trace/trace.h"

namespace cinch::plan::internal {

/// Which modules are checkpointed, by their index.
using Selection = std::vector<bool>;

/// With the modules of S checkpointed at least level − Σ over k in S of savings[k] bytes live at this moment.
struct Moment {
  std::int64_t level = 0;
  std::vector<std::int64_t> savings;
};

/// Finds the module of a problem that a path lies in.
class ModuleIndex {
 public:
  explicit ModuleIndex(std::span<const std::string> modules);
  /// Index of the module that is `path` or holds it; -1 for none.
  int find(std::string_view path) const;
  std::size_t size() const { return by_path_.size(); }

 private:
  std::unordered_map<std::string, int> by_path_;
};

class MemoryModel {
 public:
  /// `plain`: no module checkpointed. Every later trace is of the same micro-batch size.
  MemoryModel(const ModuleIndex& modules, const trace::Trace& plain);

  /// Learns from the trace of a plan that checkpoints `selection` which saved tensors checkpointing does not free, since
  /// somebody else keeps them (a block's output is its successor's input). Only where no two neighbours in `selection`
  /// are checkpointed is this sure: a checkpointed successor keeps its inputs in any case.
  void learn_kept(const trace::Trace& trace, const Selection& selection);
  /// Takes the moments of a trace into the bounds. After all learn_kept().
  void add(const trace::Trace& trace, const Selection& selection);

  /// Modules in the order in which a step's forward reaches them; those it never reaches last.
  std::vector<std::size_t> forward_order() const;

  const std::vector<Moment>& moments() const { return moments_; }

 private:
  // An allocation of a module's forward, in the order in which they were made.
  struct Made {
    std::int64_t bytes = 0;
    std::uint32_t micro_batch = 0;  // Of its step, from 0.
    bool held = false;              // Lives until that micro-batch's backward.
    bool given_up = false;          // Held, and freed earlier if the module is checkpointed.
    trace::AllocationId id{};
  };
  using MadeBy = std::map<std::pair<std::uint32_t, int>, std::vector<Made>>;  // By step and module.
  // What an allocation means for the other plans.
  enum class Role : std::uint8_t { kOther, kRemovable, kBrought };
  struct Sweep;

  MadeBy made_in_forward(const trace::Trace& trace) const;
  static std::vector<std::size_t> twins(const std::vector<Made>& plain, const std::vector<Made>& other);
  std::vector<Role> roles(const trace::Trace& trace, const Selection& selection) const;
  std::int64_t given_up(std::uint32_t step, std::uint32_t micro_batch, int module) const;

  ModuleIndex modules_;
  MadeBy plain_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, int>, std::int64_t> given_up_;  // Sums of those.
  std::vector<bool> called_often_;  // Modules that run more than once in a micro-batch.
  std::map<std::vector<std::int64_t>, std::size_t> known_;  // Savings → position in moments_.
  std::vector<Moment> moments_;
};
}  // namespace cinch::plan::internal
