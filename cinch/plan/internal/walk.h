#pragma once
// Walking over a trace of training: where a step is, which module of a problem an event lies in, where most is live.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cinch/trace/trace.h"

namespace cinch::plan::internal {

/// Finds the module of a problem that a path lies in.
class ModuleIndex {
 public:
  explicit ModuleIndex(std::span<const std::string> modules);
  /// Index of the module that is `path` or holds it; -1 for none.
  int find(std::string_view path) const;
  std::size_t size() const { return by_path_.size(); }

 private:
  std::unordered_map<std::string, int> by_path_;
};

/// ModuleIndex::find for the names of one trace, each looked up once.
class Roots {
 public:
  Roots(const ModuleIndex& modules, const trace::Trace& trace) : modules_(modules), trace_(trace) {}
  int operator()(trace::NameId name);

 private:
  static constexpr int kUnread = -2;
  const ModuleIndex& modules_;
  const trace::Trace& trace_;
  std::vector<int> roots_;
};

/// Follows a trace event by event: which micro-batch of its step it is in, and whether a forward or a backward begins.
class Place {
 public:
  void move_to(const trace::Event& event);

  std::uint32_t micro_batch = 0;
  bool began_forward = false, began_backward = false;

 private:
  bool first_ = true;
  std::uint32_t step_ = 0, forwards_ = 0;
  trace::Phase phase_ = trace::Phase::kOther;
};

/// Of each run of events of equal step, phase, module and recomputation, the one at which most is live.
std::vector<std::size_t> highest_of_each_run(const trace::Trace& trace);

/// What of the optimizer's state lives on the device all through the last step, in bytes.
std::int64_t state_between_steps(const trace::Trace& trace);

/// Modules whose forward or backward allocates otherwise in the last step of one trace than of the other.
std::set<std::string, std::less<>> modules_that_differ(const trace::Trace& a, const trace::Trace& b);
}  // namespace cinch::plan::internal
