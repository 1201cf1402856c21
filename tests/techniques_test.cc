// What every technique promises, alone and in every legal pair, on a transformer, a convolutional network with batch norm
// and an LSTM, with dropout: one run checks it all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cinch/plan/solver.h"
#include "cinch/train/checkpoint.h"
#include "cinch/train/internal/scratch_folder.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {
using plan::Equivalence;
using plan::Plan;

constexpr int kSteps = 20, kThreads = 1;  // Threads: prediction_test.
constexpr std::int64_t kBatch = 4;

job::Job job_of(ModelKind kind) {
  job::Job job = small_job(kind, kBatch);
  job.train.steps = 2 * kSteps;
  return job;
}

std::vector<std::string> modules_of(const job::Job& job) {
  return train::make_problem(job, device::find("cpu", kThreads), Bytes()).modules;
}

/// Turns the technique on; activations in every second module from `first`, so that two of them can share a model.
void use(std::string_view key, const std::vector<std::string>& modules, std::size_t first, Plan& plan) {
  const auto give = [&](plan::ActivationPolicy policy) {
    for (std::size_t i = first; i < modules.size(); i += 2) plan.activations[modules[i]] = policy;
  };
  if (key == "micro_batch") return static_cast<void>(plan.micro_batch_size = 2);
  if (key == "checkpoint") return give(plan::ActivationPolicy::kCheckpoint);
  if (key == "selective") return give(plan::ActivationPolicy::kSelective);
  if (key == "offload") return give(plan::ActivationPolicy::kOffload);
  if (key == "checkpoint_offload") return give(plan::ActivationPolicy::kCheckpointOffload);
  if (key == "chunked_loss") return static_cast<void>(plan.loss_chunk_size = 24);
  if (key == "step_in_backward") return static_cast<void>(plan.optimizer.in_backward = true);
  if (key == "adam8bit") return static_cast<void>(plan.optimizer.state = plan::OptimizerState::k8Bit);
  if (key == "state_on_host") return static_cast<void>(plan.optimizer.place = plan::StatePlace::kHost);
  if (key == "state_on_disk") return static_cast<void>(plan.optimizer.place = plan::StatePlace::kDisk);
  if (key == "bf16") return static_cast<void>(plan.autocast = plan::Autocast::kBf16);
  if (key == "fp16") return static_cast<void>(plan.autocast = plan::Autocast::kFp16);
  if (key == "alloc_conf") return static_cast<void>(plan.alloc_conf = "expandable_segments:True");
  FAIL() << "the technique " << key << " has no case here";
}

/// Names of techniques: one, or two.
using Keys = std::vector<std::string>;

Keys keys_of_used(const Plan& plan) {
  Keys keys;
  for (const auto& technique : plan::techniques())
    if (technique.used(plan)) keys.emplace_back(technique.key);
  return keys;
}

Plan plan_of(const Keys& keys, const job::Job& job) {
  Plan plan;
  const auto modules = modules_of(job);
  for (std::size_t i = 0; i < keys.size(); ++i) use(keys[i], modules, i, plan);
  return plan;
}

/// Two ways of one setting: no pair.
bool same_setting(const std::string& a, const std::string& b) {
  return (a.starts_with("state_on") && b.starts_with("state_on")) || (a == "bf16" && b == "fp16");
}

std::vector<Keys> all_keys() {
  std::vector<Keys> all;
  const auto techniques = plan::techniques();
  for (std::size_t i = 0; i < techniques.size(); ++i) {
    const std::string first(techniques[i].key);
    all.push_back({first});
    for (std::size_t j = i + 1; j < techniques.size(); ++j) {
      std::string second(techniques[j].key);
      if (!same_setting(first, second)) all.push_back({first, std::move(second)});
    }
  }
  return all;
}

using Case = std::tuple<ModelKind, Keys>;
std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  std::string name = name_of(std::get<0>(info.param));
  const char* before = "_";
  for (const auto& key : std::get<1>(info.param)) name += std::exchange(before, "_and_") + key;
  return name;
}

/// Why this job may not be trained so; empty if it may.
std::vector<std::string> faults_of(const Plan& plan, const job::Job& job) {
  return plan::validate(train::make_problem(job, device::find("cpu", kThreads), Bytes(1)), plan);
}

/// In fp16 from a scale at which no step overflows: one that is left out takes less than is predicted.
std::unique_ptr<train::Session> make_session(const job::Job& job, const Plan& plan) {
  auto session = std::make_unique<train::Session>(job, plan);
  if (session->grad_scaler() != nullptr) session->grad_scaler()->load_state({2, 0});
  return session;
}
/// Fewer in fp16, which CPUs compute slowly.
int steps_of(const Plan& plan) { return plan.autocast == plan::Autocast::kFp16 ? 3 : kSteps; }

