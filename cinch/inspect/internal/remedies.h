#pragma once
// What would live at most if part of what lives went: state offloaded, parameters halved, a leak mended.
//
//   Reductions reductions([&](trace::AllocationId id) { return kinds.of[id]; }, last_event);
//   snapshot.play(device, reductions);
//   advise(inspection, oom, reductions);

#include <array>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "cinch/inspect/inspect.h"
#include "cinch/trace/sink.h"

namespace cinch::inspect::internal {

/// Sets of measures, as bits. Of those about the optimizer's state only one at a time.
enum Measure : std::uint32_t {
  kNoLeak = 1,
  kOffloadState = 2,
  kEightBitState = 4,
  kLora = 8,
  kHalfPrecision = 16,
  kFewerActivations = 32  // At best: none.
};
inline constexpr std::uint32_t kMeasureSets = 64;

/// The highest sum of live bytes under each set of measures, over all events up to and with `last`.
class Reductions final : public trace::Sink {
 public:
  /// `once`: what a leak adds a step, which lives for a while though the leak is mended.
  Reductions(std::function<Kind(trace::AllocationId)> kind_of, std::size_t last, bool trains, Bytes once);
  void on_event(const trace::Event& event) override;

  /// The empty set: as recorded.
  Bytes highest(std::uint32_t set) const {
    return Bytes((highest_[set] + kWhole - 1) / kWhole) + ((set & kNoLeak) != 0 ? once_ : Bytes(0));
  }
  /// True if the measure takes away a part that is worth a word: at least one in fifty of the highest sum.
  bool matters(Measure measure) const;
  bool trains() const { return trains_; }
  /// The smallest sets that are enough for `target`, fewest measures first; none holds another.
  std::vector<std::uint32_t> enough(Bytes target) const;

 private:
  static constexpr std::int64_t kWhole = 4;  // Bytes are counted in quarters.
  std::int64_t quarters(Kind kind, std::uint32_t set) const;
  void add(Kind kind, std::int64_t bytes);
  void raise(std::int64_t asked);

  std::function<Kind(trace::AllocationId)> kind_of_;
  std::size_t last_, events_ = 0;
  bool trains_;
  Bytes once_;
  std::array<std::array<std::int64_t, kMeasureSets>, kKindCount> quarters_{};
  std::array<std::int64_t, kMeasureSets> live_{}, highest_{}, most_removed_{};
};

/// Fills in OutOfMemory::to_fit and remedies.
void advise(const Inspection& seen, OutOfMemory& oom, const Reductions& reductions);
}  // namespace cinch::inspect::internal
