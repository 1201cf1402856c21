#pragma once
// The pass over a recording that says what each allocation was for.

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cinch/inspect/categories.h"
#include "cinch/inspect/internal/before.h"
#include "cinch/inspect/internal/stack_facts.h"
#include "cinch/trace/sink.h"

namespace cinch::inspect::internal {

/// When an optimizer stepped, on the clock of the events.
struct Interval {
  std::int64_t from = 0, to = 0;
};

/// Of the annotations PyTorch's optimizers leave ("Optimizer.step#AdamW.step"), by time; `name` gets "AdamW".
std::vector<Interval> optimizer_intervals(const snapshot::Snapshot& snapshot, std::string& name);

class Categorizer final : public trace::Sink {
 public:
  /// `window`: the recording began earlier. `stacked`: its allocations have stacks; without, lifetimes must do.
  Categorizer(const trace::StackTable& stacks, std::vector<Interval> steps, bool window, bool stacked);
  void on_event(const trace::Event& event) override;
  /// After the last event.
  Kinds finish();

 private:
  struct Record {
    std::int64_t bytes = 0;
    std::uint32_t stack = 0, run = 0, recomputation = 0;
    std::size_t event = 0;
  };
  /// What became of the allocations of one stack: decides for those that the recording's end cut short.
  struct Fate {
    std::uint32_t freed_in_run = 0, outlived = 0;
  };
  /// Made and freed between two optimizer steps of a recording without stacks.
  struct Passing {
    trace::AllocationId id{};
    std::size_t allocated = 0, freed = 0;
  };

  bool in_optimizer(std::int64_t time_ns);
  trace::Phase phase_of(const StackFacts& facts, bool optimizer) const;
  void enter(trace::Phase phase);
  void enter_optimizer();
  void allocate(const trace::Event& event);
  void release(const trace::Event& event);
  Kind kind_of(const Record& record, bool at_end);
  Kind in_forward(const Record& record, const StackFacts& facts, bool outlived, bool at_end);
  Kind in_backward(const Record& record, const StackFacts& facts, bool outlived) const;
  bool cut_short_but_passing(const Record& record) const;
  void close_window();
  void set(trace::AllocationId id, Kind kind) { kinds_.of[static_cast<std::size_t>(id)] = kind; }

  StackReader reader_;
  std::vector<Interval> steps_;
  std::size_t next_step_ = 0;
  bool lifetimes_only_, window_;
  Kinds kinds_;
  BeforeRecording before_;
  std::unordered_map<std::uint32_t, Record> live_;
  std::unordered_map<std::uint32_t, Fate> fates_;  ///< By stack.
  std::vector<Passing> passing_;
  std::size_t events_ = 0;
  std::uint32_t last_backward_run_ = 0;  ///< 0: none; the first run is never backward's.
  std::uint32_t recomputation_ = 0;      ///< Counts stretches of recomputation.
  bool recomputing_ = false, step_open_ = false;
};
}  // namespace cinch::inspect::internal
