#include <algorithm>
#include <map>
#include <unordered_map>

#include "cinch/core/text.h"
#include "cinch/trace/trace.h"

namespace cinch::trace {
namespace {
std::string in_bytes(Bytes bytes) { return with_thousands(bytes.count()) + " B"; }

// The first event from `at` on that allocates or frees; the number of events if there is none.
std::size_t next_change(const Trace& trace, std::size_t at) {
  const auto changes = [](const Event& event) {
    return event.action == Action::kAlloc || event.action == Action::kFreeCompleted;
  };
  while (at < trace.events().size() && !changes(trace.events()[at])) ++at;
  return at;
}

bool same_change(const Event& left, const Event& right) {
  // Ids count allocations: where all before agrees, equal ids are the same allocation.
  return left.action == right.action && left.bytes == right.bytes && left.allocation == right.allocation;
}

// " in layers.3.attention aten::clone (step 1, forward)"
std::string place(const Trace& trace, const Allocation& made) {
  std::string text;
  for (std::string_view part : {trace.name(made.module), trace.op_name(made.op)}) {
    if (!part.empty()) text.append(text.empty() ? " in " : " ").append(part);
  }
  text.append(" (step ").append(std::to_string(made.step)).append(", ").append(name_of(made.phase));
  return text.append(made.recompute ? ", recomputed)" : ")");
}

std::string describe(const Trace& trace, std::size_t at) {
  if (at == trace.events().size()) return "nothing";
  const Event& event = trace.events()[at];
  const std::string made = in_bytes(event.bytes) + place(trace, trace.allocation(event.allocation));
  if (event.action == Action::kAlloc) return made;
  return "in step " + std::to_string(event.step) + ", " + std::string(name_of(event.phase)) + ", the free of " + made;
}

std::string describe(const PhaseEnd& end) {
  return std::string(name_of(end.phase)) + " of step " + std::to_string(end.step);
}

// Of the steps that `ends`, the same in both, names. A step's number may be anything, so they are not counted through.
std::optional<std::string> compare_peaks(const Trace& predicted, const Trace& recorded,
                                         const std::vector<PhaseEnd>& ends) {
  const Timeline left(predicted), right(recorded);
  for (const PhaseEnd& end : ends) {
    const Timeline::Peak l = left.peak(end.step), r = right.peak(end.step);
    if (l.bytes == r.bytes) continue;
    return "peak of step " + std::to_string(end.step) + ": predicted " + in_bytes(l.bytes) + " in " +
           std::string(name_of(l.phase)) + ", recorded " + in_bytes(r.bytes) + " in " + std::string(name_of(r.phase)) +
           ".";
  }
  return std::nullopt;
}
}  // namespace

std::optional<Divergence> first_divergence(const Trace& left, const Trace& right) {
  std::size_t l = next_change(left, 0), r = next_change(right, 0);
  while (l < left.events().size() && r < right.events().size() && same_change(left.events()[l], right.events()[r])) {
    l = next_change(left, l + 1);
    r = next_change(right, r + 1);
  }
  if (l == left.events().size() && r == right.events().size()) return std::nullopt;
  return Divergence{.left_event = l,
                    .right_event = r,
                    .sentence = "predicted " + describe(left, l) + "; recorded " + describe(right, r) + "."};
}

std::optional<std::string> compare_phase_ends(const Trace& predicted, const Trace& recorded) {
  const std::vector<PhaseEnd> left = phase_ends(predicted), right = phase_ends(recorded);
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    const std::string where = " (phase " + std::to_string(i + 1) + " of the trace).";
    if (i == left.size()) return "predicted ends; recorded goes on with " + describe(right[i]) + where;
    if (i == right.size()) return "recorded ends; predicted goes on with " + describe(left[i]) + where;
    if (left[i] == right[i]) continue;
    if (left[i].step != right[i].step || left[i].phase != right[i].phase) {
      return "predicted goes on with " + describe(left[i]) + ", recorded with " + describe(right[i]) + where;
    }
    return "live after " + describe(left[i]) + ": predicted " + in_bytes(left[i].live) + ", recorded " +
           in_bytes(right[i].live) + where;
  }
  return compare_peaks(predicted, recorded, left);
}

void adopt_shapes(Trace& recording, const Trace& prediction) {
  recording.source_ = nullptr;  // Names of its own from here on.
  std::map<std::string, NameId, std::less<>> names;
  for (std::size_t i = 0; i < recording.names_.size(); ++i) {
    names.emplace(recording.names_[i], NameId{static_cast<std::uint32_t>(i)});
  }
  std::unordered_map<std::uint32_t, OpId> adopted;  // By the prediction's op.
  const auto adopt_op = [&](const Allocation& predicted, const Allocation& recorded) {
    const auto [op, fresh] = adopted.try_emplace(static_cast<std::uint32_t>(predicted.op));
    if (!fresh) return op->second;
    const auto [name, unknown] = names.try_emplace(std::string(prediction.op_name(predicted.op)),
                                                   NameId{static_cast<std::uint32_t>(recording.names_.size())});
    if (unknown) recording.names_.push_back(name->first);
    op->second = OpId{static_cast<std::uint32_t>(recording.ops_.size())};
    recording.ops_.push_back({.name = name->second,
                              .module = recorded.module,
                              .phase = recorded.phase,
                              .recompute = recorded.recompute,
                              .dtype = prediction.ops()[static_cast<std::size_t>(predicted.op)].dtype,
                              .step = recorded.step});
    // Positions rise, also in a recording that has ops of its own.
    const std::size_t earliest = recording.op_positions_.empty() ? 0 : recording.op_positions_.back();
    recording.op_positions_.push_back(std::max(earliest, recorded.allocated_at));
    return op->second;
  };

  const std::size_t common = std::min(recording.allocations_.size(), prediction.allocations_.size());
  for (std::size_t i = 0; i < common; ++i) {
    Allocation& recorded = recording.allocations_[i];
    const Allocation& predicted = prediction.allocations_[i];
    if (recorded.bytes != predicted.bytes) return;
    if (predicted.tensor) recorded.tensor = predicted.tensor;
    if (recorded.op != kNoOp || prediction.op_name(predicted.op).empty()) continue;
    recorded.op = adopt_op(predicted, recorded);
    recording.events_[recorded.allocated_at].op = recorded.op;
  }
}
}  // namespace cinch::trace
