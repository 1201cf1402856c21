#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "cinch/core/version.h"
#include "cinch/report/inspection.h"
#include "cinch/report/internal/format.h"
#include "cinch/report/internal/waste.h"

namespace cinch::report {
namespace {

using inspect::Inspection;
using inspect::Live;
using nlohmann::ordered_json;

std::string close(const ordered_json& document) {
  return document.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json head(const Environment& environment, const std::string& source) {
  return {{"schema", "cinch.inspect/1"},      {"cinch", kVersion},
          {"libtorch", environment.libtorch}, {"device", environment.device},
          {"threads", environment.threads},   {"source", source}};
}

ordered_json categories(const trace::CategoryBytes& bytes) {
  ordered_json result;
  for (const trace::Category category : internal::display_order()) {
    result[std::string(name_of(category))] = bytes[category].count();
  }
  return result;
}

ordered_json path(const inspect::CallPath& path) { return {{"op", path.op}, {"frames", path.frames}}; }

ordered_json live(const Live& live) {
  ordered_json kinds = ordered_json::array(), paths = ordered_json::array();
  for (const Live::OfKind& row : live.kinds) {
    kinds.push_back({{"kind", name_of(row.kind)},
                     {"category", name_of(category_of(row.kind))},
                     {"bytes", row.bytes.count()},
                     {"tensors", row.tensors},
                     {"bytes_before_recording", row.before.count()},
                     {"note", row.note}});
  }
  for (const Live::Path& row : live.paths) {
    ordered_json entry = path(row.path);
    entry["kind"] = name_of(row.kind);
    entry["category"] = name_of(category_of(row.kind));
    entry["bytes"] = row.bytes.count();
    entry["largest_bytes"] = row.largest.count();
    entry["tensors"] = row.tensors;
    entry["before_recording"] = row.before;
    paths.push_back(std::move(entry));
  }
  return {{"requested_bytes", live.bytes.count()},
          {"event", live.event},
          {"step", live.step},
          {"phase", name_of(live.phase)},
          {"where", live.where},
          {"tensors", live.tensors},
          {"categories", categories(live.categories)},
          {"kinds", std::move(kinds)},
          {"paths", std::move(paths)},
          {"more_paths", live.more_paths},
          {"more_paths_bytes", live.more_bytes.count()}};
}

ordered_json waste(const inspect::Fragmentation& parts) {
  ordered_json result = {{"reserved_bytes", parts.reserved.count()}};
  for (const internal::WastePart& part : internal::waste_parts(parts)) {
    result[std::string(part.key) + "_bytes"] = part.bytes.count();
  }
  result["wasted_bytes"] = parts.wasted().count();
  result["cached_segments"] = parts.cached_segment_count;
  result["stranded_blocks"] = parts.stranded_blocks;
  result["largest_free_block_bytes"] = parts.largest_free.count();
  ordered_json pinned = ordered_json::array();
  for (const inspect::PinnedSegment& segment : parts.pinned) {
    ordered_json holders = ordered_json::array();
    for (const auto& holder : segment.holders) {
      holders.push_back({{"address", holder.address}, {"bytes", holder.requested.count()}, {"path", holder.path}});
    }
    pinned.push_back({{"address", segment.address},
                      {"bytes", segment.total.count()},
                      {"free_bytes", segment.free.count()},
                      {"largest_free_block_bytes", segment.largest_free.count()},
                      {"blocks", segment.blocks},
                      {"held_by", std::move(holders)}});
  }
  result["pinned_segments"] = std::move(pinned);
  return result;
}

ordered_json leaks(const inspect::Leaks& leaks) {
  ordered_json result = ordered_json::array();
  for (const inspect::Leak& leak : leaks.found) {
    result.push_back({{"bytes_per_step", leak.bytes_per_step.count()},
                      {"held_bytes", leak.held.count()},
                      {"periods", leak.periods},
                      {"path", leak.path},
                      {"kind", leak.kind == inspect::Leak::Kind::kKept ? "kept" : "growing"},
                      {"steps_known", leaks.source != inspect::PeriodSource::kPattern}});
  }
  return result;
}

template <typename Value>
ordered_json or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json or_null(const std::optional<Bytes>& value) {
  return value ? ordered_json(value->count()) : ordered_json(nullptr);
}

ordered_json out_of_memory(const inspect::OutOfMemory& oom) {
  ordered_json tensors = ordered_json::array();
  for (const inspect::Tensor& tensor : oom.make_room) {
    tensors.push_back({{"bytes", tensor.bytes.count()}, {"kind", name_of(tensor.kind)}, {"path", tensor.path}});
  }
  ordered_json remedies = ordered_json::array();
  for (const inspect::Remedy& remedy : oom.remedies) {
    remedies.push_back({{"name", remedy.name},
                        {"leaves_bytes", remedy.leaves.count()},
                        {"fits", remedy.fits},
                        {"at_best", remedy.at_best}});
  }
  return {{"recorded", oom.recorded},
          {"event", oom.event},
          {"asked_bytes", oom.asked.count()},
          {"free_bytes", oom.free.count()},
          {"short_by_bytes", oom.short_by.count()},
          {"any_setting_helps", oom.any_setting_helps},
          {"setting", oom.any_setting_helps ? ordered_json(oom.setting) : ordered_json(nullptr)},
          {"setting_needs_bytes", or_null(oom.setting_needs)},
          {"capacity_bytes", oom.capacity.count()},
          {"reserved_bytes", oom.reserved.count()},
          {"largest_free_block_bytes", oom.largest_free_block.count()},
          {"with_recorded_settings_at_event", or_null(oom.already_at)},
          {"headline", oom.headline},
          {"verdict", oom.verdict},
          {"why", oom.why},
          {"short_at_peak_bytes", oom.short_at_peak.count()},
          {"remedies", std::move(remedies)},
          {"make_room", std::move(tensors)},
          {"live", live(oom.live)},
          {"fragmentation", waste(oom.waste)}};
}

ordered_json rank_object(const inspect::Rank& rank) {
  return {{"source", rank.source},
          {"device", rank.device},
          {"events", rank.events},
          {"peak_requested_bytes", rank.peak.count()},
          {"peak_reserved_bytes", rank.peak_reserved.count()},
          {"end_requested_bytes", rank.end.count()},
          {"end_reserved_bytes", rank.end_reserved.count()},
          {"ran_out", rank.ran_out},
          {"error", rank.error}};
}
}  // namespace

std::string json(const Inspected& inspected) {
  const Inspection& seen = inspected.inspection;
  ordered_json document = head(inspected.environment, seen.source);
  document["events"] = seen.events;
  document["first_event"] = seen.first_event;
  document["left_out_events"] = seen.left_out;
  document["alloc_conf"] = seen.alloc_conf;
  document["optimizer"] = seen.optimizer;
  document["optimizer_steps"] = seen.optimizer_steps;
  document["peak"] = live(seen.peak);
  document["peak"]["reserved_bytes"] = seen.at_peak.reserved.count();
  document["categories_at_peak"] = categories(seen.peak.categories);
  document["end"] = live(seen.end);
  document["peak_reserved_bytes"] = seen.peak_reserved.count();
  document["peak_reserved_event"] = seen.peak_reserved_event;
  document["best_possible_bytes"] = seen.best_possible.count();
  document["fragmentation"] = seen.has_segments ? waste(seen.at_end) : ordered_json(nullptr);
  if (seen.has_segments) document["fragmentation"]["at_peak"] = waste(seen.at_peak);
  document["leaks"] = leaks(seen.leaks);
  document["leaked_bytes_per_step"] = seen.leaks.bytes_per_step.count();
  document["steps_until_full"] = or_null(seen.leaks.steps_until_full);
  document["oom"] = seen.oom ? out_of_memory(*seen.oom) : ordered_json(nullptr);
  document["has_history"] = seen.has_history;
  document["fits_capacity_bytes"] = or_null(seen.fits_capacity);
  document["retries"] = seen.retries;
  if (inspected.devices) {
    document["devices"] = ordered_json::array();
    for (const inspect::Rank& rank : inspected.devices->all) document["devices"].push_back(rank_object(rank));
  }
  document["findings"] = ordered_json::array();
  for (const inspect::Finding& finding : seen.findings) {
    document["findings"].push_back(
        {{"text", finding.text}, {"bytes", finding.bytes.count()}, {"action", finding.action}});
  }
  return close(document);
}

std::string json(const InspectedRanks& inspected) {
  const inspect::Ranks& ranks = inspected.ranks;
  ordered_json document = head(inspected.environment, inspected.source);
  document["ranks"] = ordered_json::array();
  std::size_t events = 0;
  for (const inspect::Rank& rank : ranks.all) {
    events += rank.events;
    document["ranks"].push_back(rank_object(rank));
  }
  document["events"] = events;
  document["peak_total_bytes"] = ranks.peak_total.count();
  document["peak_reserved_total_bytes"] = ranks.peak_reserved_total.count();
  document["median_peak_bytes"] = ranks.median_peak.count();
  document["outlier"] = or_null(ranks.outlier);
  document["findings"] = ordered_json::array(
      {{{"text", ranks.sentence},
        {"bytes", ranks.outlier ? ranks.all[*ranks.outlier].peak.count() : ranks.median_peak.count()},
        {"action", ranks.outlier ? "cinch inspect on that file says what is in it." : ""}}});
  return close(document);
}
}  // namespace cinch::report
