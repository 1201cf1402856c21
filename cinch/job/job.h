#pragma once
// A training job as its TOML file states it, checked as a whole: a Job that exists can be built.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cinch/core/bytes.h"

namespace cinch::job {

/// Of a feed-forward: x times the normal distribution's Φ(x), by the error function or by a tanh that nearly is
/// (GPT-2's).
enum class Activation : std::uint8_t { kGelu, kGeluTanh };
/// Decoder-only transformer: pre-norm, learned positions, causal attention.
struct GptConfig {
  std::int64_t layers = 0, hidden_size = 0, heads = 0, context_length = 0, vocab_size = 256;
  double dropout = 0;            ///< Embeddings and residual branches.
  double attention_dropout = 0;  ///< Above 0 the CPU uses the unfused attention: far more memory.
  bool tie_weights = true;
  Activation activation = Activation::kGelu;
};
/// Residual network (1512.03385): 18 and 34 of basic blocks; 50, 101 and 152 of bottlenecks.
struct ResNetConfig {
  std::int64_t depth = 18;                                 ///< 18, 34, 50, 101 or 152.
  std::int64_t classes = 0, channels = 3, image_size = 0;  ///< image_size: height and width, pixels.
};
struct MlpConfig {
  std::vector<std::int64_t> sizes;  ///< Inputs, hidden layers, classes: at least two.
  double dropout = 0;
};
/// Encoder-only transformer (1810.04805): post-norm, learned positions, token types, GELU. Trained to classify
/// sequences, or, with classes = 0, on masked language modelling with a head tied to the embedding.
struct BertConfig {
  std::int64_t layers = 0, hidden_size = 0, heads = 0,
               intermediate_size = 0;  ///< intermediate_size unsaid: 4 × hidden_size.
  std::int64_t context_length = 512, vocab_size = 30522, token_types = 2, classes = 0;
  /// The token that fills short rows up: its embedding begins as 0 and gets no gradient as an input's. -1: there is none.
  std::int64_t padding_token = -1;
  double dropout = 0.1, attention_dropout = 0.1;
  double norm_eps = 1e-12;
};
/// Vision transformer (2010.11929): pre-norm, a class token, learned positions.
struct VitConfig {
  std::int64_t layers = 0, hidden_size = 0, heads = 0,
               intermediate_size = 0;              ///< intermediate_size unsaid: 4 × hidden_size.
  std::int64_t patch_size = 16, image_size = 224;  ///< Pixels; patch_size divides image_size.
  std::int64_t channels = 3, classes = 0;
  double dropout = 0, attention_dropout = 0;
  double norm_eps = 1e-12;
};
/// Decoder-only transformer (2302.13971): RMSNorm, rotary positions, grouped-query attention, gated feed-forward.
struct LlamaConfig {
  std::int64_t layers = 0, hidden_size = 0, heads = 0, intermediate_size = 0;
  std::int64_t key_value_heads = 0;  ///< Divides heads; unsaid: as many.
  std::int64_t head_size = 0;        ///< Even; unsaid: hidden_size / heads.
  std::int64_t context_length = 0, vocab_size = 0;
  std::int64_t padding_token = -1;  ///< As BERT's.
  double rope_theta = 10000, norm_eps = 1e-5;
  bool tie_weights = false;
};
/// Encoder and decoder with skip connections (1505.04597), padded so that sizes stay; a class for every pixel.
struct UnetConfig {
  std::int64_t base_channels = 64, levels = 4;  ///< image_size is a multiple of 2^levels.
  std::int64_t classes = 0, channels = 3, image_size = 0;
};
/// A language model of LSTM layers (1409.2329).
struct LstmConfig {
  std::int64_t layers = 0, hidden_size = 0;
  std::int64_t context_length = 0, vocab_size = 256;
  double dropout = 0;  ///< Of the embedding's and every layer's outputs.
  bool tie_weights = false;
};
using ModelConfig =
    std::variant<GptConfig, ResNetConfig, MlpConfig, BertConfig, VitConfig, LlamaConfig, UnetConfig, LstmConfig>;

/// Files read as bytes; gpt and llama with vocab_size ≥ 256 only. Paths may hold * and ? in their last part, or be a
/// folder (all files below it). Relative paths are relative to the working directory.
struct TextData {
  std::vector<std::string> path;
  double held_out = 0.05;  ///< The last share of the bytes: evaluation, never trained on.
};
/// Rows "label,pixel,pixel,…" without quotes, pixels 0 to 255 (scaled to 0..1); resnet, vit and mlp only.
struct CsvData {
  std::vector<std::string> path;
  double held_out = 0.05;  ///< The last share of the rows.
};
/// Random inputs and targets of the model's shape, from the seed.
struct SyntheticData {};
using DataConfig = std::variant<TextData, CsvData, SyntheticData>;

/// kAdam adds weight decay to the gradient (L2), the others to the weight.
enum class OptimizerKind : std::uint8_t { kAdamW, kSgd, kAdam, kAdafactor, kLion };
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< adamw, adam; betas of lion, there 0.99 if unsaid.
  double momentum = 0;                            ///< sgd
  double weight_decay = 0;
};
/// Of the arithmetic: kBf16 and kFp16 are autocast, weights and optimizer state stay float32. kFp16 scales the loss.
enum class Precision : std::uint8_t { kFp32, kBf16, kFp16 };
enum class Schedule : std::uint8_t { kConstant, kLinear, kCosine };

