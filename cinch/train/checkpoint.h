#pragma once
// Everything a training is, on disk: a folder that appears whole or not at all.
//
//   RUN/checkpoints/step-200/   weights.safetensors     parameters and buffers under module names
//                               optimizer.safetensors   PARAMETER.exp_avg and so on
//                               generator.safetensors   the default generator
//                               state.json              the rest
//
// It is written under a temporary name, synced, and renamed once. Names that begin with a dot are never read.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "cinch/train/session.h"

namespace cinch::train {

/// What state.json holds.
struct CheckpointState {
  std::int64_t step = 0;       ///< Steps done.
  std::uint64_t seed = 0;
  std::string data_position{};  ///< data::Source::state().
  std::string plan{}, job{};   ///< As TOML.
  std::optional<optim::GradScalerState> grad_scaler{};  ///< The session's, of fp16 alone; save_checkpoint() fills it in.
};

/// Parameters and buffers by module path; one that is tied counts once, under its first name. Views, not copies.
std::map<std::string, at::Tensor> weights_of(const torch::nn::Module& model);

/// Writes `run_dir`/checkpoints/step-N of state.step = N; then removes all but the last two. Allocates no tensor.
/// `generator`: the default generator's state. Throws IoError; the checkpoints there are then as they were.
void save_checkpoint(const std::filesystem::path& run_dir, Session& session, const at::Tensor& generator,
                     const CheckpointState& state);

/// The one of the most steps; nothing if there is none.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run_dir);

/// state.json alone.
CheckpointState read_checkpoint_state(const std::filesystem::path& checkpoint);

/// Puts `session` and the default generator into the saved state. Allocates what the optimizer's state takes, and no more.
/// Throws DataError naming the file for one that is damaged or of another model or optimizer, IoError; weights and
/// generator are as they were then.
CheckpointState load_checkpoint(const std::filesystem::path& checkpoint, Session& session);
}  // namespace cinch::train
