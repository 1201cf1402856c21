#include "cinch/placement/internal/problem.h"

#include <algorithm>
#include <limits>
#include <string>

#include "cinch/core/error.h"

namespace cinch::placement::internal {
namespace {

std::int64_t checked_units(const Buffer& buffer, std::int64_t alignment, std::size_t index) {
  const std::string name = "buffer " + std::to_string(index);
  if (buffer.upper < buffer.lower) {
    throw UsageError(name + " ends at " + std::to_string(buffer.upper) + ", before it begins at " +
                     std::to_string(buffer.lower));
  }
  const std::int64_t size = buffer.size.count();
  if (size < 0) throw UsageError(name + " has a size of " + std::to_string(size) + " bytes");
  return size / alignment + (size % alignment != 0 ? 1 : 0);
}

/// Time as the number of sections that end before it. Items that end at a moment free their bytes before others begin.
void number_sections(std::span<const Buffer> buffers, Problem& problem) {
  struct Event {
    std::int64_t time;
    bool begins;
    std::int32_t item;
    bool operator<(const Event& other) const { return std::pair(time, begins) < std::pair(other.time, other.begins); }
  };
  std::vector<Event> events;
  events.reserve(2 * problem.items.size());
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(problem.items.size()); ++i) {
    const Buffer& buffer = buffers[problem.buffers[i]];
    events.push_back({buffer.lower, true, i});
    events.push_back({buffer.upper, false, i});
  }
  std::sort(events.begin(), events.end());
  std::int64_t live = 0;
  bool grew = false;  // Since the last section: the next end closes one.
  for (const Event& event : events) {
    Item& item = problem.items[event.item];
    if (event.begins) {
      item.first = problem.sections;
      live += item.size;
      problem.load = std::max(problem.load, live);
      grew = true;
    } else {
      if (grew) ++problem.sections;
      grew = false;
      item.last = problem.sections;
      live -= item.size;
    }
  }
}
}  // namespace

Problem reduce(std::span<const Buffer> buffers, Bytes alignment) {
  if (alignment.count() < 1) {
    throw UsageError("an alignment of " + std::to_string(alignment.count()) + " bytes", "Use 1 for none.");
  }
  if (buffers.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / 2)) {
    throw UsageError(std::to_string(buffers.size()) + " buffers are more than placement takes (2^30)");
  }
  Problem problem;
  Bytes sum;  // Every height is at most this: past here, arithmetic on sizes cannot overflow.
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const std::int64_t units = checked_units(buffers[i], alignment.count(), i);
    if (units == 0 || buffers[i].lower == buffers[i].upper) continue;
    sum += alignment * units;
    problem.items.push_back({0, 0, units});
    problem.buffers.push_back(static_cast<std::int32_t>(i));
  }
  number_sections(buffers, problem);
  return problem;
}

std::vector<Problem> components(const Problem& problem) {
  std::vector<std::int32_t> reach(problem.sections, 0);  // Furthest end of what begins in a section.
  for (const Item& item : problem.items) reach[item.first] = std::max(reach[item.first], item.last);
  std::vector<std::int32_t> component(problem.sections);
  std::vector<Problem> parts;
  std::vector<std::int32_t> begins;
  std::int32_t end = 0;
  for (std::int32_t section = 0; section < problem.sections; ++section) {
    if (section >= end) {
      parts.emplace_back();
      begins.push_back(section);
    }
    end = std::max(end, reach[section]);
    component[section] = static_cast<std::int32_t>(parts.size()) - 1;
    ++parts.back().sections;
  }
  std::vector<std::int64_t> load(problem.sections + 1, 0);
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(problem.items.size()); ++i) {
    const Item& item = problem.items[i];
    const std::int32_t part = component[item.first];
    parts[part].items.push_back({item.first - begins[part], item.last - begins[part], item.size});
    parts[part].buffers.push_back(i);
    load[item.first] += item.size;
    load[item.last] -= item.size;
  }
  std::int64_t live = 0;
  for (std::int32_t section = 0; section < problem.sections; ++section) {
    live += load[section];
    std::int64_t& most = parts[component[section]].load;
    most = std::max(most, live);
  }
  return parts;
}
}  // namespace cinch::placement::internal
