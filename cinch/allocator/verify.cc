#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cinch/allocator/internal/model.h"
#include "cinch/allocator/internal/recorded_addresses.h"
#include "cinch/allocator/replay.h"
#include "cinch/core/text.h"

namespace cinch::allocator {
namespace {

using internal::Index;
using internal::kNone;
using internal::Node;
using trace::Action;
using trace::Event;

constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;  // A damaged recording may name any size.

std::string_view name_of(Action action) {
  switch (action) {
    case Action::kSegmentAlloc:
      return "segment_alloc";
    case Action::kSegmentFree:
      return "segment_free";
    case Action::kSegmentMap:
      return "segment_map";
    default:
      return "segment_unmap";
  }
}

struct SegmentEvent {
  Action action{};
  std::uint64_t address = 0;
  Bytes bytes;
  StreamId stream{};
  friend bool operator==(const SegmentEvent&, const SegmentEvent&) = default;
};

std::string words_of(const SegmentEvent& event) {
  return fmt::format("{} of {} B at {:#x}", name_of(event.action), with_thousands(event.bytes.count()), event.address);
}

/// Follows what is reserved through a recording.
class Reserved final : public trace::Sink {
 public:
  explicit Reserved(std::span<const trace::Segment> start) {
    for (const trace::Segment& segment : start) add(segment.total.count());
  }
  void on_event(const Event& event) override {
    if (event.before) return;
    if (event.action == Action::kSegmentAlloc || event.action == Action::kSegmentMap) add(event.bytes.count());
    if (event.action == Action::kSegmentFree || event.action == Action::kSegmentUnmap) add(-event.bytes.count());
    if (event.action == Action::kOom) at_oom_ = Bytes(now_ + static_cast<std::int64_t>(std::min(event.address, kMost)));
  }
  Bytes peak() const { return Bytes(peak_); }
  std::optional<Bytes> at_oom() const { return at_oom_; }

 private:
  static constexpr std::uint64_t kMost = kUnlimitedMemory.count();  // A damaged recording may name any size.

  void add(std::int64_t bytes) {
    constexpr auto kLimit = static_cast<std::int64_t>(kMost);
    now_ = std::clamp<std::int64_t>(now_ + std::clamp(bytes, -kLimit, kLimit), 0, kLimit);
    peak_ = std::max(peak_, now_);
  }

  std::int64_t now_ = 0, peak_ = 1;
  std::optional<Bytes> at_oom_;
};

class Verifier final : public trace::Sink, SegmentListener {
 public:
  Verifier(const Settings& settings, std::span<const trace::Segment> start, Bytes card, std::size_t first_event)
      : picks_(settings.max_split_size || settings.garbage_collection_threshold > 0),
        addresses_(made_up_),
        model_({.settings = without_limits(settings), .card = card}, addresses_, this),
        at_(first_event) {
    model_.restore(start);
    restored_ = model_.active_blocks();
  }

  void on_event(const Event& event) override {
    if (event.before) {
      if (event.action == Action::kAlloc) take_over(event);
      return;
    }
    const bool releases_go_on = event.action == Action::kSegmentFree || event.action == Action::kSegmentUnmap ||
                                event.action == Action::kFreeCompleted;
    if (!releases_go_on) finish_releases();
    switch (event.action) {
      case Action::kSegmentAlloc:
      case Action::kSegmentMap:
        answers_.push_back({event.action, event.address, event.bytes, event.stream});
        addresses_.expect(event);
        break;
      case Action::kSegmentFree:
      case Action::kSegmentUnmap:
        release(event);
        break;
      case Action::kAlloc:
        allocate(event);
        break;
      case Action::kFreeRequested:
      case Action::kFreeCompleted:
        free(event);
        break;
      case Action::kOom:
        apply_answers();
        break;
      default:
        break;
    }
    ++verdict_.events;
    ++at_;
  }

  Verdict finish(std::span<const trace::Segment> recorded) {
    finish_releases();
    apply_answers();
    compare_end(recorded);
    verdict_.stats = internal::stats_of(model_.counters());
    return std::move(verdict_);
  }

 private:
  // How large the card was is not recorded: what it led to is taken as given.
  static Settings without_limits(Settings settings) {
    settings.memory_fraction = 1;
    settings.garbage_collection_threshold = 0;
    return settings;
  }

  template <typename... Args>
  void mismatch(fmt::format_string<Args...> format, Args&&... args) {
    if (verdict_.mismatches++ == 0) {
      verdict_.first = fmt::format("event {}: {}", with_thousands(static_cast<std::int64_t>(at_)),
                                   fmt::format(format, std::forward<Args>(args)...));
    }
  }

  void take_over(const Event& event) {
    const auto id = static_cast<std::size_t>(event.allocation);
    if (id != blocks_.size()) return;
    blocks_.push_back(id < restored_.size() ? restored_[id] : kNone);
  }

  void on_segment(Action action, std::uint64_t address, Bytes bytes, StreamId stream) override {
    made_.push_back({action, address, bytes, stream});
  }

