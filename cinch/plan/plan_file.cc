#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/plan/plan.h"

namespace cinch::plan {
namespace {
constexpr std::int64_t kVersion = 1;
constexpr std::uint64_t kLargestFile = 1u << 24;

const std::vector<std::string> kKeys{"version", "micro_batch_size", "activations"};
const std::vector<std::string> kPolicies{"keep", "checkpoint"};  // In the order of ActivationPolicy.

std::string quoted(const std::string& text) {
  const toml::value<std::string> value{text};
  std::ostringstream out;
  out << toml::toml_formatter(value, toml::format_flags::none);
  return out.str();
}

class Reader {
 public:
  Reader(std::string_view text, const std::filesystem::path& name) : name_(name) {
    if (const int line = line_of_deep_key(text))
      throw ConfigError(name_, line, "", "a key has more than 100 parts", "Module paths need quotes: \"layers.0\".");
    try {
      root_ = toml::parse(text, name.string());
    } catch (const toml::parse_error& error) {
      throw ConfigError(name_, static_cast<int>(error.source().begin.line), "",
                        fmt::format("this is no TOML: {}", error.description()), "A plan file is what cinch plan writes.");
    }
  }

  Plan read() const {
    check_keys();
    check_version();
    Plan plan;
    if (root_.contains("micro_batch_size")) plan.micro_batch_size = whole("micro_batch_size");
    if (plan.micro_batch_size < 0) {
      fail(root_.get("micro_batch_size"), "micro_batch_size",
           fmt::format("micro_batch_size is {}; it must not be below 0", plan.micro_batch_size),
           "0 means the whole batch.");
    }
    read_activations(plan);
    return plan;
  }

 private:
  [[noreturn]] void fail(const toml::node* node, const std::string& key, const std::string& problem,
                         const std::string& hint = {}) const {
    throw ConfigError(name_, node == nullptr ? 0 : static_cast<int>(node->source().begin.line), key, problem, hint);
  }

  void check_keys() const {
    for (const auto& [key, node] : root_) {
      const std::string name(key.str());
      if (std::ranges::find(kKeys, name) != kKeys.end()) continue;
      const std::string near = nearest(name, kKeys);
      fail(&node, name, fmt::format("\"{}\" is unknown", name),
           near.empty() ? "Known here: version, micro_batch_size, activations." : fmt::format("Did you mean {}?", near));
    }
  }

  std::int64_t whole(const std::string& key) const {
    const toml::node* node = root_.get(key);
    const auto* value = node->as_integer();
    if (value == nullptr) fail(node, key, fmt::format("{} wants a whole number", key));
    return value->get();
  }

  void check_version() const {
    if (!root_.contains("version")) fail(nullptr, "version", "version is missing", "Add the line: version = 1");
    const std::int64_t version = whole("version");
    if (version == kVersion) return;
    fail(root_.get("version"), "version", fmt::format("version is {}; this cinch reads version {}", version, kVersion));
  }

  void read_activations(Plan& plan) const {
    const toml::node* node = root_.get("activations");
    if (node == nullptr) return;
    const toml::table* table = node->as_table();
    if (table == nullptr) fail(node, "activations", "activations is a section", "Write [activations] on a line of its own.");
    for (const auto& [path, policy] : *table) {
      const std::string key = fmt::format("activations.\"{}\"", path.str());
      const auto* text = policy.as_string();
      if (text == nullptr) {
        fail(&policy, key, fmt::format("{} wants \"keep\" or \"checkpoint\"", key),
             policy.is_table() ? "Put the module's path in quotes: \"layers.0\" = \"checkpoint\"." : "");
      }
      const auto found = std::ranges::find(kPolicies, text->get());
      if (found == kPolicies.end()) {
        const std::string near = nearest(text->get(), kPolicies);
        fail(&policy, key, fmt::format("{} is \"{}\", which is unknown", key, text->get()),
             near.empty() ? "Known here: keep, checkpoint." : fmt::format("Did you mean {}?", near));
      }
      plan.activations[std::string(path.str())] = static_cast<ActivationPolicy>(found - kPolicies.begin());
    }
  }

  std::filesystem::path name_;
  toml::table root_;
};
}  // namespace

std::string to_toml(const Plan& plan) {
  std::string text = fmt::format("version = {}\nmicro_batch_size = {}\n", kVersion, plan.micro_batch_size);
  if (plan.activations.empty()) return text;
  text += "\n[activations]\n";
  for (const auto& [path, policy] : plan.activations) {
    text += fmt::format("{} = \"{}\"\n", quoted(path), name_of(policy));
  }
  return text;
}

Plan parse_plan(std::string_view text, const std::filesystem::path& name_for_errors) {
  return Reader(text, name_for_errors).read();
}

Plan load_plan(const std::filesystem::path& file) {
  std::string text;
  try {
    text = read_file(file, kLargestFile);
  } catch (const Error& error) {
    throw ConfigError(file, 0, "", error.what(), error.hint());
  }
  return parse_plan(text, file);
}
}  // namespace cinch::plan
