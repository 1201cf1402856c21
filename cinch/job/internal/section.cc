#include "cinch/job/internal/section.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cinch/core/error.h"
#include "cinch/core/text.h"

namespace cinch::job::internal {

void fail_at(const toml::node* node, const std::filesystem::path& file, const std::string& key,
             const std::string& problem, const std::string& hint) {
  if (node == nullptr) throw ConfigError(file, 0, key, problem, hint);
  const toml::source_region& place = node->source();
  if (place.path && *place.path == kOverrideName) throw ConfigError(std::string(kOverrideName), 0, key, problem, hint);
  throw ConfigError(file, static_cast<int>(place.begin.line), key, problem, hint);
}

std::string suggestion(std::string_view name, std::span<const std::string> known) {
  const std::string near = nearest(name, known);
  if (!near.empty()) return fmt::format("Did you mean {}?", near);
  return fmt::format("Known here: {}.", fmt::join(known, ", "));
}

std::string describe(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("the text \"{}\"", text->get());
  if (const auto* integer = node.as_integer()) return fmt::format("the whole number {}", integer->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("the number {}", number->get());
  if (const auto* boolean = node.as_boolean()) return fmt::format("{}", boolean->get());
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a table";
  return "a date or time";
}

Section::Section(const toml::table& root, std::string_view name, const std::filesystem::path& file,
                 std::vector<std::string> known)
    : name_(name), file_(file), known_(std::move(known)) {
  const toml::node* node = root.get(name_);
  if (node == nullptr) return;
  table_ = node->as_table();
  if (table_ == nullptr) {
    fail_at(node, file_, name_, fmt::format("{} is a section; found {}", name_, describe(*node)),
            fmt::format("Write [{}] on a line of its own and its keys below.", name_));
  }
  refuse_unknown_keys();
}

void Section::refuse_unknown_keys() const {
  for (const auto& [key, node] : *table_) {
    if (std::ranges::find(known_, key.str()) != known_.end()) continue;
    fail_at(&node, file_, full(key.str()), fmt::format("{} is unknown", full(key.str())),
            suggestion(key.str(), known_));
  }
}

const toml::node* Section::find(std::string_view key) const { return table_ == nullptr ? nullptr : table_->get(key); }

void Section::fail(std::string_view key, const std::string& problem, const std::string& hint) const {
  const toml::node* node = find(key);
  fail_at(node != nullptr ? node : table_, file_, full(key), full(key) + " " + problem, hint);
}

void Section::wrong_type(std::string_view key, const toml::node& found, const std::string& wanted) const {
  fail(key, fmt::format("wants {}; found {}", wanted, describe(found)));
}

const toml::node* Section::need(std::string_view key, bool required) const {
  const toml::node* node = find(key);
  if (node == nullptr && required) {
    fail(key, "is missing", fmt::format("Add it under [{}].", name_));
  }
  return node;
}

std::int64_t Section::checked_integer(std::string_view key, const toml::node& node, IntegerRange range) const {
  const auto* value = node.as_integer();
  if (value == nullptr) wrong_type(key, node, "a whole number");
  if (value->get() < range.least || value->get() > range.most) {
    fail(key, fmt::format("is {}; it must be from {} to {}", value->get(), range.least, range.most));
  }
  return value->get();
}

double Section::checked_number(std::string_view key, const toml::node& node, NumberRange range) const {
  const std::optional<double> value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value) wrong_type(key, node, "a number");
  const bool above = range.open_below ? *value > range.least : *value >= range.least;
  const bool below = range.open_above ? *value < range.most : *value <= range.most;
  if (std::isfinite(*value) && above && below) return *value;
  std::string wanted = fmt::format("{} {}", range.open_below ? "above" : "at least", range.least);
  if (std::isfinite(range.most)) wanted += fmt::format(" and {} {}", range.open_above ? "below" : "at most", range.most);
  fail(key, fmt::format("is {}; it must be finite, {}", *value, wanted));
}

std::int64_t Section::integer(std::string_view key, IntegerRange range, std::optional<std::int64_t> otherwise) const {
  const toml::node* node = need(key, !otherwise);
  return node == nullptr ? *otherwise : checked_integer(key, *node, range);
}

double Section::number(std::string_view key, NumberRange range, std::optional<double> otherwise) const {
  const toml::node* node = need(key, !otherwise);
  return node == nullptr ? *otherwise : checked_number(key, *node, range);
}

bool Section::boolean(std::string_view key, bool otherwise) const {
  const toml::node* node = find(key);
  if (node == nullptr) return otherwise;
  const auto* value = node->as_boolean();
  if (value == nullptr) wrong_type(key, *node, "true or false");
  return value->get();
}

std::string Section::text(std::string_view key, std::optional<std::string> otherwise) const {
  const toml::node* node = need(key, !otherwise);
  if (node == nullptr) return *otherwise;
  const auto* value = node->as_string();
  if (value == nullptr) wrong_type(key, *node, "a text in quotes");
  return value->get();
}

std::size_t Section::choice(std::string_view key, std::span<const std::string> choices,
                            std::optional<std::size_t> otherwise) const {
  if (!has(key) && otherwise) return *otherwise;
  const std::string name = text(key);
  const auto found = std::ranges::find(choices, name);
  if (found == choices.end()) fail(key, fmt::format("is \"{}\", which is unknown", name), suggestion(name, choices));
  return static_cast<std::size_t>(found - choices.begin());
}

std::vector<std::string> Section::texts(std::string_view key) const {
  const toml::node* node = need(key, true);
  if (node->is_string()) return {text(key)};
  const toml::array* list = node->as_array();
  if (list == nullptr) wrong_type(key, *node, "a text or a list of texts");
  std::vector<std::string> result;
  for (const toml::node& element : *list) {
    if (!element.is_string()) wrong_type(key, element, "a list of texts");
    result.push_back(element.as_string()->get());
  }
  return result;
}

std::vector<std::int64_t> Section::integers(std::string_view key, IntegerRange range) const {
  const toml::node* node = need(key, true);
  const toml::array* list = node->as_array();
  if (list == nullptr) wrong_type(key, *node, "a list of whole numbers");
  if (list->size() > kLongestList) fail(key, fmt::format("has {} entries; at most {} are read", list->size(), kLongestList));
  std::vector<std::int64_t> result;
  for (const toml::node& element : *list) result.push_back(checked_integer(key, element, range));
  return result;
}

std::vector<double> Section::numbers(std::string_view key, NumberRange range) const {
  const toml::node* node = need(key, true);
  const toml::array* list = node->as_array();
  if (list == nullptr) wrong_type(key, *node, "a list of numbers");
  if (list->size() > kLongestList) fail(key, fmt::format("has {} entries; at most {} are read", list->size(), kLongestList));
  std::vector<double> result;
  for (const toml::node& element : *list) result.push_back(checked_number(key, element, range));
  return result;
}
}  // namespace cinch::job::internal
