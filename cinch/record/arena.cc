#include "cinch/record/arena.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/record/internal/arena_hooks.h"
#include "cinch/record/internal/cpu_allocator.h"
#include "cinch/record/internal/region.h"
#include "cinch/record/internal/step_plan.h"

namespace cinch::record {
using internal::Region;
using internal::StepPlan;
using internal::StepRecord;
using internal::Ticket;

namespace {
/// Below, malloc is as good, and what lies in front of every tensor would weigh.
constexpr std::size_t kLeast = 4096;
/// What the system gives may be this many percent of what is live.
constexpr std::int64_t kMostPercent = 105;

/// Of one kind of step.
struct Kind {
  std::optional<StepPlan> plan;
  std::optional<StepRecord> seen;  ///< The last step, where the plan did not foresee it.
  int agreeing = 0;                ///< Steps in a row that were as `seen`.
  int needed = 1;                  ///< So many make a plan; each further one needs twice as many.

  void learn(StepRecord& step) {
    if (seen && *seen == step) {
      ++agreeing;
      return;
    }
    seen = std::move(step);
    agreeing = 1;
  }
};

// Guards all below, Regions and the active arena's state. Taken inside no other lock, and none is taken inside.
std::mutex g_lock;
internal::ArenaState* g_arena = nullptr;
std::vector<std::unique_ptr<Region>>& retired() {  // Regions of which tensors still live. Tensors outlive every static.
  static auto& regions = *new std::vector<std::unique_ptr<Region>>;
  return regions;
}
std::uint64_t g_steps = 0;
std::atomic<bool> g_in_step{false};
std::atomic<std::int64_t> g_requested{0}, g_held{0}, g_mapped{0}, g_reserved_peak{0};

void note_reserved() noexcept {
  const std::int64_t now = g_held.load(std::memory_order_relaxed) + g_mapped.load(std::memory_order_relaxed);
  std::int64_t peak = g_reserved_peak.load(std::memory_order_relaxed);
  while (now > peak && !g_reserved_peak.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}
}  // namespace

/// All under the lock.
struct internal::ArenaState {
  std::map<std::int64_t, Kind> kinds;
  std::unique_ptr<Region> region;
  Kind* running = nullptr;
  bool serving = false;
  std::uint64_t step = 0;
  StepRecord record;
  std::int64_t missed_in_step = 0;
  ArenaStats stats;

  /// The region's pages that no tensor has are the arena's, or go back to the system.
  void hold_pages(bool hold) {
    const auto before = static_cast<std::int64_t>(region->held());
    hold ? region->hold() : region->give_back();
    g_mapped += static_cast<std::int64_t>(region->held()) - before;
    note_reserved();
  }

  void drop_region() {
    if (!region) return;
    hold_pages(false);
    if (!region->idle()) retired().push_back(std::move(region));
    region.reset();
  }

  /// A region for the highest plan, of just that size.
  void fit_region() {
    std::size_t height = 0;
    for (const auto& [number, kind] : kinds)
      if (kind.plan) height = std::max(height, kind.plan->height());
    if (region && region->idle() && region->size() >= height && region->size() - height < kLeast) return;
    drop_region();
    if (height == 0) return;
    ::malloc_trim(0);  // What the steps before it took from the heap and freed.
    region = std::make_unique<Region>(height);
    g_mapped += static_cast<std::int64_t>(region->held());
    note_reserved();
  }

  void plan(Kind& kind) {
    if (!kind.seen || kind.agreeing < kind.needed) return;
    kind.needed *= 2;
    kind.plan.emplace(*std::exchange(kind.seen, std::nullopt));
    kind.agreeing = 0;
    ++stats.plans;
    const std::int64_t taken = g_held + static_cast<std::int64_t>(kind.plan->height());
    if (taken * 100 > (g_requested + kind.plan->load().count()) * kMostPercent) kind.plan.reset();
    fit_region();
  }

