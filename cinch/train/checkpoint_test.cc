#include "cinch/train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>

#include <cerrno>

#include "cinch/core/durable_file.h"
#include "cinch/core/error.h"
#include "cinch/data/source.h"
#include "cinch/interchange/safetensors.h"
#include "cinch/record/recorder.h"
#include "cinch/train/internal/jobs_for_test.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

class CheckpointTest : public ::testing::Test {
 protected:
  ~CheckpointTest() override { io_hook() = nullptr; }

  /// A session that has done `steps` steps.
  Session trained(int steps) const {
    Session session(job_, {});
    const auto source = data::open(job_.data, job_.model, job_.train.batch_size, job_.train.seed);
    for (int i = 0; i < steps; ++i) session.step(source->next());
    return session;
  }
  void save(Session& session, std::int64_t step) const {
    save_checkpoint(run_, session, generator_state(), {step, 7, "position", "plan", "job \"quoted\"\n"});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(run_ / "checkpoints")) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  /// What loading says of the newest checkpoint after `damage` was done to it; the session must be as before.
  std::string refusal(const std::function<void(const fs::path&)>& damage) const {
    fs::remove_all(run_);
    fs::create_directories(run_);
    Session session = trained(2);
    save(session, 2);
    const fs::path checkpoint = *newest_checkpoint(run_);
    damage(checkpoint);
    Session other = trained(1);
    std::map<std::string, at::Tensor> before;
    for (const auto& [name, tensor] : weights_of(other.model())) before[name] = tensor.clone();
    const at::Tensor generator = generator_state();
    std::string what = "accepted";
    try {
      load_checkpoint(checkpoint, other);
    } catch (const DataError& error) {
      what = error.what();
    } catch (const IoError& error) {
      what = error.what();
    }
    if (what != "accepted") {
      for (const auto& [name, tensor] : weights_of(other.model())) EXPECT_TRUE(at::equal(tensor, before[name])) << what;
      EXPECT_TRUE(at::equal(generator, generator_state())) << what;
      EXPECT_EQ(other.steps_done(), 1) << what;
    }
    return what;
  }

  TestFolder folder_;
  fs::path run_ = folder_ / "run";
  job::Job job_ = small_mlp();

  CheckpointTest() {
    set_threads(job_.train.threads);  // These tensors are too small for two.
    fs::create_directories(run_);
  }
};

TEST_F(CheckpointTest, EverythingComesBack) {
  Session session = trained(3);
  at::rand({5});
  const at::Tensor generator = generator_state();
  save(session, 3);
  at::rand({5});
  Session other(job_, {});
  const CheckpointState state = load_checkpoint(run_ / "checkpoints" / "step-3", other);
  EXPECT_EQ(state.step, 3);
  EXPECT_EQ(state.seed, 7u);
  EXPECT_EQ(state.data_position, "position");
  EXPECT_EQ(state.plan, "plan");
  EXPECT_EQ(state.job, "job \"quoted\"\n");
  EXPECT_EQ(other.steps_done(), 3);
  EXPECT_TRUE(at::equal(generator_state(), generator));
  for (const auto& [name, tensor] : weights_of(session.model())) {
    EXPECT_TRUE(at::equal(weights_of(other.model()).at(name), tensor)) << name;
  }
  for (const auto& [name, tensor] : session.optimizer().state()) {
    EXPECT_TRUE(at::equal(other.optimizer().state().at(name), tensor)) << name;
  }
}

TEST_F(CheckpointTest, WeightsHaveModuleNamesAndCountOnceIfTied) {
  job_ = small_gpt(folder_);
  Session session(job_, {});
  save(session, 0);
  const auto read = interchange::load_safetensors(run_ / "checkpoints" / "step-0" / "weights.safetensors");
  std::set<const void*> storages;
  for (const auto& [name, tensor] : weights_of(session.model())) {
    EXPECT_TRUE(storages.insert(tensor.const_data_ptr()).second) << name;
    EXPECT_TRUE(at::equal(read.tensors.at(name), tensor)) << name;
  }
  EXPECT_EQ(read.tensors.size(), storages.size());
}

TEST_F(CheckpointTest, TheLastTwoAreKept) {
  EXPECT_EQ(newest_checkpoint(run_), std::nullopt);
  Session session = trained(1);
  for (const int step : {8, 9, 10, 11}) save(session, step);
  EXPECT_THAT(names(), ElementsAre("step-10", "step-11"));
  EXPECT_EQ(newest_checkpoint(run_), run_ / "checkpoints" / "step-11");
}

TEST_F(CheckpointTest, TemporaryNamesAreNeverReadAndSwept) {
  Session session = trained(1);
  save(session, 1);
  fs::create_directories(run_ / "checkpoints" / ".step-5.tmp" / "x");
  fs::create_directories(run_ / "checkpoints" / "step-x");
  EXPECT_EQ(newest_checkpoint(run_), run_ / "checkpoints" / "step-1");
  save(session, 2);
  EXPECT_THAT(names(), ElementsAre("step-1", "step-2", "step-x"));  // What is not ours stays.
}

