#include "cinch/report/internal/history_data.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/report/internal/advice.h"
#include "cinch/report/internal/format.h"

namespace cinch::report::internal {
namespace {

using nlohmann::json;
using trace::Category;

std::size_t place_of(Category category) {
  const auto order = display_order();
  return static_cast<std::size_t>(std::find(order.begin(), order.end(), category) - order.begin());
}

/// Columns, not rows: they parse fast and pack well.
template <typename Rows, typename Value>
json column(const Rows& rows, const Value& value) {
  json result = json::array();
  for (const auto& row : rows) result.push_back(value(row));
  return result;
}

/// The listed tensors, then of each category what they leave.
std::vector<plan::PeakTensor> listed(const std::vector<plan::PeakTensor>& tensors) {
  const std::size_t count = std::min(tensors.size(), kListedTensors);
  std::vector<plan::PeakTensor> result(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(count));
  std::map<Category, std::pair<std::size_t, Bytes>> rest;
  for (std::size_t i = count; i < tensors.size(); ++i) {
    ++rest[tensors[i].category].first;
    rest[tensors[i].category].second += tensors[i].bytes;
  }
  for (const auto& [category, sum] : rest) {
    plan::PeakTensor tensor{.bytes = sum.second, .category = category, .name = "", .module = "", .op = "", .sizes = {}};
    tensor.op = fmt::format("({} smaller ones)", with_thousands(static_cast<std::int64_t>(sum.first)));
    result.push_back(std::move(tensor));
  }
  return result;
}

json tensors_of(const History& history, std::vector<std::string>& names) {
  std::map<std::string, std::size_t> numbers;
  for (std::size_t i = names.size(); i-- > 0;) numbers[names[i]] = i;
  const auto number = [&](const std::string& name) {
    const auto [slot, fresh] = numbers.try_emplace(name, names.size());
    if (fresh) names.push_back(name);
    return slot->second;
  };
  using Tensor = plan::PeakTensor;
  const std::vector<Tensor> tensors = listed(history.tensors);
  return {{"bytes", column(tensors, [](const Tensor& t) { return t.bytes.count(); })},
          {"category", column(tensors, [](const Tensor& t) { return place_of(t.category); })},
          {"name", column(tensors, [&](const Tensor& t) { return number(t.name); })},
          {"module", column(tensors, [&](const Tensor& t) { return number(t.module); })},
          {"op", column(tensors, [&](const Tensor& t) { return number(t.op); })},
          {"shape", column(tensors, [&](const Tensor& t) { return number(shape(t)); })}};
}

/// Begin and step as steps from the run before: of trainings they repeat.
json runs_of(const History& history) {
  json begin = json::array(), step = json::array(), phase = json::array();
  History::Run before{0, 0, trace::Phase::kInit};
  for (const History::Run& run : history.runs) {
    begin.push_back(run.begin - before.begin);
    step.push_back(std::int64_t{run.step} - std::int64_t{before.step});
    phase.push_back(static_cast<int>(run.phase));
    before = run;
  }
  return {{"begin", begin}, {"step", step}, {"phase", phase}};
}

json document_of(const History& history) {
  using Kind = History::Kind;
  json phases = json::array();
  for (int i = 0; i < trace::kPhaseCount; ++i) phases.push_back(name_of(static_cast<trace::Phase>(i)));
  std::vector<std::string> names = history.names;
  json document = {
      {"categories", column(display_order(),
                            [](Category c) {
                              return json{{"key", name_of(c)}, {"label", label(c)}, {"shrink", shrinks_by(c)}};
                            })},
      {"phases", phases},
      {"before", column(display_order(), [&](Category c) { return history.before[c].count(); })},
      {"events", history.events.size()},
      {"kinds",
       {{"change", column(history.kinds, [](const Kind& k) { return k.change.count(); })},
        {"category", column(history.kinds, [](const Kind& k) { return place_of(k.category); })},
        {"recompute", column(history.kinds, [](const Kind& k) { return k.recompute ? 1 : 0; })},
        {"module", column(history.kinds, [](const Kind& k) { return k.module; })},
        {"op", column(history.kinds, [](const Kind& k) { return k.op; })}}},
      {"runs", runs_of(history)},
      {"tensors", tensors_of(history, names)}};
  document["names"] = column(names, [](const std::string& name) { return printable(name); });
  return document;
}

void append_varint(std::string& out, std::int64_t value) {
  auto rest = (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
  for (; rest >= 0x80; rest >>= 7) out += static_cast<char>(rest | 0x80);
  out += static_cast<char>(rest);
}

std::string packed(const History& history) {
  const std::string document = document_of(history).dump();
  std::string bytes;
  bytes.reserve(document.size() + history.events.size() * 2 + 4);
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(document.size() >> shift & 0xff);
  bytes += document;
  std::int64_t before = -1;
  for (const std::uint32_t kind : history.events) {
    append_varint(bytes, std::int64_t{kind} - before - 1);
    before = kind;
  }
  return bytes;
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string result(size, '\0');
  const int code = compress2(reinterpret_cast<Bytef*>(result.data()), &size,
                             reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_DEFAULT_COMPRESSION);
  if (code != Z_OK) throw Error(fmt::format("zlib cannot pack {} bytes: error {}", bytes.size(), code));
  result.resize(size);
  return result;
}

std::string base64(const std::string& bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}
}  // namespace

std::string history_script(std::string_view id, const History& history) {
  return fmt::format("<script type=\"application/octet-stream\" id=\"history-{}\">{}</script>", id,
                     base64(deflated(packed(history))));
}

bool comparable(const History& left, const History& right) {
  return std::equal(left.runs.begin(), left.runs.end(), right.runs.begin(), right.runs.end(),
                    [](const auto& a, const auto& b) { return a.step == b.step && a.phase == b.phase; });
}
}  // namespace cinch::report::internal