  void begin(std::int64_t number) {
    Kind& kind = kinds[number];
    try {
      plan(kind);
    } catch (const std::exception&) {  // No memory for it: the heap serves.
      kind.plan.reset();
    }
    serving = kind.plan && region && kind.plan->height() > 0 && kind.plan->height() <= region->size();
    if (region) hold_pages(serving);  // Where the arena does not serve, the heap will need the pages.
    if (kind.plan) kind.plan->rewind();
    record.clear();
    missed_in_step = 0;
    step = ++g_steps;
    running = &kind;
  }

  void end(bool whole) noexcept {
    Kind& kind = *std::exchange(running, nullptr);
    step = 0;
    if (!whole) return;
    try {
      if (kind.plan && missed_in_step == 0)
        kind.seen.reset();
      else
        kind.learn(record);
    } catch (const std::exception&) {
      kind.seen.reset();
    }
  }

  void* serve(std::size_t bytes, Ticket& ticket) {
    ticket.request = record.made(bytes);
    ticket.step = step;
    if (!serving) return nullptr;
    const auto [known, offset] = running->plan->next(bytes);
    void* block = offset ? region->claim(*offset, internal::block_size(bytes)) : nullptr;
    if (block != nullptr) {
      ticket.region = region.get();
      ++stats.served;
    } else if (offset || !known) {
      ++missed_in_step;
      ++stats.missed;
    }
    return block;
  }
};

Arena::Arena() : state_(std::make_unique<internal::ArenaState>()) {
  internal::install_cpu_allocator();
  const std::lock_guard lock(g_lock);
  if (g_arena != nullptr)
    throw UsageError("an arena is already active in this process", "End it before another begins.");
  g_arena = state_.get();
}

Arena::~Arena() {
  const std::lock_guard lock(g_lock);
  g_arena = nullptr;
  g_in_step = false;
  state_->drop_region();
}

Arena::Step::Step(Arena& arena, std::int64_t kind) : arena_(arena), exceptions_(std::uncaught_exceptions()) {
  const std::lock_guard lock(g_lock);
  if (arena.state_->running != nullptr)
    throw UsageError("a step of this arena has not ended", "Steps follow one another; they do not nest.");
  arena.state_->begin(kind);
  g_in_step = true;
}

Arena::Step::~Step() {
  const std::lock_guard lock(g_lock);
  g_in_step = false;
  arena_.state_->end(std::uncaught_exceptions() == exceptions_);
}

ArenaStats Arena::stats() const {
  const std::lock_guard lock(g_lock);
  ArenaStats stats = state_->stats;
  stats.mapped = Bytes(g_mapped);
  stats.heap = Bytes(g_held);
  return stats;
}

namespace internal {
void* serve(std::size_t bytes, Ticket& ticket) noexcept {
  if (bytes < kLeast || !g_in_step.load(std::memory_order_relaxed)) return nullptr;
  try {
    const std::lock_guard lock(g_lock);
    if (g_arena == nullptr || g_arena->running == nullptr) return nullptr;
    return g_arena->serve(bytes, ticket);
  } catch (const std::exception&) {  // No memory to remember it by.
    return nullptr;
  }
}

bool take_back(void* block, const Ticket& ticket) noexcept {
  if (ticket.step == 0) return false;
  const std::lock_guard lock(g_lock);
  if (g_arena != nullptr && g_arena->step == ticket.step) g_arena->record.freed(ticket.request);
  if (ticket.region == nullptr) return false;
  ticket.region->release(block);
  if (!ticket.region->idle()) return true;
  const auto old = std::find_if(retired().begin(), retired().end(),
                                [&](const auto& region) { return region.get() == ticket.region; });
  if (old != retired().end()) {
    g_mapped -= static_cast<std::int64_t>(ticket.region->held());
    retired().erase(old);
  }
  return true;
}

void count_heap(std::int64_t requested, std::int64_t held) noexcept {
  g_requested.fetch_add(requested, std::memory_order_relaxed);
  g_held.fetch_add(held, std::memory_order_relaxed);
  if (held > 0) note_reserved();
}

std::int64_t reserved_peak() noexcept { return g_reserved_peak.load(std::memory_order_relaxed); }
void reset_reserved_peak() noexcept {
  g_reserved_peak = g_held.load(std::memory_order_relaxed) + g_mapped.load(std::memory_order_relaxed);
}
}  // namespace internal
}  // namespace cinch::record
