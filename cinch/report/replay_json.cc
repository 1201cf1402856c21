#include <nlohmann/json.hpp>

#include "cinch/core/version.h"
#include "cinch/report/replay.h"

namespace cinch::report {
namespace {

using nlohmann::ordered_json;

ordered_json ran_out(const allocator::WhatIf& run) {
  if (!run.failure) return nullptr;
  const allocator::RanOut& failure = *run.failure;
  return {{"event", failure.event},
          {"at_start", failure.at_start},
          {"asked_bytes", failure.asked.count()},
          {"live_bytes", failure.live.count()},
          {"free_on_device_bytes", failure.why.free_on_device.count()},
          {"largest_free_block_bytes", failure.why.largest_free_block.count()},
          {"orders", run.orders_failed}};
}

/// An interval's plain key holds its upper end.
void add(ordered_json& run, const std::string& key, const allocator::Interval& interval) {
  run[key + "_bytes"] = interval.high.count();
  run[key + "_low_bytes"] = interval.low.count();
  run[key + "_high_bytes"] = interval.high.count();
}

ordered_json run_object(const allocator::WhatIf& what_if, const ordered_json& matches_recording) {
  ordered_json run{{"alloc_conf", what_if.settings.to_string()}};
  add(run, "peak_allocated", what_if.peak_allocated);
  add(run, "peak_reserved", what_if.peak_reserved);
  add(run, "end_reserved", what_if.end_reserved);
  run["alloc_retries"] = what_if.alloc_retries;
  run["oom"] = what_if.failure.has_value();
  run["ran_out"] = ran_out(what_if);
  run["address_orders"] = what_if.orders;
  run["from_recorded_state"] = what_if.exact_start;
  run["matches_recording"] = matches_recording;
  return run;
}

ordered_json verdict_object(const std::optional<allocator::Verdict>& verdict) {
  if (!verdict) return nullptr;
  return {{"events", verdict->events}, {"mismatches", verdict->mismatches}, {"first", verdict->first}};
}
}  // namespace

std::string json(const Replayed& replayed) {
  ordered_json document{{"schema", "cinch.replay/1"},
                        {"cinch", kVersion},
                        {"libtorch", replayed.environment.libtorch},
                        {"device", replayed.environment.device},
                        {"threads", replayed.environment.threads},
                        {"source", replayed.source},
                        {"events", replayed.events}};
  document["capacity_bytes"] = replayed.capacity ? ordered_json(replayed.capacity->count()) : ordered_json(nullptr);
  document["capacity_given"] = replayed.capacity_given;
  document["verified"] = verdict_object(replayed.verdict);
  const ordered_json matches =
      replayed.verdict ? ordered_json(replayed.verdict->mismatches == 0) : ordered_json(nullptr);
  document["runs"] = ordered_json::array({run_object(replayed.now, matches)});
  for (const allocator::WhatIf& run : replayed.runs) document["runs"].push_back(run_object(run, nullptr));
  document["tried"] = replayed.tried;
  document["recommended"] =
      replayed.recommended ? ordered_json(replayed.recommended->to_string()) : ordered_json(nullptr);
  document["elapsed_seconds"] = replayed.elapsed_seconds;
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}
}  // namespace cinch::report
