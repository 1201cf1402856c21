#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "cinch/allocator/settings.h"
#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/plan/plan.h"

namespace cinch::plan {
namespace {
constexpr std::int64_t kVersion = 1;
constexpr std::uint64_t kLargestFile = 1u << 24;

const std::vector<std::string> kKeys{"version",    "micro_batch_size", "loss_chunk_size", "autocast",
                                     "alloc_conf", "activations",      "optimizer"};
const std::vector<std::string> kOptimizerKeys{"state", "place", "in_backward"};
// In the order of their enumerations.
const std::vector<std::string> kPolicies{"keep", "checkpoint", "selective", "offload", "checkpoint_offload"};
const std::vector<std::string> kAutocasts{"none", "bf16", "fp16"};
const std::vector<std::string> kStates{"fp32", "8bit"};
const std::vector<std::string> kPlaces{"device", "host", "disk"};

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
                        fmt::format("this is no TOML: {}", error.description()),
                        "A plan file is what cinch plan writes.");
    }
  }

  Plan read() const {
    check_keys(root_, "", kKeys);
    check_version();
    Plan plan;
    plan.micro_batch_size = size("micro_batch_size", "0 means the whole batch.");
    plan.loss_chunk_size = size("loss_chunk_size", "0 means all tokens at once.");
    if (const auto* node = root_.get("autocast")) plan.autocast = choice<Autocast>(*node, "autocast", kAutocasts);
    read_alloc_conf(plan);
    read_activations(plan);
    read_optimizer(plan);
    if (const auto faults = conflicts(plan); !faults.empty()) fail(nullptr, "", faults.front());
    return plan;
  }

 private:
  [[noreturn]] void fail(const toml::node* node, const std::string& key, const std::string& problem,
                         const std::string& hint = {}) const {
    throw ConfigError(name_, node == nullptr ? 0 : static_cast<int>(node->source().begin.line), key, problem, hint);
  }

  void check_keys(const toml::table& table, std::string_view prefix, const std::vector<std::string>& known) const {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (std::ranges::find(known, name) != known.end()) continue;
      const std::string near = nearest(name, known);
      fail(&node, fmt::format("{}{}", prefix, name), fmt::format("\"{}{}\" is unknown", prefix, name),
           near.empty() ? fmt::format("Known here: {}.", fmt::join(known, ", "))
                        : fmt::format("Did you mean {}?", near));
    }
  }

  std::int64_t whole(const std::string& key) const {
    const toml::node* node = root_.get(key);
    const auto* value = node->as_integer();
    if (value == nullptr) fail(node, key, fmt::format("{} wants a whole number", key));
    return value->get();
  }

  std::int64_t size(const std::string& key, const std::string& hint) const {
    if (!root_.contains(key)) return 0;
    const std::int64_t value = whole(key);
    if (value < 0) fail(root_.get(key), key, fmt::format("{} is {}; it must not be below 0", key, value), hint);
    return value;
  }

  void check_version() const {
    if (!root_.contains("version")) fail(nullptr, "version", "version is missing", "Add the line: version = 1");
    const std::int64_t version = whole("version");
    if (version == kVersion) return;
    fail(root_.get("version"), "version", fmt::format("version is {}; this cinch reads version {}", version, kVersion));
  }

  // The table of that name; nullptr if there is none.
  const toml::table* section(const std::string& name) const {
    const toml::node* node = root_.get(name);
    if (node == nullptr) return nullptr;
    if (const toml::table* table = node->as_table()) return table;
    fail(node, name, fmt::format("{} is a section", name), fmt::format("Write [{}] on a line of its own.", name));
  }

  // `names` in the order of E.
  template <class E>
  E choice(const toml::node& node, const std::string& key, const std::vector<std::string>& names) const {
    const auto* text = node.as_string();
    if (text == nullptr) {
      fail(&node, key, fmt::format("{} wants one of: {}", key, fmt::join(names, ", ")),
           node.is_table() ? "Put the module's path in quotes: \"layers.0\" = \"checkpoint\"." : "");
    }
    const auto found = std::ranges::find(names, text->get());
    if (found == names.end()) {
      const std::string near = nearest(text->get(), names);
      fail(&node, key, fmt::format("{} is \"{}\", which is unknown", key, text->get()),
           near.empty() ? fmt::format("Known here: {}.", fmt::join(names, ", "))
                        : fmt::format("Did you mean {}?", near));
    }
    return static_cast<E>(found - names.begin());
  }

  void read_alloc_conf(Plan& plan) const {
    const toml::node* node = root_.get("alloc_conf");
    if (node == nullptr) return;
    const auto* text = node->as_string();
    if (text == nullptr)
      fail(node, "alloc_conf", "alloc_conf wants a text", "For example \"expandable_segments:True\".");
    plan.alloc_conf = text->get();
    try {
      static_cast<void>(allocator::Settings::parse(plan.alloc_conf));
    } catch (const UsageError& error) {
      fail(node, "alloc_conf", error.what(), error.hint());
    }
  }

  void read_activations(Plan& plan) const {
    const toml::table* table = section("activations");
    if (table == nullptr) return;
    for (const auto& [path, policy] : *table) {
      plan.activations[std::string(path.str())] =
          choice<ActivationPolicy>(policy, fmt::format("activations.\"{}\"", path.str()), kPolicies);
    }
  }

  void read_optimizer(Plan& plan) const {
    const toml::table* table = section("optimizer");
    if (table == nullptr) return;
    check_keys(*table, "optimizer.", kOptimizerKeys);
    if (const auto* node = table->get("state"))
      plan.optimizer.state = choice<OptimizerState>(*node, "optimizer.state", kStates);
    if (const auto* node = table->get("place"))
      plan.optimizer.place = choice<StatePlace>(*node, "optimizer.place", kPlaces);
    if (const auto* node = table->get("in_backward")) {
      if (!node->is_boolean()) fail(node, "optimizer.in_backward", "optimizer.in_backward wants true or false");
      plan.optimizer.in_backward = node->as_boolean()->get();
    }
  }

  std::filesystem::path name_;
  toml::table root_;
};
}  // namespace

std::string to_toml(const Plan& plan) {
  std::string text = fmt::format("version = {}\nmicro_batch_size = {}\n", kVersion, plan.micro_batch_size);
  if (plan.loss_chunk_size != 0) text += fmt::format("loss_chunk_size = {}\n", plan.loss_chunk_size);
  if (plan.autocast != Autocast::kNone) text += fmt::format("autocast = \"{}\"\n", name_of(plan.autocast));
  if (!plan.alloc_conf.empty()) text += fmt::format("alloc_conf = {}\n", quoted(plan.alloc_conf));
  if (plan.optimizer != OptimizerPlan{}) {
    text += fmt::format("\n[optimizer]\nstate = \"{}\"\nplace = \"{}\"\nin_backward = {}\n",
                        name_of(plan.optimizer.state), name_of(plan.optimizer.place), plan.optimizer.in_backward);
  }
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
