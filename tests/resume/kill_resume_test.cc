// A training killed with SIGKILL and resumed ends with the same bits as one that was left alone: killed before and after
// every write, sync and rename of its checkpoints, and at random moments. CINCH_SOAK: how many times as many of those; and
// with it no moment of the others is passed over.
//
// Each training runs in a child process. This process itself computes nothing with tensors, so that it may fork.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cinch/core/durable_file.h"
#include "cinch/core/error.h"
#include "cinch/train/checkpoint.h"
#include "cinch/train/internal/jobs_for_test.h"
#include "cinch/train/train.h"

namespace cinch::train {
namespace {
namespace fs = std::filesystem;

constexpr int kNever = -1;
constexpr int kFailed = 17;

/// 0 unless asked for.
int soak() {
  const char* rounds = std::getenv("CINCH_SOAK");
  return rounds != nullptr ? std::atoi(rounds) : 0;
}

/// Trains `job` in a child, on from its newest checkpoint. The child kills itself at its moment `kill_at` of input and
/// output; `*moments` receives how many there were, when it was not killed. Returns waitpid's status.
class Child {
 public:
  Child(const job::Job& job, int kill_at) {
    if (::pipe(pipe_) != 0) throw std::runtime_error("pipe");
    process_ = ::fork();
    if (process_ == 0) run(job, kill_at);
    ::close(pipe_[1]);
  }
  ~Child() { ::close(pipe_[0]); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() const { ::kill(process_, SIGKILL); }
  /// True if it finished, false if it was killed; fails the test for all else.
  bool wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(process_, &status, 0), process_);
    if (WIFSIGNALED(status)) {
      EXPECT_EQ(WTERMSIG(status), SIGKILL);
      return false;
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "exit status " << WEXITSTATUS(status);
    EXPECT_EQ(::read(pipe_[0], &moments, sizeof moments), static_cast<::ssize_t>(sizeof moments));
    return true;
  }

  int moments = 0;  ///< Of input and output, in a child that finished.

 private:
  [[noreturn]] void run(const job::Job& job, int kill_at) {
    int count = 0;
    io_hook() = [&](std::string_view) {
      if (count++ == kill_at) ::raise(SIGKILL);
    };
    try {
      fit(job, {}, {.resume = newest_checkpoint(job.train.run_dir).has_value()});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(kFailed);
    }
    const bool told = ::write(pipe_[1], &count, sizeof count) == static_cast<::ssize_t>(sizeof count);
    ::_exit(told ? 0 : kFailed);
  }

  int pipe_[2];
  ::pid_t process_;
};

/// Everything a finished run leaves that does not depend on the clock.
std::string outcome(const fs::path& run, std::int64_t step) {
  const fs::path folder = run / "checkpoints" / ("step-" + std::to_string(step));
  std::string all;
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "generator.safetensors"}) {
    all += bytes_of(folder / name);
  }
  all += nlohmann::json::parse(bytes_of(folder / "state.json")).at("data_position").get<std::string>();
  std::istringstream log(bytes_of(run / "log.jsonl"));
  for (std::string text; std::getline(log, text);) {
    const nlohmann::json line = nlohmann::json::parse(text);
    all += line.at("step").dump() + " " + line.value("loss", nlohmann::json()).dump() + " " +
           line.value("evaluation", nlohmann::json()).dump() + "\n";
  }
  return all;
}

class KillResume : public ::testing::TestWithParam<bool> {
 protected:
  job::Job job_in(const std::string& run) const {
    return GetParam() ? small_gpt(folder_, folder_ / run) : small_mlp(folder_ / run);
  }
  TestFolder folder_;
};

TEST_P(KillResume, AtEveryWriteSyncAndRename) {
  Child straight(job_in("straight"), kNever);
  ASSERT_TRUE(straight.wait());
  const std::string expected = outcome(folder_ / "straight", 6);
  ASSERT_GT(straight.moments, 100);
  // A GPT's many tensors make many like moments: some of them stand for all.
  const int stride = GetParam() && soak() == 0 ? 13 : 1;
  for (int moment = 0; moment < straight.moments; moment += stride) {
    const std::string run = "killed";
    Child killed(job_in(run), moment);
    ASSERT_FALSE(killed.wait()) << "not killed at moment " << moment;
    Child resumed(job_in(run), kNever);
    ASSERT_TRUE(resumed.wait()) << "killed at moment " << moment;
    ASSERT_EQ(outcome(folder_ / run, 6), expected) << "killed at moment " << moment;
    fs::remove_all(folder_ / run);
  }
}

TEST_P(KillResume, AgainAndAgainAtRandomTimes) {
  job::Job job = job_in("straight");
  job.train.steps = 40;
  job.train.save_every = 1;
  Child straight(job, kNever);
  ASSERT_TRUE(straight.wait());
  job.train.run_dir = (folder_ / "killed").string();
  std::minstd_rand random(1);
  for (int round = 0; round < 12 * std::max(soak(), 1); ++round) {
    Child child(job, kNever);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 120'000));
    child.kill();
    child.wait();
  }
  Child last(job, kNever);
  ASSERT_TRUE(last.wait());
  EXPECT_EQ(outcome(folder_ / "killed", 40), outcome(folder_ / "straight", 40));
}

INSTANTIATE_TEST_SUITE_P(Models, KillResume, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Gpt" : "Mlp"; });
}  // namespace
}  // namespace cinch::train
