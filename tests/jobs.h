#pragma once
// Small jobs of each model, and a step run real and dry, for the tests across folders.

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "cinch/data/source.h"
#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/job/job.h"
#include "cinch/plan/plan.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"
#include "cinch/train/internal/steps.h"
#include "cinch/train/session.h"
#include "cinch/train/train.h"

namespace cinch::tests {

enum class ModelKind : std::uint8_t {
  kGpt, kResNet18, kMlp, kBertMasked, kBertClassifier, kVit, kLlama, kLlamaTied, kResNet50, kUnet, kLstm
};
inline constexpr std::array kAllModels{
    ModelKind::kGpt,   ModelKind::kResNet18,  ModelKind::kMlp,      ModelKind::kBertMasked, ModelKind::kBertClassifier,
    ModelKind::kVit,   ModelKind::kLlama,     ModelKind::kLlamaTied, ModelKind::kResNet50,  ModelKind::kUnet, ModelKind::kLstm};

inline std::string name_of(ModelKind kind) {
  static constexpr std::array kNames{"Gpt", "ResNet18", "Mlp",       "BertMasked", "BertClassifier",
                                     "Vit", "Llama",    "LlamaTied", "ResNet50",   "Unet", "Lstm"};
  return kNames.at(static_cast<std::size_t>(kind));
}

inline job::ModelConfig small_model(ModelKind kind) {
  const job::BertConfig bert{.layers = 2, .hidden_size = 64, .heads = 4, .intermediate_size = 150, .context_length = 40, .vocab_size = 300};
  const job::LlamaConfig llama{.layers = 2, .hidden_size = 64, .heads = 4, .intermediate_size = 160, .key_value_heads = 2, .head_size = 16, .context_length = 48, .vocab_size = 300};
  switch (kind) {
    case ModelKind::kGpt: return job::GptConfig{.layers = 3, .hidden_size = 96, .heads = 3, .context_length = 80, .vocab_size = 300, .dropout = 0.1};
    case ModelKind::kResNet18: return job::ResNetConfig{.classes = 10, .image_size = 32};
    case ModelKind::kResNet50: return job::ResNetConfig{.depth = 50, .classes = 10, .image_size = 32};
    case ModelKind::kMlp: return job::MlpConfig{.sizes = {200, 160, 160, 10}, .dropout = 0.1};
    case ModelKind::kBertMasked: return bert;
    case ModelKind::kBertClassifier: {
      auto classifier = bert;
      classifier.classes = 5;
      return classifier;
    }
    case ModelKind::kVit: return job::VitConfig{.layers = 2, .hidden_size = 64, .heads = 4, .intermediate_size = 150, .patch_size = 8, .image_size = 32, .classes = 10, .dropout = 0.1};
    case ModelKind::kLlama: return llama;
    case ModelKind::kLlamaTied: {
      auto tied = llama;
      tied.tie_weights = true;
      return tied;
    }
    case ModelKind::kLstm: return job::LstmConfig{.layers = 2, .hidden_size = 48, .context_length = 20, .vocab_size = 300, .dropout = 0.1};
    case ModelKind::kUnet: return job::UnetConfig{.base_channels = 8, .levels = 2, .classes = 3, .image_size = 32};
  }
  throw std::logic_error("no such model");
}

inline job::Job small_job(ModelKind kind, std::int64_t batch_size) {
  job::Job job;
  job.data = job::SyntheticData{};
  job.model = small_model(kind);
  job.memory.divide_batch_norm = job::has_batch_norm(job.model);
  job.train.batch_size = batch_size;
  job.train.steps = 2;
  job.train.learning_rate = 1e-3;
  job.train.max_grad_norm = 1.0;
  job.train.evaluation_batches = 1;
  job.train.seed = 7;
  return job;
}

inline plan::Plan checkpoint_all(const job::Job& job) {
  plan::Plan plan;
  for (const auto& path : train::make_problem(job, device::find("cpu"), Bytes()).modules)
    plan.activations[path] = plan::ActivationPolicy::kCheckpoint;
  return plan;
}

/// The real counterpart of train::simulator: initialization, two steps, an evaluation.
inline trace::Trace record_run(const job::Job& job, const plan::Plan& plan, const record::RecorderOptions& options = {}) {
  trace::Trace trace, until_end;
  {
    const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
    const record::Recorder recorder(trace, options);
    const auto session = [&] {
      const trace::PhaseScope init(trace::Phase::kInit, 0);
      return std::make_unique<train::Session>(job, plan);
    }();
    for (std::uint32_t step = 1; step <= 2; ++step) train::run_step(*session, [&] { return source->next(); }, step);
    train::run_evaluation(*session, [&] { return source->next(); }, 1, 2);
    until_end = trace;
  }
  trace::classify(until_end);
  return until_end;
}
}  // namespace cinch::tests
