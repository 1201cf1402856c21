#include "cinch/techniques/lora.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <nlohmann/json.hpp>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/techniques/internal/adapter.h"
#include "cinch/techniques/internal/describe.h"

namespace cinch::techniques {

struct internal::AdaptedModule {
  std::string path;
  std::shared_ptr<torch::nn::Module> module;
  at::Tensor weight;
  std::shared_ptr<Adapter> adapter;
};

namespace {

namespace nn = torch::nn;
using internal::AdaptedModule;
using internal::Adapter;

/// `pattern` with '*' for any text.
bool globs(std::string_view pattern, std::string_view text) {
  const auto star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == text;
  if (text.substr(0, star) != pattern.substr(0, star)) return false;
  const auto rest = pattern.substr(star + 1);
  for (auto from = star; from <= text.size(); ++from) {
    if (globs(rest, text.substr(from))) return true;
  }
  return false;
}

bool matches(const std::string& pattern, const std::string& path) {
  if (pattern.find('*') != std::string::npos) return globs(pattern, path);
  return path == pattern || path.ends_with("." + pattern);
}

/// The weight of a Linear or Embedding; undefined for other modules.
at::Tensor weight_of(const nn::Module& module) {
  if (const auto* linear = module.as<nn::Linear>()) return linear->weight;
  if (const auto* embedding = module.as<nn::Embedding>()) return embedding->weight;
  return {};
}

std::vector<std::shared_ptr<AdaptedModule>> choose(const nn::Module& model, const LoraOptions& options) {
  std::vector<std::shared_ptr<AdaptedModule>> chosen;
  std::unordered_set<std::string> met;
  std::vector<std::string> paths;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto weight = weight_of(*item.value());
    if (!weight.defined()) continue;
    paths.push_back(item.key());
    bool wanted = false;
    for (const auto& target : options.targets) {
      if (!matches(target, item.key())) continue;
      wanted = true;
      met.insert(target);
    }
    if (!wanted) continue;
    chosen.push_back(
        std::make_shared<AdaptedModule>(AdaptedModule{item.key(), item.value(), std::move(weight), nullptr}));
  }
  for (const auto& target : options.targets) {
    if (met.contains(target)) continue;
    const auto near = nearest(target, paths);
    throw UsageError("LoRA: no Linear or Embedding of the model is \"" + target + "\".",
                     near.empty() ? "Name the path of one, or its end." : "Did you mean \"" + near + "\"?");
  }
  return chosen;
}

void check(const LoraOptions& options) {
  if (options.targets.empty()) throw UsageError("LoRA: no targets.", "Name the layers: {\"q_proj\", \"v_proj\"}.");
  if (options.rank < 1 || !std::isfinite(options.alpha) || !(options.dropout >= 0 && options.dropout < 1)) {
    throw UsageError("LoRA: rank " + std::to_string(options.rank) + ", alpha " + std::to_string(options.alpha) +
                         ", dropout " + std::to_string(options.dropout) + ".",
                     "The rank is at least 1, alpha finite, dropout from 0 up to 1.");
  }
}

void check(const std::vector<std::shared_ptr<AdaptedModule>>& chosen) {
  std::map<const at::TensorImpl*, std::string> owners;
  for (const auto& item : chosen) {
    if (internal::adapter_of(item->weight) != nullptr) {
      throw UsageError("LoRA: " + item->path + " has an adapter already.", "A layer has one at a time.");
    }
    const auto [owner, fresh] = owners.emplace(item->weight.unsafeGetTensorImpl(), item->path);
    if (!fresh) {
      throw UsageError("LoRA: " + item->path + " and " + owner->second + " share one weight.", "Choose one of them.");
    }
    if (!item->weight.is_floating_point() || item->weight.layout() != at::kStrided) {
      throw UsageError("LoRA: the weight of " + item->path + " is " +
                           internal::describe(item->weight.scalar_type(), item->weight.sizes()) + ".",
                       "Adapters are for dense floating-point weights.");
    }
    const auto* embedding = item->module->as<nn::Embedding>();
    if (embedding != nullptr && embedding->options.max_norm()) {
      throw UsageError("LoRA: " + item->path + " rescales its rows in place (max_norm).",
                       "A frozen embedding is not changed: leave max_norm out, or the module.");
    }
  }
}

/// `tensor` as parameter `name` of `module`; with a dot, of a child made for it.
at::Tensor add_parameter(nn::Module& module, const std::string& name, at::Tensor tensor) {
  const auto dot = name.find('.');
  if (dot == std::string::npos) return module.register_parameter(name, std::move(tensor));
  const auto child = std::make_shared<nn::Module>("LoraMatrix");
  module.register_module(name.substr(0, dot), child);
  return child->register_parameter(name.substr(dot + 1), std::move(tensor));
}

std::array<std::string, 2> names_of(const Adapter& adapter) {
  if (adapter.of_embedding) return {"lora_embedding_A", "lora_embedding_B"};
  return {"lora_A.weight", "lora_B.weight"};
}

void adapt(AdaptedModule& item, const LoraOptions& options) {
  auto adapter = std::make_shared<Adapter>();
  adapter->of_embedding = item.module->as<nn::Embedding>() != nullptr;
  adapter->scaling = options.alpha / static_cast<double>(options.rank);
  adapter->dropout = adapter->of_embedding ? 0 : options.dropout;
  adapter->module = item.module;
  const auto rows = item.weight.size(0), columns = item.weight.size(1);
  const auto make = item.weight.options().dtype(at::kFloat).requires_grad(false);
  if (adapter->of_embedding) {
    adapter->a = at::zeros({options.rank, rows}, make);
    adapter->b = at::empty({columns, options.rank}, make).normal_();
  } else {
    const double bound = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(1, columns)));  // kaiming, a = √5
    adapter->a = at::empty({options.rank, columns}, make).uniform_(-bound, bound);
    adapter->b = at::zeros({rows, options.rank}, make);
  }
  const auto names = names_of(*adapter);
  adapter->a = add_parameter(*item.module, names[0], adapter->a);
  adapter->b = add_parameter(*item.module, names[1], adapter->b);
  item.adapter = adapter;
  const auto kept = adapter->base.round(item.weight, options.base);
  internal::attach(item.weight, kept, std::move(adapter));
}

