#include "cinch/inspect/internal/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cinch/core/text.h"
#include "cinch/inspect/words.h"

namespace cinch::inspect::internal {
namespace {

using trace::Category;

constexpr std::int64_t kWorthSaying = 50;  // Parts of what is reserved below one in so many are left to the table.
constexpr const char* kExpandable =
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True splits every block and lets segments grow.";

std::string exact(Bytes bytes) { return with_thousands(bytes.count()) + " B"; }

std::string exact_and_words(Bytes bytes) { return exact(bytes) + " (" + size_words(bytes) + ")"; }

bool worth_saying(Bytes part, Bytes whole) { return part > Bytes(0) && part.count() >= whole.count() / kWorthSaying; }

/// ", in backward"; "" where nothing is known.
std::string comma(const std::string& words) { return words.empty() ? "" : ", " + words; }

std::size_t events_in_recording(const Inspection& seen) { return seen.first_event + seen.events; }

Bytes kind_bytes(const Live& live, Kind kind) {
  for (const Live::OfKind& row : live.kinds) {
    if (row.kind == kind) return row.bytes;
  }
  return {};
}

Finding no_history(const Inspection& seen) {
  return {fmt::format("No history in this snapshot: only the state at the dump is known, {} in {} tensors. No peak, no "
                      "leak, nothing about a card of another size.",
                      exact_and_words(seen.peak.bytes), with_thousands(static_cast<std::int64_t>(seen.peak.tensors))),
          seen.peak.bytes,
          "Call torch.cuda.memory._record_memory_history() at the program's start, before what is to be seen."};
}

Finding peak(const Inspection& seen) {
  const Live& live = seen.peak;
  std::string text =
      fmt::format("The peak is {}{}, {}:", exact_and_words(live.bytes), comma(phase_words(live.phase, live.step)),
                  event_words(live.event, events_in_recording(seen)));
  std::vector<Live::OfKind> rows = live.kinds;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& left, const auto& right) { return left.bytes > right.bytes; });
  for (std::size_t i = 0; i < rows.size() && (i < 4 || rows[i].kind == Kind::kTemporary); ++i) {
    text += fmt::format("{} {} {}", i == 0 ? "" : ",", name_of(rows[i].kind), size_words(rows[i].bytes));
  }
  text += ".";
  std::string action;
  const bool trains =
      kind_bytes(live, Kind::kGradient) > Bytes(0) || seen.optimizer_steps > 0 || live.phase == trace::Phase::kBackward;
  if (live.categories[Category::kActivation] * 3 > live.bytes) {
    action = trains ? "Activation checkpointing, or a smaller batch."
                    : "A smaller batch; torch.no_grad() if no backward follows.";
  } else if (live.categories[Category::kOptimizerState] * 3 > live.bytes) {
    action = "8-bit or offloaded optimizer state, or fewer trained parameters (LoRA).";
  }
  return {text, live.bytes, action};
}

Finding fits(const Inspection& seen) {
  std::string text = "Fits " + size_words(*seen.fits_capacity);
  if (seen.retries > 0) {
    text += fmt::format("; PyTorch must return cached memory {} (slow)",
                        seen.retries == 1 ? "once" : with_thousands(seen.retries) + " times");
  }
  return {text + ".", seen.peak.bytes, ""};
}

/// The temporaries of an optimizer that is no fused kernel.
void optimizer_temporaries(const Inspection& seen, std::vector<Finding>& found) {
  const Live& live = seen.peak;
  const Bytes bytes = kind_bytes(live, Kind::kTemporary);
  if (live.phase != trace::Phase::kOptimizer || bytes == Bytes(0)) return;
  std::string where;
  for (const Live::Path& path : live.paths) {
    if (path.kind != Kind::kTemporary) continue;
    if (path.path != CallPath{}) where = " (" + to_string(path.path) + ")";
    break;
  }
  found.push_back({fmt::format("{} of the peak are temporaries of the optimizer's step{}.", size_words(bytes), where),
                   bytes, "A fused optimizer (fused=True) or in-place operations have none."});
}

void waste_part(std::vector<Finding>& found, const Fragmentation& parts, Bytes part, const std::string& text,
                const std::string& action) {
  if (worth_saying(part, parts.reserved)) found.push_back({size_words(part) + " " + text, part, action});
}

std::string pinned_by(const Fragmentation& parts) {
  if (parts.pinned.empty()) return "";
  const PinnedSegment& first = parts.pinned.front();
  return fmt::format("; the segment with most has {} of {} free and is kept by {} block{}", size_words(first.free),
                     size_words(first.total), first.blocks, first.blocks == 1 ? "" : "s");
}

