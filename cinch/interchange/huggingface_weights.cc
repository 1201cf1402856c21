#include "cinch/interchange/huggingface_weights.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include <ATen/core/grad_mode.h>

#include "cinch/core/durable_file.h"
#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/interchange/internal/huggingface_names.h"
#include "cinch/interchange/safetensors.h"
#include "cinch/job/huggingface.h"

namespace cinch::interchange {
namespace {
namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kConfig[] = "config.json";
constexpr std::uint64_t kLargestConfig = 4u << 20, kLargestIndex = 64u << 20;
constexpr std::size_t kMostListed = 3;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostListed); ++i)
    text += (i > 0 ? ", '" : "'") + printable(names[i]) + "'";
  if (names.size() > kMostListed) text += " and " + std::to_string(names.size() - kMostListed) + " more";
  return text;
}

// --- the files

struct Source {
  at::Tensor tensor;  ///< Mapped.
  fs::path file;
  std::string name;  ///< As in the file.
};
struct Folder {
  std::map<std::string, Source> tensors;  ///< By name in the file.
  std::map<std::string, std::string> metadata;
  fs::path first_file;  ///< For what is missing altogether.
};

void add_file(const fs::path& file, Folder& folder) {
  Safetensors content = map_safetensors(file);
  folder.metadata.merge(content.metadata);
  for (auto& [name, tensor] : content.tensors) {
    const auto [place, added] = folder.tensors.try_emplace(name, Source{tensor, file, name});
    if (!added)
      throw DataError(file, 0, "'" + printable(name) + "' is in " + place->second.file.filename().string() + " too");
  }
}

Folder open_shards(const fs::path& index) {
  Folder folder{{}, {}, index};
  const auto files = parse_shard_index(read_file(index, kLargestIndex), index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : files) names.insert(file);
  for (const std::string& name : names) add_file(index.parent_path() / name, folder);
  for (const auto& [tensor, file] : files) {
    const auto found = folder.tensors.find(tensor);
    if (found == folder.tensors.end() || found->second.file.filename() != file) {
      throw DataError(index, 0, "'" + printable(tensor) + "' should be in " + file + ", and is not");
    }
  }
  for (const auto& [name, source] : folder.tensors) {
    if (!files.contains(name)) throw DataError(source.file, 0, "'" + printable(name) + "' is not in " + index.string());
  }
  return folder;
}

bool has_weights(const fs::path& folder) { return fs::exists(folder / kWeights) || fs::exists(folder / kIndex); }

Folder open_folder(const fs::path& path) {
  if (fs::exists(path / kWeights)) {
    Folder folder{{}, {}, path / kWeights};
    add_file(folder.first_file, folder);
    return folder;
  }
  return open_shards(path / kIndex);
}

// --- their names and ours

