#include "cinch/job/internal/overrides.h"

#include <algorithm>

#include <fmt/format.h>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/job/internal/section.h"

namespace cinch::job::internal {
namespace {
constexpr char kUsage[] = "Write --set train.steps=10.";

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

[[noreturn]] void fail(const std::string& key, const std::string& problem, const std::string& hint) {
  throw ConfigError(std::string(kOverrideName), 0, key, problem, hint);
}

// A table with the one key "value".
toml::table parse_value(const std::string& key, const std::string& text) {
  if (std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
    fail(key, fmt::format("the value of {} holds a line break or a control character", key), kUsage);
  }
  if (line_of_deep_key(text) != 0) fail(key, fmt::format("the value of {} has a key of more than 100 parts", key), kUsage);
  try {
    return toml::parse("value = " + text, std::string(kOverrideName));
  } catch (const toml::parse_error& error) {
    const bool bare = text.find_first_of("\"'[]{}") == std::string::npos;
    if (!bare) fail(key, fmt::format("the value of {} is no TOML: {}", key, error.description()), kUsage);
  }
  try {  // Quoted by TOML's own rules, so that only valid UTF-8 passes.
    std::string quoted;
    for (const char c : text) quoted += c == '\\' ? std::string("\\\\") : std::string(1, c);
    return toml::parse("value = \"" + quoted + "\"", std::string(kOverrideName));
  } catch (const toml::parse_error& error) {
    fail(key, fmt::format("the value of {} is no text: {}", key, error.description()), kUsage);
  }
}
}  // namespace

void apply_overrides(toml::table& root, std::span<const std::string> overrides, std::span<const std::string> known) {
  for (const std::string& override_text : overrides) {
    const std::size_t equals = override_text.find('=');
    if (equals == std::string::npos) fail(override_text, fmt::format("\"{}\" has no =", override_text), kUsage);
    const std::string key = trimmed(std::string_view(override_text).substr(0, equals));
    if (std::ranges::find(known, key) == known.end()) {
      fail(key, fmt::format("\"{}\" is unknown", key), suggestion(key, known));
    }
    toml::table parsed = parse_value(key, trimmed(std::string_view(override_text).substr(equals + 1)));
    const std::size_t dot = key.find('.');
    const std::string section = key.substr(0, dot);
    if (!root.contains(section)) root.insert(section, toml::table{});
    toml::table* table = root.get_as<toml::table>(section);
    if (table == nullptr) fail(key, fmt::format("{} is not a section in the job file", section), kUsage);
    // Moved, not copied: only a moved node keeps its place, by which errors name --set.
    table->insert_or_assign(key.substr(dot + 1), std::move(*parsed.get("value")));
  }
}
}  // namespace cinch::job::internal
