#include "cinch/job/huggingface.h"

#include "cinch/core/error.h"
#include "cinch/job/internal/huggingface_model.h"
#include "cinch/job/internal/keys.h"
#include "cinch/job/internal/overrides.h"
#include "cinch/job/internal/read.h"
#include "cinch/job/internal/resolve.h"

namespace cinch::job {
namespace fs = std::filesystem;

namespace internal {
namespace {
constexpr char kConfig[] = "config.json";

bool has_weights(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "model.safetensors", ignored) ||
         fs::exists(folder / "model.safetensors.index.json", ignored);
}

JsonConfig open_config(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw ConfigError(folder, 0, "", "this is no folder", "Name a folder that holds a config.json.");
  }
  if (!fs::exists(folder / kConfig, error)) {
    throw ConfigError(folder, 0, "", "there is no config.json in this folder",
                      "Name a folder as Hugging Face's save_pretrained() writes it, or write a job file.");
  }
  return JsonConfig(folder / kConfig);
}

/// Keys that are there already win.
void fill(toml::table& model, const JsonConfig& config) {
  std::optional<std::int64_t> context;
  if (const toml::node* given = model.get("context_length")) context = given->value_exact<std::int64_t>();
  HuggingFaceModel found = read_huggingface_model(config, context);
  for (auto&& [key, value] : found.section) {
    if (!model.contains(key.str())) model.insert(key.str(), std::move(value));
  }
}

toml::table default_job() {
  return toml::table{
      {"model", toml::table{}},
      {"data", toml::table{{"kind", "synthetic"}}},
      {"train", toml::table{{"batch_size", 1}, {"steps", 1}, {"optimizer", "adamw"}, {"learning_rate", 1e-4}}}};
}
}  // namespace

void resolve_huggingface(toml::table& root, const fs::path& file) {
  toml::table* model = root.get_as<toml::table>("model");
  const toml::node* named = model == nullptr ? nullptr : model->get("huggingface");
  if (named == nullptr) return;
  const auto* text = named->as_string();
  if (text == nullptr || text->get().empty()) {
    fail_at(named, file, "model.huggingface", "model.huggingface wants a folder, a text in quotes");
  }
  if (model->contains("kind")) {
    fail_at(named, file, "model.huggingface", "model.huggingface and model.kind exclude each other",
            "Leave model.kind out: the folder's config.json says it.");
  }
  const std::string folder = text->get();
  model->erase("huggingface");
  fill(*model, open_config(folder));
  if (!model->contains("weights") && has_weights(folder)) model->insert("weights", folder);
}
}  // namespace internal

FolderInfo folder_info(const fs::path& folder) {
  internal::HuggingFaceModel model = internal::read_huggingface_model(internal::open_config(folder), 1);
  return {std::move(model.architecture), model.base, model.longest_context, internal::has_weights(folder)};
}

Job from_folder(const fs::path& folder, std::span<const std::string> overrides) {
  toml::table root = internal::default_job();
  root.get_as<toml::table>("model")->insert("huggingface", folder.string());
  const fs::path file = folder / internal::kConfig;
  internal::apply_overrides(root, overrides, internal::all_keys());
  internal::resolve_huggingface(root, file);
  return internal::read_job(root, file);
}

Job from_config(std::string_view json, const fs::path& name_for_errors) {
  toml::table root = internal::default_job();
  internal::fill(*root.get_as<toml::table>("model"), internal::JsonConfig(json, name_for_errors));
  return internal::read_job(root, name_for_errors);
}
}  // namespace cinch::job