/// Weights as old as BERT call a norm's weight gamma and its bias beta.
std::string modern(std::string name) {
  for (const auto& [old, now] :
       {std::pair{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}) {
    if (name.ends_with(old)) name.replace(name.size() - std::string_view(old).size(), std::string::npos, now);
  }
  return name;
}

/// The tensors of a folder by their names without prefix.
std::map<std::string, Source> by_plain_name(const Folder& folder, const std::string& prefix) {
  std::map<std::string, Source> plain;
  for (const auto& [name, source] : folder.tensors) {
    const std::string key = modern(name.starts_with(prefix) ? name.substr(prefix.size()) : name);
    const auto [place, added] = plain.try_emplace(key, source);
    if (!added) {
      throw DataError(source.file, 0,
                      "'" + printable(name) + "' is there as '" + printable(place->second.name) + "' too");
    }
  }
  return plain;
}

std::string described(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.scalar_type() << " " << tensor.sizes();
  return text.str();
}

bool loadable(at::ScalarType from, at::ScalarType to) {
  const bool plain = from == at::kFloat || from == at::kHalf || from == at::kBFloat16 || from == at::kDouble;
  return at::isFloatingType(to) ? plain : from == to;
}

/// The part of the file's tensor that is the model's; throws if they do not fit.
at::Tensor fitting(const Source& source, const Piece& piece) {
  at::Tensor tensor = source.tensor;
  const bool more_rows = piece.positions && tensor.dim() == piece.view.dim() && tensor.size(0) > piece.view.size(0);
  if (more_rows) tensor = tensor.narrow(0, 0, piece.view.size(0));
  if (tensor.sizes() != piece.view.sizes() || !loadable(tensor.scalar_type(), piece.view.scalar_type())) {
    throw DataError(
        source.file, 0,
        "'" + printable(source.name) + "' is " + described(source.tensor) + ", the model's is " + described(piece.view),
        "Take the weights that belong to this config.json, or change the model's sizes to theirs.");
  }
  return tensor;
}

bool is_base(const fs::path& folder) { return fs::exists(folder / kConfig) && job::folder_info(folder).base; }

/// Every tensor of the files is the model's, or known to be none of it.
std::vector<std::string> check_left_over(const std::map<std::string, Source>& plain, const Names& names) {
  std::set<std::string_view> used;
  for (const Piece& piece : names.pieces) used.insert(piece.name);
  std::vector<std::string> unused, unknown;
  const fs::path* file = nullptr;
  for (const auto& [name, source] : plain) {
    if (used.contains(name)) continue;
    const bool known = std::ranges::any_of(
        names.unused, [&name = name](const std::string& pattern) { return matches(name, pattern); });
    (known ? unused : unknown).push_back(source.name);
    if (!known && file == nullptr) file = &source.file;
  }
  if (!unknown.empty()) {
    throw DataError(*file, 0, "holds " + listed(unknown) + ", which the model does not have",
                    "Take the weights that belong to this config.json, or change the model's sizes to theirs.");
  }
  return unused;
}

// --- writing

/// What to write: names as in the files, views of the model. A tensor that is not of the file's dtype is converted when
/// its shard is written.
struct Output {
  std::string name;
  at::Tensor tensor;
  at::ScalarType dtype;
  at::Tensor longer;  ///< The file's learned positions, if those are more.
  std::uint64_t bytes() const {
    return static_cast<std::uint64_t>((longer.defined() ? longer : tensor).numel()) * c10::elementSize(dtype);
  }
  at::Tensor make() const {
    if (!longer.defined()) return tensor.to(dtype);
    at::Tensor whole = longer.clone();
    whole.narrow(0, 0, tensor.size(0)).copy_(tensor);
    return whole;
  }
};

std::vector<Output> as_loaded(const Names& names, const Folder& folder) {
  std::vector<Output> outputs;
  std::map<std::string, Source> left = by_plain_name(folder, names.prefix);
  for (const Piece& piece : names.pieces) {
    const auto found = left.find(piece.name);
    if (found == left.end()) {  // A head that the base model did not have.
      outputs.push_back({piece.name, piece.view, piece.view.scalar_type(), {}});
      continue;
    }
    const at::Tensor& old = found->second.tensor;
    const bool longer = fitting(found->second, piece).sizes() != old.sizes();
    outputs.push_back({found->second.name, piece.view, old.scalar_type(), longer ? old : at::Tensor()});
    left.erase(found);
  }
  for (const auto& [name, source] : left)
    outputs.push_back({source.name, source.tensor, source.tensor.scalar_type(), {}});
  return outputs;
}

std::vector<Output> as_named(const Names& names) {
  std::vector<Output> outputs;
  for (const Piece& piece : names.pieces) {
    outputs.push_back({piece.head ? piece.name : names.prefix + piece.name, piece.view, piece.view.scalar_type(), {}});
  }
  return outputs;
}

std::vector<std::vector<Output>> in_shards(std::vector<Output> outputs, std::uint64_t shard_bytes) {
  std::ranges::sort(outputs, {}, &Output::name);
  std::vector<std::vector<Output>> shards(1);
  std::uint64_t filled = 0;
  for (Output& output : outputs) {
    const std::uint64_t bytes = output.bytes();
    if (!shards.back().empty() && filled + bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(output));
  }
  return shards;
}

std::string shard_name(std::size_t number, std::size_t count) {
  const auto five = [](std::size_t value) {
    std::string digits = std::to_string(value);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  return "model-" + five(number) + "-of-" + five(count) + ".safetensors";
}

void write_text(const fs::path& file, std::string_view text) {
  DurableFile out(file);
  out.write(text);
  out.close();
}

void write_shards(const std::vector<std::vector<Output>>& shards, const std::map<std::string, std::string>& metadata,
                  const fs::path& to) {
  nlohmann::ordered_json index{{"metadata", {{"total_size", 0}}}, {"weight_map", nlohmann::ordered_json::object()}};
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string file = shards.size() == 1 ? kWeights : shard_name(i + 1, shards.size());
    Safetensors content{{}, metadata};
    for (const Output& output : shards[i]) {
      content.tensors[output.name] = output.make();
      total += output.bytes();
      index["weight_map"][output.name] = file;
    }
    save_safetensors(to / file, content);
  }
  index["metadata"]["total_size"] = total;
  if (shards.size() > 1) write_text(to / kIndex, index.dump(2) + "\n");
}
}  // namespace

