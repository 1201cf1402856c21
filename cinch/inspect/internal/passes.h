#pragma once
// The passes over a recording once its allocations have kinds.

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cinch/inspect/inspect.h"
#include "cinch/inspect/internal/layout.h"
#include "cinch/trace/sink.h"

namespace cinch::inspect::internal {

/// Totals over time: the peak, what is reserved, the curve, the first out of memory.
class Meter final : public trace::Sink {
 public:
  struct Totals {
    Bytes peak, peak_reserved, end, end_reserved;
    Bytes rounded_peak;  ///< Each request rounded up to 512 B: no allocator that does so needs less.
    std::size_t peak_event = 0, peak_reserved_event = 0, events = 0;
    std::optional<trace::Event> oom;   ///< The first recorded.
    std::optional<Bytes> free_at_oom;  ///< On the device.
    Bytes reserved_at_oom;
    std::size_t oom_event = 0;
    std::optional<std::size_t> over_event;  ///< The first at which tensors alone pass the capacity.
    Bytes over_asked;
    std::vector<CurvePoint> curve;
  };

  /// Without kinds no curve is drawn.
  Meter(const Kinds* kinds, std::size_t events, std::size_t points, std::optional<Bytes> capacity);
  void on_event(const trace::Event& event) override;
  Totals take();

 private:
  void count(const trace::Event& event);
  void watch(const trace::Event& event, std::size_t at);
  void draw();

  const Kinds* kinds_;
  std::size_t stretch_;
  std::optional<Bytes> capacity_;
  Totals totals_;
  Bytes live_, rounded_, reserved_, highest_in_stretch_{-1};
  trace::CategoryBytes by_category_;
};

/// What lives, and how it lies, after chosen events. `nth` counts from 0; kAtStart is before the first.
class Moments final : public trace::Sink {
 public:
  struct Allocation {
    trace::AllocationId id{};
    Bytes bytes;
    trace::StackId stack{};
    bool before = false;
    std::uint64_t address = 0;
  };
  struct Moment {
    std::vector<Allocation> live;          ///< In order of allocation.
    std::vector<trace::Segment> segments;  ///< If it was asked for.
    trace::Action action{};                ///< Of the event,
    trace::StackId stack{};                ///< its stack,
    trace::StreamId stream{};
    trace::PoolId pool{};
  };

  /// `layout`: followed along, if not null.
  Moments(std::vector<std::size_t> events, Layout* layout);
  void on_event(const trace::Event& event) override;
  /// At the end, for moments past the last event.
  void finish();
  const Moment& at(std::size_t event) const { return moments_.at(event); }

 private:
  void keep(std::size_t event, const trace::Event& last);

  std::vector<std::size_t> wanted_;
  std::size_t next_ = 0, events_ = 0;
  Layout* layout_;
  std::unordered_map<std::uint32_t, Allocation> live_;
  std::map<std::size_t, Moment> moments_;
};
}  // namespace cinch::inspect::internal