struct Training {
  trace::Trace trace;                 ///< Classified; initialization, the first two steps, and an evaluation if asked.
  std::vector<Bytes> live;            ///< After each step.
  std::map<std::string, at::Tensor> weights;
  std::vector<double> losses;
};

std::map<std::string, at::Tensor> copy_of(train::Session& session) {
  std::map<std::string, at::Tensor> weights;
  for (const auto& [name, tensor] : train::weights_of(session.model())) weights[name] = tensor.detach().clone();
  return weights;
}

/// Trains under a cap and a recorder.
Training recorded(const job::Job& job, const Plan& plan, std::optional<Bytes> cap, int steps) {
  Training run;
  trace::Trace trace, of_two;
  {
    const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
    const record::Recorder recorder(trace, {.cap = cap});
    const auto session = [&] {
      const trace::PhaseScope init(trace::Phase::kInit, 0);
      return make_session(job, plan);
    }();
    for (int step = 1; step <= steps; ++step) {
      run.losses.push_back(
          train::run_step(*session, [&] { return source->next(); }, static_cast<std::uint32_t>(step)).loss);
      run.live.push_back(recorder.live());
      if (auto* scaler = session->grad_scaler(); scaler && scaler->state().clean_updates != step)
        throw std::logic_error("step " + std::to_string(step) + " was left out: another scale, please");
      if (step != 2) continue;
      const auto other = data::open(job.data, job.model, job.train.batch_size, job.train.seed + 1);
      train::run_evaluation(*session, [&] { return other->next(); }, 1, 2);
      of_two = trace;
    }
    const record::Muted muted;
    run.weights = copy_of(*session);
  }
  trace::classify(of_two);
  run.trace = std::move(of_two);
  return run;
}

/// What bitwise techniques are held against: trained once for all the cases that share it.
const Training& reference(ModelKind kind, const job::Job& job, const Plan& plan) {
  static std::map<std::string, Training> kept;
  const std::string key = name_of(kind) + (job.train.max_grad_norm ? " clips\n" : "\n") + plan::to_toml(plan);
  const auto found = kept.find(key);
  return found != kept.end() ? found->second : kept.emplace(key, recorded(job, plan, std::nullopt, steps_of(plan))).first->second;
}

/// The same without a recorder; saved after half of the steps and gone on with in another session.
std::map<std::string, at::Tensor> resumed(const job::Job& job, const Plan& plan) {
  const train::ScratchFolder folder;
  const int steps = steps_of(plan), half = steps / 2;
  const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
  {
    const auto session = make_session(job, plan);
    for (int step = 1; step <= half; ++step)
      train::run_step(*session, [&] { return source->next(); }, static_cast<std::uint32_t>(step));
    train::run_save([&](const at::Tensor& generator) {
      train::save_checkpoint(folder.path(), *session, generator, {.step = half});
    }, static_cast<std::uint32_t>(half));
  }
  train::Session session(job, plan);
  train::load_checkpoint(*train::newest_checkpoint(folder.path()), session);
  for (int step = half + 1; step <= steps; ++step)
    train::run_step(session, [&] { return source->next(); }, static_cast<std::uint32_t>(step));
  return copy_of(session);
}

trace::Trace predicted(const job::Job& job, const Plan& plan) {
  return train::simulator(job, device::find("cpu", kThreads))(plan);
}

void expect_equal_weights(const std::map<std::string, at::Tensor>& left, const std::map<std::string, at::Tensor>& right,
                          const char* what) {
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, tensor] : left) EXPECT_TRUE(at::equal(tensor, right.at(name))) << what << ": " << name;
}

void expect_refused_if_illegal(const job::Job& job, const Plan& plan) {
  const auto faults = faults_of(plan, job);
  if (faults.empty()) return;
  try {
    const train::Session session(job, plan);
    FAIL() << "an illegal plan was accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(faults.front()));
  }
}

class Techniques : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { train::set_threads(kThreads); }
};

