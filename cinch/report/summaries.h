#pragma once
// What the verbs found, as plain data: made by train/ and cli/, shown by report/.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cinch/allocator/on_card.h"
#include "cinch/core/bytes.h"
#include "cinch/plan/plan.h"
#include "cinch/plan/solver.h"
#include "cinch/report/history.h"
#include "cinch/trace/event.h"

namespace cinch::report {

/// On every document.
struct Environment {
  std::string libtorch;  ///< "2.11.0"
  std::string device;    ///< "cpu"
  int threads = 0;
};

using allocator::CardBytes;
using allocator::OutOfMemoryPlace;

/// A part of the activations and temporaries at the peak.
struct ActivationGroup {
  enum class Kind : std::uint8_t { kLogits, kWeightCopies, kBlocks, kOther } kind = Kind::kOther;
  std::string name;       ///< kBlocks: "layers.*"; kOther: the module.
  std::size_t count = 0;  ///< kBlocks: modules; else tensors.
  Bytes bytes;
};

/// The peak of a trace, in words.
struct PeakSummary {
  Bytes requested;
  std::optional<CardBytes> card;  ///< None on the CPU, where all sizes are the requested one.
  Bytes needed() const { return card ? card->on_card() : requested; }  ///< What a budget is compared with.
  std::uint32_t step = 0;
  trace::Phase phase = trace::Phase::kOther;
  std::string module, op;
  trace::CategoryBytes categories;
  std::vector<plan::PeakTensor> tensors;               ///< Largest first.
  std::vector<std::pair<std::uint32_t, Bytes>> steps;  ///< Peak of each step; 0 is initialization.
};

/// Live bytes over a trace, thinned for drawing: at each point the largest total of its stretch of events.
struct Curve {
  struct Point {
    std::uint32_t step;
    trace::Phase phase;
    trace::CategoryBytes live;
    std::size_t event = 0;  ///< Position in the trace: the time axis.
  };
  std::vector<Point> points;
  Bytes peak;
};

struct Suggestion {
  std::string change;
  Bytes peak;
  double step_seconds = 0;
  bool fits = false;
  plan::Equivalence equivalence = plan::Equivalence::kBitwise;
  bool other_training = false;  ///< Not the same job in less memory: a smaller batch, a shorter context.
};

struct Estimate {
  Environment environment;
  std::string job;                   ///< Path as the user gave it.
  std::vector<std::string> options;  ///< Words to repeat in the next command: "--set", "train.steps=3".
  std::int64_t parameters = 0;       ///< Numbers, not bytes.
  Bytes budget, capacity;
  bool budget_given = false;  ///< False: the budget is the device's memory less 2 %.
  bool fits = false;
  PeakSummary peak;
  std::vector<ActivationGroup> groups;       ///< Largest first; they sum to activations and temporaries. Cards alone.
  std::optional<OutOfMemoryPlace> runs_out;  ///< If it does not fit on a card: where.
  std::size_t ops = 0;                       ///< Calls of ops in the dry run.
  double step_seconds = 0;                   ///< Plain; 0 if not known.
  /// Ops that make the peak a bound from above: sizes of their results depend on values ("aten::nonzero in head").
  std::vector<std::string> bounded = {};
  std::vector<std::string> by_shape_alone = {};  ///< Ops of which only results count, not what kernels take inside.
  Curve curve;
  std::vector<Suggestion> suggestions;
  double elapsed_seconds = 0;
  History history;  ///< For the page; may be empty.
};

/// The same job but for one size, for which some plan fits.
struct SmallerJob {
  std::string what;               ///< "context 640".
  std::vector<std::string> sets;  ///< What makes it of the job: "model.context_length=640".
  plan::Candidate candidate;      ///< Fits; not the fastest.
};

struct Planned {
  Environment environment;
  std::string job;
  std::vector<std::string> options;  ///< As in Estimate.
  Bytes budget, capacity;
  bool budget_given = false;
  std::size_t modules = 0;  ///< That could be given a policy.
  bool calibrated = false;
  std::variant<plan::Solution, plan::Infeasible> result;
  PeakSummary peak;       ///< Of the best plan; of the smallest if none fits. Its needed() is that plan's peak.
  std::string plan_file;  ///< Where the plan was written; empty if it was not.
  double elapsed_seconds = 0;
  Curve curve;                            ///< As `peak`.
  History history;                        ///< As `peak`, for the page; may be empty.
  std::vector<std::string> allowed = {};  ///< Keys of the techniques that plans could use.
  std::vector<SmallerJob> smaller = {};   ///< If no plan fits: what would do.
};

/// A finished, or cleanly stopped, training.
struct FitSummary {
  Environment environment;
  std::string job;
  plan::Plan plan;
  std::size_t modules = 0;
  std::optional<Bytes> budget;
  PeakSummary predicted, measured;
  Curve predicted_curve, measured_curve;
  std::optional<std::string> divergence;  ///< First difference between prediction and recording, if there is one.
  Bytes reserved;  ///< Most that tensors took from the system at once: heap blocks, and the arena.
  Bytes resident;  ///< Peak resident memory of the process.
  struct StepLoss {
    std::int64_t step;
    double loss;
  };
  std::vector<StepLoss> steps, evaluations;
  struct {
    double p50 = 0, p99 = 0, max = 0;
  } step_seconds;
  double samples_per_second = 0, elapsed_seconds = 0;
  std::int64_t resumed_at = 0;  ///< Steps done before this run.
  bool interrupted = false;     ///< By a signal; saved.
  /// resumed_at is no fewer than this, the job's steps: nothing was trained, and only environment, job, budget and
  /// run_dir are known beside it.
  std::optional<std::int64_t> already_done;
  std::string run_dir, sample;                  ///< `sample`: text the model wrote; empty if it writes none.
  History predicted_history, measured_history;  ///< For the page; may be empty.
};
}  // namespace cinch::report
