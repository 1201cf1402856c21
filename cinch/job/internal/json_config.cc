#include "cinch/job/internal/json_config.h"

#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cinch/core/error.h"
#include "cinch/core/text.h"

namespace cinch::job::internal {
namespace {
using nlohmann::json;
constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // Of any one size.
constexpr std::size_t kMostShown = 80;                    // Bytes of a value in a message.
constexpr int kDeepest = 64;

std::string read(const std::filesystem::path& file) {
  try {
    return read_file(file, kLargestConfig);
  } catch (const Error& error) {
    throw ConfigError(file, 0, "", error.what(), error.hint());
  }
}

std::string shown(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMostShown) text = text.substr(0, kMostShown) + "…";
  return printable(text);
}

// Two values of one key: which counts is the reader's guess, so neither does.
class NoKeyTwice {
 public:
  explicit NoKeyTwice(const std::filesystem::path& file) : file_(file) {}
  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest)
      throw ConfigError(file_, 0, "", fmt::format("lists and objects nest deeper than {}", kDeepest));
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    if (event == json::parse_event_t::key && !open_.back().insert(parsed.get<std::string>()).second) {
      const std::string key = printable(parsed.get<std::string>().substr(0, kMostShown));
      throw ConfigError(file_, 0, key, fmt::format("{} occurs twice", key));
    }
    return true;
  }

 private:
  const std::filesystem::path& file_;
  std::vector<std::set<std::string>> open_;
};
}  // namespace

JsonConfig::JsonConfig(const std::filesystem::path& file) : JsonConfig(read(file), file) {}

JsonConfig::JsonConfig(std::string_view text, std::filesystem::path name_for_errors)
    : file_(std::move(name_for_errors)) {
  try {
    root_ = json::parse(text, NoKeyTwice(file_));
  } catch (const json::exception& error) {
    throw ConfigError(file_, 0, "", fmt::format("this is no JSON: {}", printable(error.what())),
                      "Download the file again, or repair it.");
  }
  if (!root_.is_object()) throw ConfigError(file_, 0, "", "this is no JSON object, as a config.json is");
}

void JsonConfig::fail(const std::string& key, const std::string& problem, const std::string& hint) const {
  throw ConfigError(file_, 0, key, key + " " + problem, hint);
}

void JsonConfig::wrong_type(const char* name, const json& found, const std::string& wanted) const {
  fail(name, fmt::format("wants {}; found {}", wanted, shown(found)));
}

const json* JsonConfig::find(Names names) const {
  const json* found = nullptr;
  for (const char* name : names) {
    const auto place = root_.find(name);
    if (place == root_.end() || place->is_null()) continue;
    if (found != nullptr && *found != *place) {
      fail(*names.begin(), fmt::format("is given twice, as {} and as {} in {}", shown(*found), shown(*place), name));
    }
    if (found == nullptr) found = &*place;
  }
  return found;
}

std::int64_t JsonConfig::integer(Names names, std::optional<std::int64_t> otherwise, std::int64_t least) const {
  const char* name = *names.begin();
  const json* value = find(names);
  if (value == nullptr) {
    if (!otherwise) fail(name, "is missing");
    return *otherwise;
  }
  if (!value->is_number_integer()) wrong_type(name, *value, "a whole number");
  const bool huge = value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(kLargest);
  if (huge || value->get<std::int64_t>() < least) {
    fail(name, fmt::format("is {}; it must be from {} to {}", shown(*value), least, kLargest));
  }
  return value->get<std::int64_t>();
}

double JsonConfig::number(Names names, double otherwise) const {
  const json* value = find(names);
  if (value == nullptr) return otherwise;
  if (!value->is_number()) wrong_type(*names.begin(), *value, "a number");
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < 0)
    fail(*names.begin(), fmt::format("is {}; it must be at least 0", shown(*value)));
  return number;
}

bool JsonConfig::boolean(const char* name, bool otherwise) const {
  const json* value = find({name});
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) wrong_type(name, *value, "true or false");
  return value->get<bool>();
}

std::string JsonConfig::text(Names names, const std::string& otherwise) const {
  const json* value = find(names);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) wrong_type(*names.begin(), *value, "a text");
  return value->get<std::string>();
}

std::vector<std::int64_t> JsonConfig::integers(const char* name, std::vector<std::int64_t> otherwise) const {
  const json* value = find({name});
  if (value == nullptr) return otherwise;
  if (!value->is_array()) wrong_type(name, *value, "a list of whole numbers");
  std::vector<std::int64_t> result;
  for (const json& element : *value) {
    const bool size =
        element.is_number_unsigned() && element.get<std::uint64_t>() <= static_cast<std::uint64_t>(kLargest);
    if (!size) wrong_type(name, *value, "a list of whole numbers");
    result.push_back(element.get<std::int64_t>());
  }
  return result;
}

void JsonConfig::want(const char* name, bool otherwise, bool wanted, const std::string& why) const {
  if (boolean(name, otherwise) == wanted) return;
  fail(name, fmt::format("is {}; {}", !wanted, why));
}

void JsonConfig::want(const char* name, const std::string& otherwise,
                      std::initializer_list<std::string_view> wanted) const {
  const std::string found = text({name}, otherwise);
  for (const std::string_view choice : wanted) {
    if (found == choice) return;
  }
  fail(name, fmt::format("is {}, which cinch does not compute", shown(json(found))),
       fmt::format("Known here: {}.", fmt::join(wanted, ", ")));
}

void JsonConfig::want_absent(const char* name, const std::string& why) const {
  if (const json* value = find({name})) fail(name, fmt::format("is {}; {}", shown(*value), why));
}
}  // namespace cinch::job::internal
