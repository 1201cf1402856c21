#include "cinch/train/checkpoint.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "cinch/core/durable_file.h"
#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/core/version.h"
#include "cinch/interchange/safetensors.h"

namespace cinch::train {
namespace {
namespace fs = std::filesystem;
using interchange::Safetensors;
using Tensors = std::map<std::string, at::Tensor>;

constexpr int kFormatVersion = 1;
constexpr std::size_t kKept = 2;
constexpr char kWeights[] = "weights.safetensors";
constexpr char kOptimizer[] = "optimizer.safetensors";
constexpr char kGenerator[] = "generator.safetensors";
constexpr char kState[] = "state.json";
constexpr char kDamagedHint[] = "Remove this checkpoint's folder to resume from the one before it.";

fs::path checkpoints_of(const fs::path& run_dir) { return run_dir / "checkpoints"; }

/// The N of "step-N".
std::optional<std::int64_t> step_in_name(const fs::path& folder) {
  const std::string name = folder.filename().string();
  constexpr std::string_view prefix = "step-";
  std::int64_t step = 0;
  if (!name.starts_with(prefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0) return std::nullopt;
  return step;
}

/// Whole checkpoints by step; none if the folder is not there.
std::map<std::int64_t, fs::path> list_checkpoints(const fs::path& run_dir) {
  std::map<std::int64_t, fs::path> found;
  std::error_code error;
  fs::directory_iterator entry(checkpoints_of(run_dir), error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_in_name(entry->path())) found[*step] = entry->path();
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw IoError(checkpoints_of(run_dir), "list", error.value());
  }
  return found;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError(folder, "create", error.value());
}

/// Removes what a killed process left. Only names of ours: ".step-N.tmp".
void sweep(const fs::path& checkpoints) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".step-") && name.ends_with(".tmp")) fs::remove_all(entry.path(), error);
  }
}

fs::path temporary_for(const fs::path& checkpoint) {
  return checkpoint.parent_path() / std::string(".").append(checkpoint.filename().string()).append(".tmp");
}

/// A checkpoint loses its name first: half removed, it must not look whole.
void prune(const fs::path& run_dir) {
  std::map<std::int64_t, fs::path> all = list_checkpoints(run_dir);
  while (all.size() > kKept) {
    const fs::path oldest = all.begin()->second, temporary = temporary_for(oldest);
    rename_path(oldest, temporary);
    std::error_code ignored;  // What stays is swept by the next save.
    fs::remove_all(temporary, ignored);
    all.erase(all.begin());
  }
}

void write_state(const fs::path& file, const CheckpointState& state) {
  nlohmann::ordered_json document{{"version", kFormatVersion},
                                        {"step", state.step},
                                        {"seed", state.seed},
                                        {"data_position", state.data_position},
                                        {"plan", state.plan},
                                        {"job", state.job},
                                        {"cinch", kVersion},
                                        {"libtorch", TORCH_VERSION}};
  if (state.grad_scaler)
    document["grad_scaler"] = {{"scale", state.grad_scaler->scale}, {"clean_updates", state.grad_scaler->clean_updates}};
  DurableFile out(file);
  out.write(document.dump(2) + "\n");
  out.close();
}

void check_same(const fs::path& file, const std::string& name, const at::Tensor& saved, const at::Tensor& live) {
  if (saved.scalar_type() == live.scalar_type() && saved.sizes() == live.sizes()) return;
  std::ostringstream text;
  text << "'" << name << "' is " << saved.scalar_type() << " " << saved.sizes() << ", the model's is "
       << live.scalar_type() << " " << live.sizes();
  throw DataError(file, 0, text.str(), "Resume with the model of the run that was saved.");
}

void check_weights(const fs::path& file, const Tensors& saved, const Tensors& live) {
  for (const auto& [name, tensor] : live) {
    const auto found = saved.find(name);
    if (found == saved.end()) throw DataError(file, 0, "the model's '" + name + "' is not in it");
    check_same(file, name, found->second, tensor);
  }
  for (const auto& [name, tensor] : saved) {
    if (!live.contains(name)) throw DataError(file, 0, "it holds '" + name + "', which the model does not have");
  }
}

at::Tensor generator_in(const fs::path& file, const Tensors& saved) {
  const auto found = saved.find("cpu");
  if (saved.size() != 1 || found == saved.end() || found->second.scalar_type() != at::kByte) {
    throw DataError(file, 0, "it does not hold the state of a generator", kDamagedHint);
  }
  return found->second;
}

void set_generator(const fs::path& file, const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  try {
    generator.set_state(state);
  } catch (const c10::Error& error) {
    throw DataError(file, 0, std::string("the generator refuses it: ") + error.what_without_backtrace(), kDamagedHint);
  }
}
/// A checkpoint of another precision has none: then the scale begins anew.
void load_scaler(const fs::path& file, const CheckpointState& state, Session& session) {
  if (session.grad_scaler() == nullptr || !state.grad_scaler) return;
  try {
    session.grad_scaler()->load_state(*state.grad_scaler);
  } catch (const DataError& error) {
    throw DataError(file, 0, error.what(), kDamagedHint);
  }
}
}  // namespace

