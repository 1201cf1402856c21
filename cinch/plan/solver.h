#pragma once
// The fastest plan that fits a budget, and the proof. Knows neither LibTorch nor any layer: it sees a model only
// through `Simulate`, which runs a step under a plan without memory and gives its trace.
//
//   auto result = solve(problem, costs, simulate);
//   if (auto* s = std::get_if<Solution>(&result)) train(s->best.plan);
//   else explain(std::get<Infeasible>(result));

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cinch/core/bytes.h"
#include "cinch/plan/cost_model.h"
#include "cinch/plan/plan.h"
#include "cinch/trace/trace.h"

namespace cinch::plan {

struct Problem {
  Bytes budget;  ///< Of what on_device gives.
  std::int64_t batch_size = 1;
  std::vector<std::string> modules;  ///< Paths that can be given an ActivationPolicy: those run through call().
                                     ///< Outermost only; none lies inside another.
  bool may_divide_batch = true;      ///< False: micro-batching would change results (batch norm) or is not wanted.
  std::int64_t smallest_part = 1;    ///< Rows a part of the batch must have: batch norm needs two.
  /// Keys of the techniques that the search may use, of techniques(); a plan file may use others. On a CPU those that
  /// put tensors into host memory save none of it, and lossy ones are for the user to allow.
  std::vector<std::string> allowed = {"micro_batch", "checkpoint"};
  std::vector<std::int64_t> loss_chunks = {};  ///< Values of loss_chunk_size worth a try.
  JobFacts facts = {};                         ///< What the job excludes of them.
  /// What a plan's trace takes of a device that has `budget`: on a card its allocator's segments, under the plan's
  /// alloc_conf, and the context. Null: the peak of its requested bytes, as on the CPU.
  std::function<Bytes(const trace::Trace&, const Plan&, Bytes budget)> on_device{};
  bool may(std::string_view technique) const;  ///< Whether it is among `allowed`.
  Bytes overhead{};  ///< on_device gives at least the peak of requested bytes and this: a context.
};

/// By problem.on_device: what a budget is compared with. `trace`: of a step under `plan`.
Bytes bytes_on_device(const Problem& problem, const Plan& plan, const trace::Trace& trace);

/// Runs a step under a plan without memory. Called from one thread at a time; may take milliseconds. The trace is
/// classified and holds initialization, two training steps (optimizer state appears between them) and, if the job
/// evaluates, one evaluation: the peak can be in any of them. Exceptions pass through solve().
using Simulate = std::function<trace::Trace(const Plan&)>;

/// A plan with what its own dry run said. Nothing else is ever reported.
struct Candidate {
  Plan plan;
  Bytes peak;  ///< On the device.
  Seconds step_time{};
};

/// One of the tensors that stand at a peak, ready to print.
struct PeakTensor {
  Bytes bytes;
  trace::Category category;
  std::string name, module, op;
  std::vector<std::int64_t> sizes;
  DType dtype = DType::kFloat32;
};
/// Largest first, at most `limit`.
std::vector<PeakTensor> peak_tensors(const trace::Trace& trace, std::size_t limit);

/// What a technique that the search might not use would give: the reported plan with it, dry-run.
struct WouldGive {
  std::string technique;  ///< Its key.
  Candidate candidate;
};

struct Solution {
  Candidate best;                   ///< Fastest with peak ≤ budget; of equals the one that changes least.
  std::vector<Candidate> frontier;  ///< Pareto-optimal over all that were dry-run, by rising peak.
  Candidate unconstrained;          ///< The default plan.
  std::size_t simulated = 0;        ///< Plans dry-run.
  /// best.step_time is at most (1+gap) × any other fitting plan's that the search could have met (its micro-batch and
  /// chunk sizes, any techniques allowed). 0: all were covered, by simulation or by a bound, though nothing faster by
  /// less than 0.1 % is looked for. Ties of up to that, where the plan that changes less is preferred, count in it.
  /// Infinite if time ran out and no bound is known.
  double gap = 0;
  std::vector<WouldGive> would_give = {};
};
/// No plan fits. `smallest` has the least peak over all of them (the floor; `advice` says if time ran out, or tries on
/// a card, before that was sure); `tensors` are what is live there.
struct Infeasible {
  Candidate smallest;
  std::vector<PeakTensor> tensors;
  std::string advice;
  std::size_t simulated = 0;
  std::vector<WouldGive> would_give = {};  ///< Of `smallest` with each, and last with all that can be had together.
};

struct SolveOptions {
  Seconds time_limit{60};
  std::stop_token stop;
  bool first_fit = false;  ///< Any plan that fits will do, and no would_give: to ask whether, not how fast.
  std::function<void(const Candidate&)> on_candidate;  ///< Progress; same thread.
};
[[nodiscard]] std::variant<Solution, Infeasible> solve(const Problem& problem, const CostModel& costs,
                                                       const Simulate& simulate, const SolveOptions& options = {});

/// Written apart from the solver, the slow plain way: simulates every reported candidate again and recomputes peak,
/// time and dominance. Empty when right; else one sentence a fault.
std::vector<std::string> validate(const Problem& problem, const CostModel& costs, const Simulate& simulate,
                                  const Solution& solution);
/// A hand-edited plan against a model: unknown module (with the near name), a batch that may not be divided, a
/// micro-batch over the batch. Empty when legal.
std::vector<std::string> validate(const Problem& problem, const Plan& plan);
}  // namespace cinch::plan
