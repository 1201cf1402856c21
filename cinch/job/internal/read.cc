#include "cinch/job/internal/read.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cinch/core/error.h"
#include "cinch/job/internal/keys.h"
#include "cinch/job/internal/ranges.h"
#include "cinch/job/internal/read_model.h"
#include "cinch/job/internal/relations.h"
#include "cinch/job/internal/section.h"
#include "cinch/plan/plan.h"

namespace cinch::job::internal {
namespace {
// Which of a section's variants its text `key` names: the known keys depend on it, so it is read before they are
// checked.
std::size_t variant_of(const toml::table& root, std::string_view section, std::string_view key,
                       const std::filesystem::path& file, const std::vector<std::string>& choices,
                       std::optional<std::size_t> otherwise) {
  const toml::table* table = root.get_as<toml::table>(section);
  const toml::node* node = table == nullptr ? nullptr : table->get(key);
  const std::string full = fmt::format("{}.{}", section, key);
  if (node == nullptr) {
    if (otherwise) return *otherwise;
    fail_at(table, file, full, full + " is missing",
            fmt::format("Add under [{}] one of {}.", section, fmt::join(choices, ", ")));
  }
  const auto* text = node->as_string();
  if (text == nullptr)
    fail_at(node, file, full, fmt::format("{} wants a text in quotes; found {}", full, describe(*node)));
  const auto found = std::ranges::find(choices, text->get());
  if (found == choices.end()) {
    fail_at(node, file, full, fmt::format("{} is \"{}\", which is unknown", full, text->get()),
            suggestion(text->get(), choices));
  }
  return static_cast<std::size_t>(found - choices.begin());
}

std::vector<std::string> read_path(const Section& data) {
  std::vector<std::string> path = data.texts("path");
  if (path.empty()) data.fail("path", "is an empty list", "Name files, patterns or folders.");
  if (std::ranges::find(path, "") != path.end()) data.fail("path", "holds an empty text", "Name a file or a folder.");
  return path;
}

DataConfig read_data(const Section& data, std::size_t kind) {
  if (kind == 0) {
    const TextData plain;
    return TextData{.path = read_path(data), .held_out = data.number("held_out", kShare, plain.held_out)};
  }
  if (kind == 1) {
    const CsvData plain;
    return CsvData{.path = read_path(data), .held_out = data.number("held_out", kShare, plain.held_out)};
  }
  return SyntheticData{};
}

OptimizerConfig read_optimizer(const Section& train, std::size_t kind) {
  OptimizerConfig optimizer;
  optimizer.kind = static_cast<OptimizerKind>(kind);
  optimizer.weight_decay = train.number("weight_decay", kNotNegative, optimizer.weight_decay);
  if (optimizer.kind == OptimizerKind::kSgd) {
    optimizer.momentum = train.number("momentum", kShare, optimizer.momentum);
    return optimizer;
  }
  if (optimizer.kind == OptimizerKind::kAdafactor) return optimizer;
  if (optimizer.kind == OptimizerKind::kLion) optimizer.beta2 = 0.99;
  if (train.has("betas")) {
    const std::vector<double> betas = train.numbers("betas", kShare);
    if (betas.size() != 2) train.fail("betas", fmt::format("has {} entries; it needs two", betas.size()));
    optimizer.beta1 = betas[0];
    optimizer.beta2 = betas[1];
  }
  if (optimizer.kind != OptimizerKind::kLion) optimizer.eps = train.number("eps", kPositive, optimizer.eps);
  return optimizer;
}

TrainConfig read_train(const Section& section, std::size_t optimizer) {
  TrainConfig train;
  train.batch_size = section.integer("batch_size", kSize);
  train.steps = section.integer("steps", kSize);
  train.optimizer = read_optimizer(section, optimizer);
  train.learning_rate = section.number("learning_rate", kPositive);
  train.schedule = static_cast<Schedule>(section.choice("schedule", kSchedules, 0));
  train.warmup_steps = section.integer("warmup_steps", kCount, train.warmup_steps);
  if (section.has("max_grad_norm")) train.max_grad_norm = section.number("max_grad_norm", kPositive);
  train.precision = static_cast<Precision>(section.choice("precision", kPrecisions, 0));
  train.evaluate_every = section.integer("evaluate_every", kCount, train.evaluate_every);
  train.evaluation_batches = section.integer("evaluation_batches", kSize, train.evaluation_batches);
  train.save_every = section.integer("save_every", kCount, train.save_every);
  train.run_dir = section.text("run_dir", train.run_dir);
  const IntegerRange seeds{0, std::numeric_limits<std::int64_t>::max()};
  train.seed = static_cast<std::uint64_t>(section.integer("seed", seeds, static_cast<std::int64_t>(train.seed)));
  train.threads = static_cast<int>(section.integer("threads", {0, 1024}, train.threads));
  return train;
}

Bytes read_budget(const Section& memory) {
  const toml::node* node = memory.find("budget");
  if (!node->is_string() && !node->is_integer()) {
    memory.fail("budget", fmt::format("wants a size such as \"2GiB\", or bytes; found {}", describe(*node)));
  }
  Bytes budget;
  try {
    budget = node->is_integer() ? Bytes(node->as_integer()->get()) : Bytes::parse(node->as_string()->get());
  } catch (const Error& error) {
    memory.fail("budget", fmt::format("cannot be read: {}", error.what()), error.hint());
  }
  if (budget <= Bytes(0)) {
    memory.fail("budget", fmt::format("is {} bytes; it must be above 0", budget.count()),
                "Leave it out for no budget, or write for example \"2GiB\".");
  }
  return budget;
}

std::set<std::string> read_allowed(const Section& memory) {
  std::vector<std::string> known;
  for (const plan::TechniqueInfo& technique : plan::techniques()) known.emplace_back(technique.key);
  std::set<std::string> allowed;
  for (const std::string& key : memory.texts("allow")) {
    if (std::ranges::find(known, key) == known.end())
      memory.fail("allow", fmt::format("names \"{}\", which is no technique", key), suggestion(key, known));
    allowed.insert(key);
  }
  return allowed;
}

MemoryConfig read_memory(const Section& section) {
  MemoryConfig memory;
  if (section.has("budget")) memory.budget = read_budget(section);
  if (section.has("allow")) memory.allow = read_allowed(section);
  memory.divide_batch_norm = section.boolean("divide_batch_norm", memory.divide_batch_norm);
  memory.arena = section.boolean("arena", memory.arena);
  return memory;
}

void refuse_unknown_sections(const toml::table& root, const std::filesystem::path& file) {
  for (const auto& [key, node] : root) {
    if (std::ranges::find(kSections, key.str()) != kSections.end()) continue;
    const std::string name(key.str());
    fail_at(&node, file, name, fmt::format("{} is unknown", node.is_table() ? "[" + name + "]" : name),
            suggestion(name, kSections));
  }
}
}  // namespace

Job read_job(const toml::table& root, const std::filesystem::path& file) {
  refuse_unknown_sections(root, file);
  const std::size_t model_kind = variant_of(root, "model", "kind", file, kModelKinds, {});
  const std::size_t data_kind = variant_of(root, "data", "kind", file, kDataKinds, {});
  const std::size_t optimizer = variant_of(root, "train", "optimizer", file, kOptimizers, 0);
  std::vector<std::string> known = model_keys(model_kind);
  known.emplace_back("weights");
  const Section model(root, "model", file, std::move(known));
  const Section data(root, "data", file, data_keys(data_kind));
  const Section train(root, "train", file, train_keys(optimizer));
  const Section memory(root, "memory", file, memory_keys());

  Job job;
  job.model = read_model(model, model_kind);
  job.weights = model.text("weights", "");
  job.data = read_data(data, data_kind);
  job.train = read_train(train, optimizer);
  job.memory = read_memory(memory);
  check_relations(job, model, data, train, memory);
  return job;
}
}  // namespace cinch::job::internal
