#include "cinch/allocator/replay.h"

#include <algorithm>
#include <utility>

#include "cinch/allocator/internal/model.h"

namespace cinch::allocator {
namespace {

using internal::Index;
using internal::kNone;
using internal::Node;
using trace::Action;
using trace::Event;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;  // More than any request that can be served.
}  // namespace

struct Replay::State {
  State(const Machine& machine, AddressSource& addresses, SegmentListener* listener, bool empties)
      : model(machine, addresses, listener), empties_cache(empties) {}

  static std::uint32_t owner_of(trace::AllocationId id) { return static_cast<std::uint32_t>(id) + 1; }

  void on_alloc(const Event& event) {
    const auto id = static_cast<std::size_t>(event.allocation);
    if (id != blocks.size()) return;
    if (id < restored.size() && event.before) {
      blocks.push_back(restored[id]);
      return;
    }
    blocks.push_back(kNone);
    if (event.bytes.count() <= 0) return;
    blocks.back() = request(event, owner_of(event.allocation));
  }

  /// kNone if it ran out.
  Index request(const Event& event, std::uint32_t owner) {
    const auto bytes = static_cast<std::uint64_t>(std::min(event.bytes.count(), kMostBytes));
    const auto result = model.allocate(bytes, event.stream, event.pool, owner);
    if (const auto* block = std::get_if<Index>(&result)) return *block;
    // A retry has completed pending frees by now, so that what is live is what the program holds.
    failure = RanOut{.event = events,
                     .at_start = event.before,
                     .asked = event.bytes,
                     .live = Bytes(model.counters().requested),
                     .why = std::get<OutOfMemory>(result)};
    return kNone;
  }

  void on_oom(const Event& event) {
    if (event.bytes.count() <= 0) return;
    const Index block = request(event, owner_of(trace::kNoAllocation));
    if (block == kNone) return;
    model.request_free(block);
    model.complete(block);
  }

  void on_free(const Event& event) {
    const auto id = static_cast<std::size_t>(event.allocation);
    if (id >= blocks.size() || blocks[id] == kNone) return;
    const Index block = blocks[id];
    if (!model.owns(owner_of(event.allocation), block)) return;  // A retry completed it.
    if (model.node(block).state == Node::State::kAllocated) model.request_free(block);
    if (event.action != Action::kFreeCompleted) return;
    model.complete(block);
    blocks[id] = kNone;
  }

  void on_release(const Event& event) {
    if (!empties_cache || event.before) return;
    if (event.pool != PoolId{0}) model.release_pool(event.pool);
    releases = true;
  }

  /// empty_cache() is seen by what it gave back, one segment an event.
  void finish_releases(const Event& event) {
    const bool goes_on = event.action == Action::kSegmentFree || event.action == Action::kSegmentUnmap ||
                         event.action == Action::kFreeCompleted;
    if (!releases || goes_on) return;
    releases = false;
    model.release_cached();
  }

  internal::Model model;
  bool empties_cache = true, releases = false;
  std::vector<Index> restored;
  std::vector<Index> blocks;  ///< Of each allocation; kNone if it has none any more.
  std::size_t events = 0;
  std::optional<RanOut> failure;
};

Replay::Replay(const Machine& machine, AddressSource& addresses, SegmentListener* listener, bool empties_cache)
    : state_(std::make_unique<State>(machine, addresses, listener, empties_cache)) {}
Replay::~Replay() = default;

void Replay::restore(std::span<const trace::Segment> segments) {
  state_->model.restore(segments);
  state_->restored = state_->model.active_blocks();
}

void Replay::on_event(const Event& event) {
  State& state = *state_;
  if (state.failure) return;
  state.finish_releases(event);
  switch (event.action) {
    case Action::kAlloc:
      state.on_alloc(event);
      break;
    case Action::kFreeRequested:
    case Action::kFreeCompleted:
      state.on_free(event);
      break;
    case Action::kOom:
      state.on_oom(event);
      break;
    case Action::kSegmentFree:
    case Action::kSegmentUnmap:
      state.on_release(event);
      break;
    default:
      break;
  }
  if (!event.before && !state.failure) ++state.events;
}

Stats Replay::stats() const { return internal::stats_of(state_->model.counters()); }
const std::optional<RanOut>& Replay::failure() const { return state_->failure; }
std::size_t Replay::events() const { return state_->events; }
bool Replay::addresses_mattered() const { return state_->model.addresses_mattered(); }
std::vector<trace::Segment> Replay::segments() const { return state_->model.segments(); }
}  // namespace cinch::allocator