TEST_P(Techniques, KeepTheirPromises) {
  const auto& [kind, keys] = GetParam();
  job::Job job = job_of(kind);
  const Plan plan = plan_of(keys, job);
  ASSERT_EQ(keys_of_used(plan).size(), keys.size()) << "a model of one module cannot tell two policies apart";
  expect_refused_if_illegal(job, plan);
  if (!faults_of(plan, job).empty()) job.train.max_grad_norm.reset();  // What clipping excludes is legal without.
  if (!faults_of(plan, job).empty()) return;
  EXPECT_EQ(plan::parse_plan(plan::to_toml(plan), "plan.toml"), plan);

  // Prediction; and the cap: it runs at its predicted peak, and not a byte below.
  const auto expected = predicted(job, plan);
  const Bytes peak = trace::Timeline(expected).peak().bytes;
  const Training run = recorded(job, plan, peak, steps_of(plan));
  EXPECT_EQ(trace::compare_phase_ends(expected, run.trace).value_or("no difference"), "no difference");
  EXPECT_EQ(trace::Timeline(run.trace).peak().bytes, peak);
  EXPECT_THROW(recorded(job, plan, peak - Bytes(1), 2), record::OutOfMemoryError);

  // Categories sum to what is live, in both; live bytes are flat from step 2.
  for (const auto* trace : {&expected, &run.trace}) {
    const trace::Timeline timeline(*trace);
    EXPECT_EQ(timeline.live_by_category(timeline.peak().event).sum(), timeline.peak().bytes);
    EXPECT_EQ(timeline.live_by_category(timeline.peak().event)[trace::Category::kUnknown], Bytes());
  }
  for (std::size_t step = 2; step < run.live.size(); ++step) EXPECT_EQ(run.live[step], run.live[1]) << "step " << step + 1;

  // Sameness: bitwise techniques change nothing, dropout included. (Of the others: TechniquesBounds.)
  const Plan rest = plan::only(plan, std::array{Equivalence::kReassociated, Equivalence::kLossy});
  if (rest != plan) {
    const Training& without = reference(kind, job, rest);
    EXPECT_EQ(run.losses, without.losses);
    expect_equal_weights(run.weights, without.weights, "with and without");
  }
  expect_equal_weights(run.weights, resumed(job, plan), "resumed");
}
INSTANTIATE_TEST_SUITE_P(AloneAndInPairs, Techniques,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kLstm),
                                            ::testing::ValuesIn(all_keys())),
                         name_of_case);

/// What is not bitwise: `cinch verify` holds it against its bound, and finds the others equal, on the same models.
class TechniquesBounds : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { train::set_threads(kThreads); }
};
TEST_P(TechniquesBounds, AreHeld) {
  const auto& [kind, keys] = GetParam();
  job::Job job = job_of(kind);
  const Plan plan = plan_of(keys, job);
  ASSERT_THAT(faults_of(plan, job), ::testing::IsEmpty());
  for (const auto& check : train::verify(job, plan, {.steps = 4}))
    EXPECT_TRUE(check.holds) << check.what << ": " << check.difference << ", at most " << check.bound << ", " << check.parting;
}
/// Batch norm's statistics are those of the part: dividing a batch is not the same training, and that is found.
TEST(Verify, SaysWhereTrainingsPart) {
  train::set_threads(kThreads);
  const job::Job job = job_of(ModelKind::kResNet18);
  std::vector<std::string> told;
  const auto checks = train::verify(job, {.micro_batch_size = 2}, {.steps = 2, .on_check = [&](const auto& check) { told.push_back(check.what); }});
  ASSERT_FALSE(checks.empty());
  EXPECT_EQ(told.size(), checks.size());
  EXPECT_EQ(checks.front().equivalence, Equivalence::kReassociated);
  EXPECT_FALSE(checks.front().holds);
  EXPECT_GT(checks.front().difference, 1e-3);
  EXPECT_THAT(checks.front().parting, ::testing::StartsWith("step 1, "));
  EXPECT_TRUE(checks.back().holds) << "it is saved and resumed right for all that";
}

INSTANTIATE_TEST_SUITE_P(Alone, TechniquesBounds,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kLstm),
                                            ::testing::Values(Keys{"micro_batch"}, Keys{"chunked_loss"}, Keys{"adam8bit"}, Keys{"bf16"}, Keys{"fp16"},
                                                              Keys{"chunked_loss", "checkpoint"})),
                         name_of_case);

/// Autocast by plan is autocast by job: the same losses and weights, the same memory.
TEST(TechniquesAutocast, IsTheJobsPrecision) {
  train::set_threads(kThreads);
  for (const auto& [autocast, precision] : {std::pair{plan::Autocast::kBf16, job::Precision::kBf16},
                                            std::pair{plan::Autocast::kFp16, job::Precision::kFp16}}) {
    const job::Job plain = job_of(ModelKind::kGpt);
    job::Job mixed = plain;
    mixed.train.precision = precision;
    const Plan plan{.autocast = autocast};
    const Training by_plan = recorded(plain, plan, std::nullopt, 4), by_job = recorded(mixed, {}, std::nullopt, 4);
    EXPECT_EQ(by_plan.losses, by_job.losses);
    expect_equal_weights(by_plan.weights, by_job.weights, "plan and job");
    EXPECT_EQ(trace::first_divergence(predicted(plain, plan), predicted(mixed, {})), std::nullopt);
    EXPECT_THAT(faults_of(plan, mixed), ::testing::ElementsAre(::testing::HasSubstr("train.precision is fp32")));
    expect_refused_if_illegal(mixed, plan);
  }
}
}  // namespace
}  // namespace cinch::tests