void require_attached(const AdaptedModule& item) {
  if (internal::adapter_of(item.weight) == item.adapter) return;
  throw UsageError("LoRA: " + item.path + " has lost its adapter: its weight was replaced.",
                   "Load the model's weights (torch::load, set_data) before it gets adapters, not after.");
}

}  // namespace

Lora::Lora(nn::Module& model, const LoraOptions& options) : options_(options) {
  check(options_);
  modules_ = choose(model, options_);
  check(modules_);
  for (const auto& parameter : model.parameters()) parameter.requires_grad_(false);
  const at::NoGradGuard no_grad;
  for (const auto& item : modules_) adapt(*item, options_);
}

std::vector<std::string> Lora::paths() const {
  std::vector<std::string> paths;
  for (const auto& item : modules_) paths.push_back(item->path);
  return paths;
}

std::vector<at::Tensor> Lora::parameters() const {
  std::vector<at::Tensor> parameters;
  for (const auto& item : modules_) {
    parameters.push_back(item->adapter->a);
    parameters.push_back(item->adapter->b);
  }
  return parameters;
}

void Lora::merge() {
  if (merged_) throw UsageError("LoRA: the adapters are merged already.", "unmerge() first.");
  if (options_.base != BaseWeights::kAsTheyAre) {
    throw UsageError("LoRA: adapters cannot be merged into weights that are kept rounded: most of them would be lost.",
                     "Load the adapters beside the model's own weights (BaseWeights::kAsTheyAre) and merge there.");
  }
  for (const auto& item : modules_) require_attached(*item);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> copies;
  for (const auto& item : modules_) copies.push_back(item->weight.detach().clone());
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    auto& adapter = *modules_[i]->adapter;
    auto weight = modules_[i]->weight;
    weight.add_(adapter.product().to(weight.scalar_type()), adapter.scaling);
    adapter.kept = std::move(copies[i]);
  }
  merged_ = true;
}

void Lora::unmerge() {
  if (!merged_) throw UsageError("LoRA: the adapters are not merged.", "merge() first.");
  const at::NoGradGuard no_grad;
  for (const auto& item : modules_) item->weight.copy_(std::exchange(item->adapter->kept, {}));
  merged_ = false;
}

std::map<std::string, at::Tensor> Lora::tensors() const {
  std::map<std::string, at::Tensor> tensors;
  for (const auto& item : modules_) {
    require_attached(*item);
    const auto names = names_of(*item->adapter);
    const auto path = "base_model.model." + options_.prefix + item->path + ".";
    tensors[path + names[0]] = item->adapter->a;
    tensors[path + names[1]] = item->adapter->b;
  }
  return tensors;
}

std::string Lora::peft_config() const {
  auto targets = paths();
  for (auto& path : targets) path.insert(0, options_.prefix);
  return nlohmann::json{{"peft_type", "LORA"},          {"r", options_.rank},
                        {"lora_alpha", options_.alpha}, {"lora_dropout", options_.dropout},
                        {"target_modules", targets},    {"bias", "none"},
                        {"fan_in_fan_out", false},      {"inference_mode", true}}
      .dump(2);
}

void Lora::load(const std::map<std::string, at::Tensor>& given) {
  if (merged_) throw UsageError("LoRA: adapters are loaded while others are merged.", "unmerge() first.");
  const auto own = tensors();
  for (const auto& [name, tensor] : own) {
    const auto found = given.find(name);
    if (found == given.end()) {
      throw Error("LoRA: the adapters lack " + name + ".", "They were made for other layers, or another prefix.");
    }
    const auto& from = found->second;
    if (from.sizes() != tensor.sizes() || !from.is_floating_point()) {
      throw Error("LoRA: " + name + " is " + internal::describe(from.scalar_type(), from.sizes()) + ", expected " +
                      internal::describe(tensor.scalar_type(), tensor.sizes()) + ".",
                  "The rank, or the model, is another one.");
    }
  }
  for (const auto& [name, tensor] : given) {
    if (!own.contains(name)) throw Error("LoRA: no adapter is called " + name + ".", "Choose the same targets.");
  }
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) tensor.copy_(given.at(name));
}

}  // namespace cinch::techniques