TEST_F(CheckpointTest, DamagedOnesAreRefusedByTheNameOfTheFile) {
  EXPECT_EQ(refusal([](const fs::path&) {}), "accepted");
  const auto state_of = [](const std::string& text) {
    return [text](const fs::path& checkpoint) { std::ofstream(checkpoint / "state.json") << text; };
  };
  EXPECT_THAT(refusal(state_of("{\"version\":1")), HasSubstr("state.json, byte 1"));
  EXPECT_THAT(refusal(state_of("")), HasSubstr("not JSON"));
  EXPECT_THAT(refusal(state_of("[]")), HasSubstr("missing or of the wrong type"));
  EXPECT_THAT(refusal(state_of("{\"version\":1}")), HasSubstr("missing or of the wrong type"));
  EXPECT_THAT(refusal(state_of("{\"version\":2}")), HasSubstr("format 2"));
  EXPECT_THAT(refusal(state_of(R"({"version":1,"step":3,"seed":1,"data_position":"","plan":"","job":""})")),
              HasSubstr("of step 3"));
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "generator.safetensors"}) {
    EXPECT_THAT(refusal([&](const fs::path& folder) { fs::resize_file(folder / name, fs::file_size(folder / name) - 1); }),
                HasSubstr(name));
    EXPECT_THAT(refusal([&](const fs::path& folder) { fs::remove(folder / name); }), HasSubstr(name));
    EXPECT_THAT(refusal([&](const fs::path& folder) { interchange::save_safetensors(folder / name, {{{"x", at::zeros(3)}}, {}}); }),
                HasSubstr(name));
  }
  EXPECT_THAT(refusal([](const fs::path& folder) {
                auto content = interchange::load_safetensors(folder / "weights.safetensors");
                auto& tensor = content.tensors.begin()->second;
                tensor = at::zeros({tensor.size(0) + 1});
                interchange::save_safetensors(folder / "weights.safetensors", content);
              }),
              HasSubstr("the model's is"));
  EXPECT_THAT(refusal([](const fs::path& folder) {
                interchange::save_safetensors(folder / "generator.safetensors",
                                              {{{"cpu", at::zeros({100}, at::kByte)}}, {}});
              }),
              HasSubstr("generator refuses"));
}

TEST_F(CheckpointTest, SavingMakesNoTensorAndLoadingOnlyTheOptimizersState) {
  Session session = trained(1);
  const at::Tensor generator = generator_state();
  {
    trace::PeakMeter meter;
    record::Recorder recorder(meter);
    save_checkpoint(run_, session, generator, {.step = 1});
    EXPECT_EQ(meter.peak().count(), 0);
  }
  std::int64_t state_bytes = 0;
  for (const auto& [name, tensor] : session.optimizer().state()) state_bytes += static_cast<std::int64_t>(tensor.nbytes());
  Session other(job_, {});
  trace::PeakMeter meter;
  record::Recorder recorder(meter);
  load_checkpoint(*newest_checkpoint(run_), other);
  EXPECT_EQ(meter.peak().count(), state_bytes);
}

TEST_F(CheckpointTest, ADiskThatFillsLeavesTheOldCheckpointAndNoRubbish) {
  Session session = trained(2);
  save(session, 2);
  const std::string old = bytes_of(run_ / "checkpoints" / "step-2" / "weights.safetensors");
  session.step(data::open(job_.data, job_.model, job_.train.batch_size, 9)->next());
  int moments = 0, failures = 0;
  for (int fail_at = 0;; ++fail_at) {
    moments = 0;
    io_hook() = [&](std::string_view) {
      if (moments++ == fail_at) throw IoError("the disk", "write", ENOSPC);
    };
    try {
      save(session, 3);
      break;  // Past the last moment.
    } catch (const IoError& error) {
      ++failures;
      EXPECT_THAT(error.hint(), HasSubstr("free some space"));
    }
    io_hook() = nullptr;
    EXPECT_EQ(bytes_of(run_ / "checkpoints" / "step-2" / "weights.safetensors"), old);
    // Renamed already: then it is whole.
    const bool whole = fs::exists(run_ / "checkpoints" / "step-3");
    EXPECT_EQ(names(), whole ? std::vector<std::string>({"step-2", "step-3"}) : std::vector<std::string>({"step-2"}));
    Session other(job_, {});
    load_checkpoint(*newest_checkpoint(run_), other);
    fs::remove_all(run_ / "checkpoints" / "step-3");
  }
  EXPECT_EQ(failures, moments);
  EXPECT_GT(failures, 30);
}

TEST_F(CheckpointTest, AFolderThatCannotBeIsAnIoError) {
  Session session = trained(1);
  fs::remove_all(run_);
  std::ofstream(run_) << "a file";
  EXPECT_THROW(save(session, 1), IoError);
}
}  // namespace
}  // namespace cinch::train
