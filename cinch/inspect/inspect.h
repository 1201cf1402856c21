#pragma once
// What a recording says: what made the peak, what is wasted, what leaks, what would have run out, what to change.
//
//   const auto snapshot = snapshot::Snapshot::open("oom.pickle");
//   const Inspection seen = inspect(snapshot, snapshot.devices()[0], {.capacity = 23_GiB});
//   for (const Finding& finding : seen.findings) puts(finding.text.c_str());

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/inspect/call_path.h"
#include "cinch/inspect/categories.h"
#include "cinch/inspect/fragmentation.h"
#include "cinch/inspect/leaks.h"
#include "cinch/snapshot/snapshot.h"
#include "cinch/trace/trace.h"

namespace cinch::inspect {

/// What lives at one moment. The sums of categories, kinds and (of all of them) paths are `bytes`.
struct Live {
  std::size_t event = 0;  ///< After it; position in the whole recording, from 0.
  Bytes bytes;            ///< Requested.
  std::size_t tensors = 0;
  trace::Phase phase = trace::Phase::kOther;
  std::uint32_t step = 0;  ///< Optimizer step, from 1; 0 where the recording does not tell.
  std::string where;       ///< Of the event: its call path.
  trace::CategoryBytes categories;
  struct OfKind {
    Kind kind;
    Bytes bytes, before;  ///< `before`: the part that lived before the recording.
    std::size_t tensors = 0, tensors_before = 0;
    std::string note;  ///< "of 291; 4.29 GiB still to come"; may be empty.
  };
  std::vector<OfKind> kinds;  ///< That occur; as reports list them.
  struct Path {
    CallPath path;
    Kind kind;
    Bytes bytes, largest;
    std::size_t tensors = 0;
    bool before = false;  ///< Lived before the recording, and no stack was kept.
  };
  std::vector<Path> paths;     ///< Largest first; at most Options::paths.
  std::size_t more_paths = 0;  ///< That were left out,
  Bytes more_bytes;            ///< and what they hold.
};

/// An allocation that lives, as somebody who wants it away must know it.
struct Tensor {
  Bytes bytes;
  Kind kind;
  std::string path;
};

/// A way to need less, and what it would leave.
struct Remedy {
  std::string name;   ///< "offloaded state with bf16 parameters and gradients".
  Bytes leaves;       ///< Highest sum of live tensors then, of all that was recorded (of a recorded failure, up to it).
  bool fits = false;  ///< That is little enough.
  bool at_best = false;  ///< `leaves` counts no activations at all.
};

/// An allocation that failed, or would have on a card of another size.
struct OutOfMemory {
  bool recorded = false;  ///< False: would have, at `capacity`.
  Bytes capacity;         ///< What the allocator could reserve: the card less contexts and other programs.
  std::size_t event = 0;  ///< Position in the whole recording, from 0.
  Bytes asked;            ///< As requested (as rounded, where it was recorded).
  Bytes free;             ///< On the device, not reserved.
  Bytes reserved;
  Bytes largest_free_block;      ///< Of the pool and stream that was asked.
  Bytes short_by;                ///< What tensors alone need beyond `capacity`; 0 if their sum would have fitted.
  Live live;                     ///< Then; for a card of another size the asked tensor included.
  Fragmentation waste;           ///< Then.
  std::string headline;          ///< A sentence: "Would run out in backward, event 12,630 of 19,342, asking 100 MiB."
  std::string verdict;           ///< A sentence: whether a setting could have helped, by arithmetic or by trying.
  std::string to_fit;            ///< A sentence: what to do.
  std::vector<Remedy> remedies;  ///< What that comes to, if no setting helps.
  std::string why;               ///< A sentence: why no block served.
  /// Under the recorded settings it would have failed here already: fragmentation. Only where tensors alone are too
  /// much later on, which `event` is.
  std::optional<std::size_t> already_at;
  bool any_setting_helps = false;
  std::string setting;                 ///< That helps: PYTORCH_CUDA_ALLOC_CONF.
  std::optional<Bytes> setting_needs;  ///< Peak reserved under it.
  /// The smallest set without which it would have been served; empty where the recording would not fit without it
  /// either, since more comes later.
  std::vector<Tensor> make_room;
  Bytes short_at_peak;  ///< What tensors alone need beyond `capacity` at the recording's peak; 0 if recorded.
};

/// A plain sentence about it, what it is worth in bytes and what to do ("" if there is nothing to do).
struct Finding {
  std::string text;
  Bytes bytes;
  std::string action;
};

/// Live bytes over the recording, thinned: of each stretch of events the moment with the most.
struct CurvePoint {
  std::size_t event = 0;
  trace::Phase phase = trace::Phase::kOther;
  std::uint32_t step = 0;
  trace::CategoryBytes live;
  Bytes reserved;
};

/// One device's recording, read.
struct Inspection {
  std::string source;           ///< File, for people.
  int device = 0;               ///< GPU; -1 for a trace of cinch's own.
  std::string device_name;      ///< "GPU 0", "cpu".
  std::size_t events = 0;       ///< Inspected,
  std::size_t first_event = 0;  ///< beginning with this one of the recording.
  std::size_t left_out = 0;     ///< Events that contradict those before them.
  bool has_history = true;      ///< False: no event was recorded, and only the state at the dump is known.
  std::string alloc_conf;       ///< As recorded.
  std::string optimizer;        ///< "AdamW"; "" if nothing names it.
  std::uint32_t optimizer_steps = 0;
  Live peak;  ///< Of requested bytes; the first if several are equal.
  Live end;
  bool has_segments = false;  ///< Without: a trace of cinch's own, and nothing below that has to do with them.
  Fragmentation at_peak, at_end;
  Bytes peak_reserved;
  std::size_t peak_reserved_event = 0;
  Bytes best_possible;  ///< No allocator needs less: the live-load bound, requests rounded to 512 B.
  std::vector<CurvePoint> curve;
  Leaks leaks;
  /// In a recording of nothing but forwards: what grows with each repetition in it, most first. Activations
  /// if that is a model's layers, a leak if it is a loop of inference.
  std::vector<Leak> growing;
  std::optional<OutOfMemory> oom;      ///< The first recorded, or where it would run out at Options::capacity.
  std::optional<Bytes> fits_capacity;  ///< The capacity that was asked about, if nothing would run out there.
  std::int64_t retries = 0;            ///< There: how often PyTorch must give cached segments back to go on.
  std::vector<Finding> findings;       ///< Most important first.
};

struct Options {
  std::optional<Bytes> capacity;  ///< A card on which it would have run: what the allocator may reserve.
  std::size_t paths = 64;         ///< Call paths kept of each moment.
  std::size_t curve_points = 900;
};

/// Several passes over the events; memory bounded by what lives, the stacks, and a byte an allocation.
Inspection inspect(const snapshot::Snapshot& snapshot, const snapshot::Device& device, const Options& options = {});
/// A trace of cinch's own: categories and modules are known, there are no segments and no stacks. Call paths are module
/// and op. `trace` must have been classified.
Inspection inspect(const trace::Trace& trace, const Options& options = {});
}  // namespace cinch::inspect