std::string describe(const LoadedWeights& loaded) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& names, const char* one, const char* several) {
    if (names.empty()) return;
    text += (text.empty() ? "" : "; ") + std::to_string(names.size()) + (names.size() == 1 ? one : several) + " (" +
            listed(names) + ")";
  };
  add(loaded.fresh, " tensor is not in the weights and begins at random", " tensors are not in the weights and begin at random");
  add(loaded.unused, " tensor of the weights is not used", " tensors of the weights are not used");
  std::ranges::replace(text, '\n', ' ');  // Names come from files.
  return text;
}

LoadedWeights load_huggingface(torch::nn::Module& model, const job::ModelConfig& config, const fs::path& folder) {
  if (!has_weights(folder)) {
    throw DataError(folder, 0, std::string("holds neither ") + kWeights + " nor " + kIndex,
                    "Leave model.weights out to begin with random weights.");
  }
  const at::NoGradGuard no_grad;
  const Names names = names_of(model, config);
  const Folder files = open_folder(folder);
  const std::map<std::string, Source> plain = by_plain_name(files, names.prefix);
  LoadedWeights loaded;
  std::vector<std::string> missing;
  std::size_t heads = 0;
  for (const Piece& piece : names.pieces) {
    heads += piece.head ? 1 : 0;
    if (plain.contains(piece.name)) continue;
    (piece.head ? loaded.fresh : missing).push_back(piece.name);
  }
  const bool new_head = loaded.fresh.size() == heads && is_base(folder);
  if (!new_head) missing.insert(missing.end(), loaded.fresh.begin(), loaded.fresh.end());
  if (!missing.empty()) {
    throw DataError(files.first_file, 0,
                    "the model's " + listed(missing) + " " + (missing.size() == 1 ? "is" : "are") + " not in it",
                    "Take the weights that belong to this config.json, or change the model's sizes to theirs.");
  }
  loaded.unused = check_left_over(plain, names);
  for (const Piece& piece : names.pieces) {  // All of it is checked before any of the model is changed.
    if (const auto found = plain.find(piece.name); found != plain.end()) fitting(found->second, piece);
  }
  for (const Piece& piece : names.pieces) {
    if (const auto found = plain.find(piece.name); found != plain.end())
      piece.view.copy_(fitting(found->second, piece));
  }
  return loaded;
}

void save_huggingface(const torch::nn::Module& model, const job::ModelConfig& config, const fs::path& from,
                      const fs::path& to, std::uint64_t shard_bytes) {
  const at::NoGradGuard no_grad;
  std::error_code error;
  fs::create_directories(to, error);
  if (error) throw IoError(to, "create", error.value());
  if (has_weights(to)) throw UsageError(to.string() + " already holds weights", "Name another folder.");
  const Names names = names_of(model, config);
  const Folder files = has_weights(from) ? open_folder(from) : Folder{{}, {{"format", "pt"}}, {}};
  write_shards(in_shards(files.tensors.empty() ? as_named(names) : as_loaded(names, files), shard_bytes),
               files.metadata, to);
  if (fs::exists(from / kConfig)) write_text(to / kConfig, read_file(from / kConfig, kLargestConfig));
  sync_folder(to);
}
}  // namespace cinch::interchange
