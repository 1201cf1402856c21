#pragma once
// Jobs of a few milliseconds, and a folder that is gone after the test.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "cinch/job/job.h"

namespace cinch::train {

/// A fresh folder; removed when destroyed.
class TestFolder {
 public:
  TestFolder() : path_(std::filesystem::path(::testing::TempDir()) / ("train." + std::to_string(::getpid()) + unique())) {
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  static std::string unique() {
    static int count = 0;
    return "." + std::to_string(count++);
  }
  std::filesystem::path path_;
};

inline std::string bytes_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

/// Six steps of a small MLP with dropout, on synthetic data, under AdamW; saves every second step.
inline job::Job small_mlp(const std::filesystem::path& run_dir = {}) {
  job::Job job;
  job.model = job::MlpConfig{.sizes = {6, 8, 3}, .dropout = 0.2};
  job.data = job::SyntheticData{};
  job.train.batch_size = 4;
  job.train.steps = 6;
  job.train.learning_rate = 1e-2;
  job.train.evaluation_batches = 2;
  job.train.save_every = 2;
  job.train.run_dir = run_dir.string();
  job.train.seed = 3;
  job.train.threads = 1;
  return job;
}

/// The same of a small GPT with dropout and clipping, on text in `folder`.
inline job::Job small_gpt(const TestFolder& folder, const std::filesystem::path& run_dir = {}) {
  job::Job job = small_mlp(run_dir);
  std::string text;
  for (int i = 0; i < 400; ++i) text += "int value_" + std::to_string(i % 7) + " = " + std::to_string(i % 10) + ";\n";
  std::ofstream(folder / "corpus.txt") << text;
  job.model = job::GptConfig{.layers = 2, .hidden_size = 16, .heads = 2, .context_length = 12, .dropout = 0.1};
  job.data = job::TextData{.path = {(folder / "corpus.txt").string()}, .held_out = 0.1};
  job.train.max_grad_norm = 1.0;
  job.train.schedule = job::Schedule::kCosine;
  job.train.warmup_steps = 2;
  return job;
}
}  // namespace cinch::train