Tensors weights_of(const torch::nn::Module& model) {
  Tensors weights;
  std::set<const c10::TensorImpl*> seen;
  const auto keep = [&](const auto& named) {
    for (const auto& item : named) {
      const at::Tensor& tensor = item.value();
      if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) weights[item.key()] = tensor;
    }
  };
  keep(model.named_parameters());
  keep(model.named_buffers());
  return weights;
}

void save_checkpoint(const fs::path& run_dir, Session& session, const at::Tensor& generator,
                     const CheckpointState& state) {
  const fs::path checkpoints = checkpoints_of(run_dir);
  make_folder(checkpoints);
  sync_folder(run_dir);
  sweep(checkpoints);
  const fs::path folder = checkpoints / ("step-" + std::to_string(state.step)), temporary = temporary_for(folder);
  make_folder(temporary);
  try {
    const std::map<std::string, std::string> metadata{{"format", "pt"}};  // As PyTorch's own readers expect.
    interchange::save_safetensors(temporary / kWeights, {weights_of(session.model()), metadata});
    interchange::save_safetensors(temporary / kOptimizer, {session.optimizer().state(), metadata});
    interchange::save_safetensors(temporary / kGenerator, {{{"cpu", generator}}, {}});
    CheckpointState whole = state;
    if (const auto* scaler = session.grad_scaler()) whole.grad_scaler = scaler->state();
    write_state(temporary / kState, whole);
    sync_folder(temporary);
    rename_path(temporary, folder);
    sync_folder(checkpoints);
  } catch (...) {
    std::error_code ignored;  // A full disk gets its room back.
    fs::remove_all(temporary, ignored);
    throw;
  }
  prune(run_dir);
}

std::optional<fs::path> newest_checkpoint(const fs::path& run_dir) {
  const auto all = list_checkpoints(run_dir);
  if (all.empty()) return std::nullopt;
  return all.rbegin()->second;
}

CheckpointState read_checkpoint_state(const fs::path& checkpoint) {
  const fs::path file = checkpoint / kState;
  try {
    const nlohmann::json document = nlohmann::json::parse(read_file(file));
    const int version = document.at("version").get<int>();
    if (version != kFormatVersion) {
      throw DataError(file, 0, "a checkpoint of format " + std::to_string(version) + "; this cinch reads format " +
                                   std::to_string(kFormatVersion));
    }
    CheckpointState state{document.at("step").get<std::int64_t>(), document.at("seed").get<std::uint64_t>(),
                          document.at("data_position").get<std::string>(), document.at("plan").get<std::string>(),
                          document.at("job").get<std::string>()};
    if (const auto scaler = document.find("grad_scaler"); scaler != document.end())
      state.grad_scaler = {scaler->at("scale").get<double>(), scaler->at("clean_updates").get<std::int64_t>()};
    if (step_in_name(checkpoint) != state.step) {
      throw DataError(file, 0, "it is of step " + std::to_string(state.step) + ", not what its folder's name says",
                      kDamagedHint);
    }
    return state;
  } catch (const nlohmann::json::parse_error& error) {
    throw DataError(file, error.byte, "it is not JSON", kDamagedHint);
  } catch (const nlohmann::json::exception& error) {
    throw DataError(file, 0, std::string("a key is missing or of the wrong type: ") + error.what(), kDamagedHint);
  }
}

CheckpointState load_checkpoint(const fs::path& checkpoint, Session& session) {
  const CheckpointState state = read_checkpoint_state(checkpoint);
  // Mapped, not read: while the optimizer copies its state, there must not be a third one of it.
  const Safetensors weights = interchange::map_safetensors(checkpoint / kWeights);
  const Safetensors optimizer = interchange::map_safetensors(checkpoint / kOptimizer);
  const Safetensors generator = interchange::map_safetensors(checkpoint / kGenerator);
  const at::Tensor generator_state = generator_in(checkpoint / kGenerator, generator.tensors);
  Tensors live = weights_of(session.model());
  check_weights(checkpoint / kWeights, weights.tensors, live);
  load_scaler(checkpoint / kState, state, session);
  try {
    if (!optimizer.tensors.empty()) session.optimizer().load_state(optimizer.tensors);
  } catch (const DataError& error) {
    throw DataError(checkpoint / kOptimizer, 0, error.what(), "Resume with the optimizer of the run that was saved.");
  }
  set_generator(checkpoint / kGenerator, generator_state);
  const at::NoGradGuard no_grad;
  for (auto& [name, tensor] : live) tensor.copy_(weights.tensors.at(name));
  session.set_steps_done(state.step);
  return state;
}
}  // namespace cinch::train