void reserved(const Inspection& seen, std::vector<Finding>& found) {
  const Fragmentation& parts = seen.at_end;
  const Bytes lost = parts.wasted();
  found.push_back(
      {fmt::format("Reserved at the {}: {}, of which tensors asked for {} and {} belong to no tensor.",
                   seen.has_history ? "end" : "dump", exact(parts.reserved), exact(parts.requested), size_words(lost)),
       lost, ""});
  waste_part(found, parts, parts.cached_segments,
             fmt::format("of that lie in {} whole cached segments: PyTorch returns them before it fails.",
                         with_thousands(static_cast<std::int64_t>(parts.cached_segment_count))),
             "torch.cuda.empty_cache() returns them earlier, should another program want them.");
}

void waste(const Inspection& seen, std::vector<Finding>& found) {
  const Fragmentation& parts = seen.at_end;
  waste_part(found, parts, parts.stranded,
             fmt::format("lie free in {} blocks of segments in which something lives{}.",
                         with_thousands(static_cast<std::int64_t>(parts.stranded_blocks)), pinned_by(parts)),
             kExpandable);
  waste_part(found, parts, parts.unsplittable, "are the ends of blocks, too small to be split off.", kExpandable);
  waste_part(found, parts, parts.rounding, "are lost to rounding.",
             "Drop roundup_power2_divisions, or make it larger.");
  waste_part(found, parts, parts.other_streams, "lie free in the pools of other streams, which no other may use.",
             "Allocate on one stream; hand over with record_stream.");
  waste_part(found, parts, parts.private_pools, "lie free in private pools (CUDA graphs, MemPools).",
             "Let graphs share a pool: torch.cuda.graph_pool_handle().");
  waste_part(found, parts, parts.pending_frees, "wait for another stream before they are free.",
             "Synchronise that stream, or free earlier on it.");
}

/// What another setting could save. Cached segments are none of it: whoever needs them gets them.
void could_be_saved(const Inspection& seen, std::vector<Finding>& found) {
  const Fragmentation& parts = seen.at_peak;
  const Bytes lost = parts.stranded + parts.unsplittable + parts.rounding;
  if (lost <= Bytes(0)) return;
  std::string text = fmt::format(
      "At the peak {} are lost to fragmentation and rounding, which another setting may save", size_words(lost));
  text += parts.cached_segments > Bytes(0) ? fmt::format("; {} of cached segments are not, PyTorch can return them.",
                                                         size_words(parts.cached_segments))
                                           : ".";
  found.push_back(
      {text, lost,
       worth_saying(lost, parts.reserved) ? "cinch replay --grid finds the setting that comes nearest." : ""});
}

void leaks(const Inspection& seen, std::vector<Finding>& found) {
  const Leaks& leaks = seen.leaks;
  if (leaks.found.empty()) return;
  Bytes held;
  for (const Leak& leak : leaks.found) held += leak.held;
  const Leak& most = leaks.found.front();
  const std::size_t paths = leaks.found.size();
  const std::string where = paths == 1 ? most.path
                                       : fmt::format("{} call paths, of which most, {}, {}", paths,
                                                     size_words(most.bytes_per_step), most.path);
  std::string action =
      leaks.graph_kept ? "Many tensors of one step live on together: a loss kept with its graph (total += loss) does "
                         "that; keep loss.item()."
                       : "Drop what holds it: a list (append x.item() or x.detach().cpu()), a hook, a cache.";
  // A pattern may be a step, or what repeats within one.
  const std::string turn = leaks.source == PeriodSource::kPattern   ? "repetition"
                           : leaks.source == PeriodSource::kForward ? "forward pass"
                                                                    : "step";
  if (leaks.steps_until_full && *leaks.steps_until_full > 0) {
    const auto steps = static_cast<std::int64_t>(*leaks.steps_until_full);
    const std::string_view plural = steps == 1 ? "" : turn.ends_with('s') ? "es" : "s";
    action = fmt::format("The card is full after {} more {}{}. ", with_thousands(steps), turn, plural) + action;
  }
  found.push_back({fmt::format("LEAK: {} more live after every {}, {} in {} of them: {}.",
                               size_words(leaks.bytes_per_step), turn, size_words(held), most.periods, where),
                   held, action});
}

