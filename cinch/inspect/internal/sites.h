#pragma once
// Call paths, numbered as they are met, and what is live of each at the ends of periods.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cinch/trace/event.h"
#include "cinch/trace/sink.h"

namespace cinch::inspect::internal {

/// A call path: the stack, or without one module, op and phase.
struct Site {
  trace::StackId stack{};
  trace::NameId module{}, op{};
  trace::Phase phase = trace::Phase::kOther;
  friend bool operator==(const Site&, const Site&) = default;
};

/// An allocation that may mark the period: its call path and size.
struct Mark {
  Site site;
  Bytes bytes;
  friend bool operator==(const Mark&, const Mark&) = default;
};
struct HashSite {
  std::size_t operator()(const Site& site) const;
};
struct HashMark {
  std::size_t operator()(const Mark& mark) const;
};

/// Gives events their sites. Knows the ops that on_op() told.
class SiteNames {
 public:
  void on_op(const trace::OpCall& call) { ops_.push_back(call.name); }
  Site of(const trace::Event& event) const;

 private:
  std::vector<trace::NameId> ops_;
};

/// How a recording is cut into periods.
struct Cut {
  std::vector<std::size_t> events{};  ///< Each begins a period; positions among the events that are not `before`.
  bool by_step = false;               ///< A larger Event::step begins one.
  std::optional<Mark> mark{};         ///< Each such allocation begins one.
};

/// What is known of a site at the end of the last period.
struct Growth {
  /// Survivors by the period that they are born in, ascending. What lived before the recording is in none.
  struct Births {
    std::size_t period = 0, count = 0;
    Bytes bytes;
  };
  /// At the end of a period in which something of it came or went.
  struct Moment {
    std::size_t period = 0;
    std::size_t aged = 0;  ///< Allocations born before this period.
    std::size_t live = 0;  ///< And in it.
    Bytes bytes;           ///< Of all of them.
  };
  static constexpr std::size_t kExact = 64;  ///< Moments at the end that are not thinned.
  std::vector<Births> births;
  std::vector<Moment> moments;  ///< By period; the older ones thinned.
  std::size_t old_frees = 0;    ///< Of allocations that had outlived two periods' ends.
  std::string name;             ///< Module and op.

  /// Allocations at the end of a period that had been born before it.
  std::size_t aged_at(std::size_t period) const;
};

/// Follows what is live of each site. Memory: what is live, and for each site that ever outlived a period at most
/// kMoments moments.
class GrowthMeter final : public trace::Sink {
 public:
  static constexpr std::size_t kMoments = 192;

  explicit GrowthMeter(Cut cut) : cut_(std::move(cut)) {}
  void on_begin(const trace::TraceHeader& header, const trace::NameTable& names) override;
  void on_op(trace::OpId id, const trace::OpCall& call) override;
  void on_event(const trace::Event& event) override;
  /// After the last event. A trace that counts steps ends with one, unless it ran out of memory or was taken down.
  void finish();

  std::size_t periods() const { return period_; }
  Bytes peak_of_last() const { return peak_of_last_; }
  /// Whether the periods look like steps rather than like layers of one step, through which live bytes climb and from
  /// which they come down again, or in which most of what is allocated stays.
  bool look_like_steps() const;
  /// Sites of which something ever outlived a period, in order of appearance.
  void each(const std::function<void(const Site&, const Growth&)>& visit) const;

 private:
  static constexpr std::size_t kBefore = static_cast<std::size_t>(-1);
  struct Life {
    std::uint32_t site;
    std::size_t born;
    Bytes bytes;
  };
  struct State {
    Site site;
    Growth growth;
    std::size_t live = 0, fresh = 0, freed = 0;  ///< Of `live`: as at the last period's end; since then born, freed.
    Bytes live_bytes, fresh_bytes, freed_bytes;
    bool touched = false;
  };
  bool begins_period(const trace::Event& event);
  void allocate(const trace::Event& event);
  void release(trace::AllocationId id);
  void touch(std::uint32_t site);
  void end_period();
  void end_period(State& state) const;
  std::string name_of(const Site& site) const;

  Cut cut_;
  SiteNames site_names_;
  const trace::NameTable* names_ = nullptr;  ///< While the recording is played.
  std::unordered_map<Site, std::uint32_t, HashSite> ids_;
  std::vector<State> states_;
  std::unordered_map<std::uint32_t, Life> live_;
  std::vector<Life> freed_;  ///< In this period, born before it.
  std::vector<std::uint32_t> touched_;
  std::size_t position_ = 0, next_cut_ = 0, period_ = 0;
  std::optional<std::uint32_t> step_;
  bool ran_out_ = false;
  Bytes live_bytes_, peak_, trough_, peak_of_last_, live_at_end_of_last_;
  Bytes highest_end_, deepest_fall_;  ///< Of live bytes at the ends of periods.
  /// Sums over the complete periods: how far each swings, what it allocates and what it leaves.
  double swings_ = 0, allocated_ = 0, left_ = 0;
  Bytes allocated_in_period_;
};

/// Finds an allocation that comes once a period, whatever else the recording does in between. Memory: the number of
/// different sites and sizes.
class PeriodFinder final : public trace::Sink {
 public:
  void on_op(trace::OpId id, const trace::OpCall& call) override;
  void on_event(const trace::Event& event) override;
  std::size_t steps() const { return steps_; }  ///< Different values of Event::step above 0.
  std::optional<Mark> mark() const;

 private:
  struct Gaps {
    std::size_t count = 0, first = 0, last = 0, shortest = 0, longest = 0;
    bool regular(std::size_t events) const;
  };
  SiteNames site_names_;
  std::unordered_map<Mark, Gaps, HashMark> gaps_;
  std::size_t position_ = 0, steps_ = 0;
  std::uint32_t step_ = 0;
};
}  // namespace cinch::inspect::internal