struct TrainConfig {
  std::int64_t batch_size = 0, steps = 0;
  OptimizerConfig optimizer;
  double learning_rate = 0;
  Schedule schedule = Schedule::kConstant;  ///< After the warm-up: linear and cosine fall to 0 at the last step.
  std::int64_t warmup_steps = 0;
  std::optional<double> max_grad_norm;
  Precision precision = Precision::kFp32;
  std::int64_t evaluate_every = 0;  ///< 0: only at the end, if the data holds some out.
  std::int64_t evaluation_batches = 4;
  std::int64_t save_every = 0;  ///< 0: only at the end.
  std::string run_dir;          ///< Empty: nothing is written.
  std::uint64_t seed = 0;
  int threads = 0;  ///< 0: all cores.
};
struct MemoryConfig {
  std::optional<Bytes> budget;
  /// Keys of plan::techniques() that planners use if they are told to alone: lossy ones, and on the CPU those that put
  /// tensors into host memory, its own. Others they use anyway.
  std::set<std::string> allow;
  bool divide_batch_norm = false;  ///< Micro-batching may be planned though batch norm makes results depend on it.
  /// Steps take their tensors from one block, each at a planned place: same results, less time. Takes at most 5 % more
  /// from the system than is live at the peak (the budget counts what is live), or serves nothing.
  bool arena = true;
};

struct Job {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  MemoryConfig memory;
  std::string
      weights;  ///< Folder with weights as Hugging Face names them, which training begins with; empty: random ones.
};

/// Reads a job. `overrides` are "train.steps=10" (from --set) and win. Throws ConfigError: file, line, key, the nearest
/// known key; ranges and relations (heads divide hidden_size) are checked here. Touches no file but this one, and the
/// config.json of the folder that model.huggingface names.
Job load(const std::filesystem::path& file, std::span<const std::string> overrides = {});
Job parse(std::string_view toml, const std::filesystem::path& name_for_errors,
          std::span<const std::string> overrides = {});

/// The whole job as TOML, every key written out: parse(to_toml(job)) states the same job. What a run folder keeps.
std::string to_toml(const Job& job);

/// The rate of step `step` (from 1) under the job's schedule. With w warm-up steps of T: rate × step/w up to step w (so
/// the full rate at step w); then with p = (step − w)/(T − w): constant rate, linear rate × (1 − p), cosine
/// rate × (1 + cos(π p))/2. The last two are exactly 0 at step T and after it.
double learning_rate_at(const TrainConfig& train, std::int64_t step);
/// True for a model whose results depend on how a batch is divided (batch norm).
bool has_batch_norm(const ModelConfig& model);
/// Whether a planner may micro-batch this job: no batch norm, or the job allows it (memory.divide_batch_norm).
bool may_divide_batch(const Job& job);
}  // namespace cinch::job
