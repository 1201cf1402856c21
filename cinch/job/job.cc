#include "cinch/job/job.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/job/internal/keys.h"
#include "cinch/job/internal/overrides.h"
#include "cinch/job/internal/read.h"
#include "cinch/job/internal/resolve.h"

namespace cinch::job {
namespace {
constexpr std::uint64_t kLargestFile = 1u << 20;

toml::table parse_toml(std::string_view text, const std::filesystem::path& name) {
  if (const int line = line_of_deep_key(text))
    throw ConfigError(name, line, "", "a key has more than 100 parts", "Keys are a section and a name: train.steps.");
  try {
    return toml::parse(text, name.string());
  } catch (const toml::parse_error& error) {
    throw ConfigError(name, static_cast<int>(error.source().begin.line), "",
                      fmt::format("this is no TOML: {}", error.description()),
                      "Texts need quotes, sections are written [train], keys as steps = 10.");
  }
}
}  // namespace

Job parse(std::string_view toml, const std::filesystem::path& name_for_errors, std::span<const std::string> overrides) {
  toml::table root = parse_toml(toml, name_for_errors);
  internal::apply_overrides(root, overrides, internal::all_keys());
  internal::resolve_huggingface(root, name_for_errors);
  return internal::read_job(root, name_for_errors);
}

Job load(const std::filesystem::path& file, std::span<const std::string> overrides) {
  std::string text;
  try {
    text = read_file(file, kLargestFile);
  } catch (const Error& error) {
    throw ConfigError(file, 0, "", error.what(), error.hint());
  }
  return parse(text, file, overrides);
}

double learning_rate_at(const TrainConfig& train, std::int64_t step) {
  const double rate = train.learning_rate;
  if (step <= train.warmup_steps)
    return rate * static_cast<double>(std::max<std::int64_t>(step, 0)) / train.warmup_steps;
  if (train.schedule == Schedule::kConstant) return rate;
  const double falling = static_cast<double>(std::max<std::int64_t>(train.steps - train.warmup_steps, 1));
  const double done = std::min(1.0, static_cast<double>(step - train.warmup_steps) / falling);
  if (train.schedule == Schedule::kLinear) return rate * (1 - done);
  return done == 1 ? 0 : rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

bool has_batch_norm(const ModelConfig& model) {
  return std::holds_alternative<ResNetConfig>(model) || std::holds_alternative<UnetConfig>(model);
}

bool may_divide_batch(const Job& job) { return !has_batch_norm(job.model) || job.memory.divide_batch_norm; }
}  // namespace cinch::job
