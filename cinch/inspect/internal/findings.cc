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

bool worth_saying(Bytes part, Bytes whole) { return part > Bytes(0) && part * kWorthSaying >= whole; }

/// ", in backward"; "" where nothing is known.
std::string comma(const std::string& words) { return words.empty() ? "" : ", " + words; }

std::size_t events_in_recording(const Inspection& seen) { return seen.first_event + seen.events; }

Bytes kind_bytes(const Live& live, Kind kind) {
  for (const Live::OfKind& row : live.kinds) {
    if (row.kind == kind) return row.bytes;
  }
  return {};
}

std::string optimizer_name(const Inspection& seen) { return seen.optimizer.empty() ? "the optimizer" : seen.optimizer; }

/// What must shrink for so much to fit. Looks at what stays from step to step first.
std::string to_fit(const Inspection& seen, Bytes capacity) {
  const auto& peak = seen.peak.categories;
  const Bytes parameters = peak[Category::kParameter], gradients = peak[Category::kGradient],
              state = peak[Category::kOptimizerState],
              activations = peak[Category::kActivation] + peak[Category::kTemporary];
  const std::string begin = "To fit " + size_words(capacity) + ": ";
  if (parameters > capacity) return begin + "the parameters alone are too much: lower precision, sharding or offload.";
  if (state > Bytes(0) && parameters + gradients + state > capacity) {
    return begin + optimizer_name(seen) + " itself must go (offload or 8-bit state, parameters in bf16, or LoRA).";
  }
  if (parameters + gradients > capacity) return begin + "fewer trained parameters (LoRA), or parameters in bf16.";
  if (activations > Bytes(0)) {
    return begin +
           fmt::format("activation checkpointing or a smaller batch: activations and temporaries are {} at the peak.",
                       size_words(activations));
  }
  return begin + "less must live at the peak.";
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
  if (live.categories[Category::kActivation] * 3 > live.bytes) {
    action = "Activation checkpointing, or a smaller batch.";
  } else if (live.categories[Category::kOptimizerState] * 3 > live.bytes) {
    action = "8-bit or offloaded optimizer state, or fewer trained parameters (LoRA).";
  }
  return {text, live.bytes, action};
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

void waste(const Inspection& seen, std::vector<Finding>& found) {
  const Fragmentation& parts = seen.at_end;
  const Bytes lost = parts.wasted();
  found.push_back({fmt::format("Reserved at the end: {}, of which tensors asked for {} and {} is no tensor's.",
                               exact(parts.reserved), exact(parts.requested), size_words(lost)),
                   lost, ""});
  waste_part(found, parts, parts.cached_segments,
             fmt::format("of that lie in {} whole cached segments: no need, PyTorch returns them before it fails.",
                         with_thousands(static_cast<std::int64_t>(parts.cached_segment_count))),
             "torch.cuda.empty_cache() returns them earlier, should another program want them.");
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

void best_possible(const Inspection& seen, std::vector<Finding>& found) {
  const Bytes more = seen.peak_reserved - seen.best_possible;
  if (!seen.has_segments || more <= Bytes(0)) return;
  found.push_back(
      {fmt::format("The best allocator could do with {}: {} less than the {} that were reserved at most.",
                   size_words(seen.best_possible), size_words(more), size_words(seen.peak_reserved)),
       more,
       worth_saying(more, seen.peak_reserved) ? "cinch replay --grid finds the setting that comes nearest." : ""});
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
  const std::string turn = leaks.source == PeriodSource::kPattern   ? "turn of what repeats"
                           : leaks.source == PeriodSource::kForward ? "forward pass"
                                                                    : "step";
  if (leaks.steps_until_full && *leaks.steps_until_full > 0) {
    const auto steps = static_cast<std::int64_t>(*leaks.steps_until_full);
    action = fmt::format("The card is full after {} more. ", with_thousands(steps)) + action;
  }
  found.push_back({fmt::format("LEAK: {} more live after every {}, {} by now: {}.", size_words(leaks.bytes_per_step),
                               turn, size_words(held), where),
                   held, action});
}

void growing(const Inspection& seen, std::vector<Finding>& found) {
  if (seen.growing.empty()) return;
  Bytes turn, held;
  for (const Leak& leak : seen.growing) {
    turn += leak.bytes_per_step;
    held += leak.held;
  }
  found.push_back(
      {fmt::format("Every turn of what repeats here keeps {} more, {} by the end: activations, if these are a "
                   "model's layers and a backward follows; a leak, if it is a loop.",
                   size_words(turn), size_words(held)),
       held, "In a loop without backward: torch.no_grad(), or drop what holds the outputs."});
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
  const Bytes unknown = live.categories[Category::kUnknown];
  if (worth_saying(unknown, live.bytes)) {
    found.push_back(
        {size_words(unknown) + " at the peak is of unknown use: the recording has no stack that tells.", unknown,
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
  oom.to_fit = to_fit(seen, oom.capacity);
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
  if (seen.fits_capacity) {
    found.push_back({fmt::format("Would not run out on {}: {} are reserved at most if nothing is given back before.",
                                 size_words(*seen.fits_capacity), size_words(seen.peak_reserved)),
                     seen.peak_reserved, ""});
  }
  leaks(seen, found);
  found.push_back(peak(seen));
  optimizer_temporaries(seen, found);
  if (seen.has_segments) {
    waste(seen, found);
    best_possible(seen, found);
  }
  growing(seen, found);
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