  void allocate(const Event& event) {
    const auto id = static_cast<std::size_t>(event.allocation);
    if (id != blocks_.size()) return;
    blocks_.push_back(kNone);
    made_.clear();
    const auto bytes = static_cast<std::uint64_t>(std::clamp<std::int64_t>(event.bytes.count(), 1, kMostBytes));
    const auto result = model_.allocate(bytes, event.stream, event.pool, static_cast<std::uint32_t>(id) + 1);
    compare_answers();
    if (std::holds_alternative<OutOfMemory>(result)) {
      mismatch("{} B could not be served", with_thousands(event.bytes.count()));
      return;
    }
    const Node& node = model_.node(blocks_[id] = std::get<Index>(result));
    if (node.address != event.address) {
      mismatch("{} B recorded at {:#x}, model at {:#x}", with_thousands(event.bytes.count()), event.address,
               node.address);
    }
  }

  void compare_answers() {
    const std::size_t most = std::max(answers_.size(), made_.size());
    for (std::size_t i = 0; i < most; ++i) {
      if (i < answers_.size() && i < made_.size() && answers_[i] == made_[i]) continue;
      mismatch("recorded {}, model {}", i < answers_.size() ? words_of(answers_[i]) : "no segment event",
               i < made_.size() ? words_of(made_[i]) : "none");
    }
    forget_answers();
  }

  void forget_answers() {
    answers_.clear();
    addresses_.forget();
  }

  /// Of a request that failed: pages may have been mapped for it.
  void apply_answers() {
    for (const SegmentEvent& answer : answers_) {
      if (!model_.map_at(answer.address, static_cast<std::uint64_t>(answer.bytes.count()))) {
        mismatch("recorded {} without an allocation", words_of(answer));
      }
    }
    forget_answers();
  }

  void release(const Event& event) {
    apply_answers();
    const auto bytes = static_cast<std::uint64_t>(event.bytes.count());
    const bool done = event.action == Action::kSegmentFree ? model_.release_segment(event.address, bytes)
                                                           : model_.unmap(event.address, bytes);
    if (!done) {
      mismatch("recorded {}, where the model has no free block of that extent",
               words_of({event.action, event.address, event.bytes, event.stream}));
    }
    released_all_ = released_all_ || (event.pool == PoolId{0} && !picks_);
  }

  /// Who gives back cached segments gives back all of them.
  void finish_releases() {
    if (!released_all_) return;
    released_all_ = false;
    made_.clear();
    model_.release_cached();
    for (const SegmentEvent& made : made_) mismatch("model {}, which was not recorded", words_of(made));
  }

  void free(const Event& event) {
    const auto id = static_cast<std::size_t>(event.allocation);
    if (id >= blocks_.size() || blocks_[id] == kNone) return;
    const Index block = blocks_[id];
    if (!model_.owns(static_cast<std::uint32_t>(id) + 1, block)) return;
    if (model_.node(block).state == Node::State::kAllocated) model_.request_free(block);
    if (event.action != Action::kFreeCompleted) return;
    model_.complete(block);
    blocks_[id] = kNone;
  }

  void compare_end(std::span<const trace::Segment> recorded) {
    const std::vector<trace::Segment> own = model_.segments();
    std::size_t i = 0, j = 0;
    while (i < own.size() || j < recorded.size()) {
      if (j == recorded.size() || (i < own.size() && own[i].address < recorded[j].address)) {
        mismatch("at the end the model has a segment at {:#x}, the recording none", own[i++].address);
      } else if (i == own.size() || recorded[j].address < own[i].address) {
        mismatch("at the end the recording has a segment at {:#x}, the model none", recorded[j++].address);
      } else {
        compare_segment(own[i++], recorded[j++]);
      }
    }
  }

  void compare_segment(const trace::Segment& own, const trace::Segment& recorded) {
    if (own.total != recorded.total || own.stream != recorded.stream || own.pool != recorded.pool ||
        own.large != recorded.large || own.expandable != recorded.expandable) {
      mismatch("at the end the segment at {:#x} differs", own.address);
    }
    const std::size_t most = std::max(own.blocks.size(), recorded.blocks.size());
    for (std::size_t i = 0; i < most; ++i) {
      if (i < own.blocks.size() && i < recorded.blocks.size() && alike(own.blocks[i], recorded.blocks[i])) continue;
      mismatch("at the end block {} of the segment at {:#x} differs", i, own.address);
    }
  }

  static bool alike(const trace::Block& own, const trace::Block& recorded) {
    const bool active = own.state != trace::Block::State::kInactive;
    return own.address == recorded.address && own.size == recorded.size && own.state == recorded.state &&
           (!active || own.requested == recorded.requested);
  }

  bool picks_ = false;
  FreshAddresses made_up_;
  internal::RecordedAddresses addresses_;
  internal::Model model_;
  std::vector<Index> restored_, blocks_;
  std::vector<SegmentEvent> answers_, made_;  ///< Recorded before the next allocation; what the model did.
  bool released_all_ = false;
  std::size_t at_ = 0;  ///< Position in the recording.
  Verdict verdict_;
};
}  // namespace

std::optional<Bytes> recorded_memory(const snapshot::Snapshot& snapshot, const snapshot::Device& device) {
  Reserved reserved(device.start);
  snapshot.play(device, reserved);
  return reserved.at_oom();
}

Verdict verify(const snapshot::Snapshot& snapshot, const snapshot::Device& device) {
  Reserved reserved(device.start);
  snapshot.play(device, reserved);
  Verifier verifier(recorded_settings(snapshot.settings()), device.start, reserved.peak(), device.first_event);
  snapshot.play(device, verifier);
  return verifier.finish(device.end);
}
}  // namespace cinch::allocator