void growing(const Inspection& seen, std::vector<Finding>& found) {
  if (seen.growing.empty()) return;
  Bytes turn, held;
  for (const Leak& leak : seen.growing) {
    turn += leak.bytes_per_step;
    held += leak.held;
  }
  const std::size_t paths = seen.growing.size();
  const std::string& most = seen.growing.front().path;
  found.push_back(
      {fmt::format("LEAK? {} more live after every repetition, {} by the end: {}{}.", size_words(turn),
                   size_words(held),
                   paths == 1 ? ""
                              : fmt::format("{} call paths, of which most, {}, ", paths,
                                            size_words(seen.growing.front().bytes_per_step)),
                   most),
       held,
       "A leak, if it is a loop without backward: torch.no_grad(), or drop what holds the outputs. Activations, if "
       "these are a model's layers and a backward follows."});
}

void what_could_be_smaller(const Inspection& seen, std::vector<Finding>& found) {
  const Live& live = seen.peak;
  const auto say = [&](Kind kind, const char* text, const char* action) {
    const Bytes bytes = kind_bytes(live, kind);
    if (worth_saying(bytes, live.bytes)) found.push_back({size_words(bytes) + " " + text, bytes, action});
  };
  say(Kind::kAutocastCopy, "at the peak are copies of the weights that autocast keeps.",
      "Hold the weights in bf16 where they are used, or turn autocast's cache off (cache_enabled=False): slower.");
  say(Kind::kCublasWorkspace, "at the peak are cuBLAS workspaces, one a thread and stream.",
      "CUBLAS_WORKSPACE_CONFIG=:4096:8 makes them smaller.");
  say(Kind::kGradientBucket, "at the peak are gradient buckets beside the gradients.",
      "DistributedDataParallel(gradient_as_bucket_view=True) makes them one.");
  const Bytes unknown = kind_bytes(live, Kind::kUnknown);
  if (worth_saying(unknown, live.bytes)) {
    found.push_back(
        {size_words(unknown) + (seen.has_history ? " at the peak" : "") + " is of unknown use: no stack tells.",
         unknown,
         "Record with torch.cuda.memory._record_memory_history(stacks=\"all\") from the start of the program."});
  }
}
}  // namespace

void describe(const Inspection& seen, OutOfMemory& oom) {
  const std::string phase = phase_words(oom.live.phase, oom.live.step);
  oom.headline = fmt::format("{}{}{}, asking {}.", oom.recorded ? "Ran out" : "Would run out",
                             phase.empty() ? " at " : " " + phase + ", ",
                             event_words(oom.event, events_in_recording(seen)), size_words(oom.asked));
  if (oom.asked == Bytes(0))
    oom.headline = "Would have run out before the recording begins: what lives at its start is too much.";
  if (oom.short_by > Bytes(0)) {
    oom.verdict = fmt::format("NO ALLOCATOR SETTING HELPS: tensors alone need {}, {} over {}.",
                              exact(oom.capacity + oom.short_by), size_words(oom.short_by), size_words(oom.capacity));
  } else if (oom.any_setting_helps) {
    oom.verdict = fmt::format("A SETTING HELPS: with {} it needs {} of {}.",
                              oom.setting.empty() ? "PyTorch's defaults" : oom.setting,
                              size_words(oom.setting_needs.value_or(Bytes(0))), size_words(oom.capacity));
    oom.to_fit = oom.setting.empty() ? "Unset PYTORCH_CUDA_ALLOC_CONF." : "Set PYTORCH_CUDA_ALLOC_CONF=" + oom.setting;
  } else {
    oom.verdict = "NO SETTING FOUND THAT HELPS, though the tensors alone would have fitted.";
  }
}

std::vector<Finding> findings(const Inspection& seen) {
  std::vector<Finding> found;
  if (seen.oom) {
    const OutOfMemory& oom = *seen.oom;
    found.push_back({oom.headline + " " + oom.verdict, oom.short_by > Bytes(0) ? oom.short_by : oom.asked, oom.to_fit});
  }
  if (seen.fits_capacity) found.push_back(fits(seen));
  leaks(seen, found);
  growing(seen, found);
  // Of a card of another size the report says what comes after, and what is reserved at the end, with the verdict.
  const bool told = seen.oom && !seen.oom->recorded;
  if (!seen.has_history) {
    found.push_back(no_history(seen));
  } else if (!told) {
    found.push_back(peak(seen));
  }
  optimizer_temporaries(seen, found);
  if (seen.has_segments) {
    if (!told) reserved(seen, found);
    waste(seen, found);
    if (seen.has_history) could_be_saved(seen, found);
  }
  what_could_be_smaller(seen, found);
  if (seen.left_out > 0) {
    found.push_back(
        {fmt::format("{} events contradict those before them and were left out: the recording's ring buffer was too "
                     "short, or the file is damaged.",
                     with_thousands(static_cast<std::int64_t>(seen.left_out))),
         Bytes(0), "Record with a larger max_entries."});
  }
  return found;
}
}  // namespace cinch::inspect::internal
