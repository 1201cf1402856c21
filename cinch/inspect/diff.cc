#include "cinch/inspect/diff.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>

#include "cinch/inspect/call_path.h"
#include "cinch/inspect/categories.h"
#include "cinch/trace/sink.h"

namespace cinch::inspect {
namespace {

using trace::Action;

constexpr std::size_t kFrames = 3;  // Of a call path: enough to tell two callers of one helper apart.

void add(std::map<std::string, Share>& shares, const std::string& name, Bytes bytes) {
  Share& share = shares[name];
  share.bytes += bytes;
  ++share.allocations;
}

void add(Held& held, const std::string& category, const std::string& module, const std::string& path, Bytes bytes) {
  held.total.bytes += bytes;
  ++held.total.allocations;
  add(held.categories, category, bytes);
  add(held.modules, module, bytes);
  add(held.paths, path, bytes);
}

/// "user/model.py:22 forward" → "user/model.py forward".
std::string without_line(const std::string& frame) {
  const std::size_t colon = frame.rfind(':');
  if (colon == std::string::npos) return frame;
  std::size_t end = colon + 1;
  while (end < frame.size() && frame[end] >= '0' && frame[end] <= '9') ++end;
  return end == colon + 1 ? frame : frame.substr(0, colon) + frame.substr(end);
}

/// Where the live total is largest.
class FindPeak final : public trace::Sink {
 public:
  void on_event(const trace::Event& event) override {
    if (event.action == Action::kAlloc) live_ += event.bytes;
    if (event.action == Action::kFreeCompleted) live_ -= event.bytes;
    if (live_ > most_) {
      most_ = live_;
      peak_ = position_;
    }
    ++position_;
  }
  std::size_t peak() const { return peak_; }

 private:
  Bytes live_, most_;
  std::size_t position_ = 0, peak_ = 0;
};

struct Life {
  trace::StackId stack{};
  Bytes bytes;
};
using Lives = std::unordered_map<std::uint32_t, Life>;

/// What lives at an event and at the end.
class Gather final : public trace::Sink {
 public:
  explicit Gather(std::size_t at) : at_(at) {}
  void on_event(const trace::Event& event) override {
    const auto id = static_cast<std::uint32_t>(event.allocation);
    if (event.action == Action::kAlloc) lives_[id] = {event.stack, event.bytes};
    if (event.action == Action::kFreeCompleted) lives_.erase(id);
    if (position_++ == at_) then_ = lives_;
  }
  const Lives& then() const { return then_; }
  const Lives& end() const { return lives_; }

 private:
  std::size_t at_, position_ = 0;
  Lives lives_, then_;
};

/// Names of one device's allocations.
class Namer {
 public:
  Namer(const trace::StackTable& stacks, const Kinds& kinds) : stacks_(&stacks), kinds_(&kinds) {}

  void add_all(Held& held, const Lives& lives) {
    for (const auto& [id, life] : lives) {
      const Kind kind = id < kinds_->of.size() ? kinds_->of[id] : Kind::kUnknown;
      const auto& [module, path] = names_of(life.stack);
      add(held, std::string(name_of(kind)), module, path, life.bytes);
    }
  }

 private:
  struct Names {
    std::string module, path;
  };
  const Names& names_of(trace::StackId stack) {
    const auto [place, fresh] = names_.try_emplace(static_cast<std::uint32_t>(stack));
    if (fresh) {
      CallPath path = call_path(*stacks_, stack);
      for (std::string& frame : path.frames) frame = without_line(frame);
      place->second = {path.frames.empty() ? "" : path.frames.front(), to_string(path, kFrames)};
    }
    return place->second;
  }

  const trace::StackTable* stacks_;
  const Kinds* kinds_;
  std::unordered_map<std::uint32_t, Names> names_;
};

std::vector<Change> changes(const std::map<std::string, Share>& before, const std::map<std::string, Share>& after) {
  std::set<std::string> names;
  for (const auto& [name, share] : before) names.insert(name);
  for (const auto& [name, share] : after) names.insert(name);
  const auto share_of = [](const std::map<std::string, Share>& shares, const std::string& name) {
    const auto found = shares.find(name);
    return found == shares.end() ? Share{} : found->second;
  };
  std::vector<Change> rows;
  for (const std::string& name : names) {
    Change row{name, share_of(before, name), share_of(after, name)};
    if (row.before != row.after) rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Change& a, const Change& b) { return a.grown() > b.grown(); });
  return rows;
}

Moment compare(const Held& before, const Held& after) {
  return {before.total, after.total, changes(before.categories, after.categories),
          changes(before.modules, after.modules), changes(before.paths, after.paths)};
}
}  // namespace

Holdings holdings(const snapshot::Snapshot& snapshot) {
  Holdings all;
  for (const snapshot::Device& device : snapshot.devices()) {
    const Kinds kinds = categorize(snapshot, device);
    FindPeak peak;
    snapshot.play(device, peak);
    Gather gather(peak.peak());
    snapshot.play(device, gather);
    Namer namer(snapshot.stacks(), kinds);
    namer.add_all(all.peak, gather.then());
    namer.add_all(all.end, gather.end());
  }
  return all;
}

Holdings holdings(const trace::Trace& trace) {
  Holdings all;
  if (trace.events().empty()) return all;
  const trace::Timeline timeline(trace);
  const auto add_at = [&](Held& held, std::size_t event) {
    for (const trace::AllocationId id : timeline.live_allocations(event)) {
      const trace::Allocation& made = trace.allocation(id);
      const std::string module(trace.name(made.module)), op(trace.op_name(made.op)), name(trace.name(made.name));
      std::string path = name.empty() ? module : name;
      if (name.empty() && !op.empty()) path += (path.empty() ? "" : " ") + op;
      // As far as kUnknown, kinds are numbered as categories.
      add(held, std::string(name_of(static_cast<Kind>(made.category))), module, path, made.bytes);
    }
  };
  add_at(all.peak, timeline.peak().event);
  add_at(all.end, trace.events().size() - 1);
  return all;
}

Diff compare(const Holdings& before, const Holdings& after) {
  return {compare(before.peak, after.peak), compare(before.end, after.end)};
}
}  // namespace cinch::inspect
