// Predicted equals measured, to the byte: models × batch sizes × techniques × threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "cinch/dryrun/internal/check_rules.h"
#include "cinch/report/summarize.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {

enum class Technique : std::uint8_t { kPlain, kCheckpointed, kAccumulation, kBoth };
using Case = std::tuple<ModelKind, std::int64_t, Technique, int>;

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  static const char* techniques[] = {"Plain", "Checkpointed", "Accumulation4", "Both"};
  const auto [model, batch, technique, threads] = info.param;
  return name_of(model) + "Batch" + std::to_string(batch) +
         techniques[static_cast<int>(technique)] + "Threads" + std::to_string(threads);
}

class Prediction : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { train::set_threads(std::get<3>(GetParam())); }
  job::Job job() const { return small_job(std::get<0>(GetParam()), std::get<1>(GetParam())); }
  plan::Plan plan() const {
    const auto technique = std::get<2>(GetParam());
    plan::Plan plan;
    if (technique == Technique::kCheckpointed || technique == Technique::kBoth) plan = checkpoint_all(job());
    if (technique == Technique::kAccumulation || technique == Technique::kBoth)
      plan.micro_batch_size = (std::get<1>(GetParam()) + 3) / 4;
    return plan;
  }
};

void expect_equal(const trace::Trace& predicted, const trace::Trace& recorded) {
  EXPECT_EQ(predicted.left_out(), 0u);
  EXPECT_EQ(recorded.left_out(), 0u);
  EXPECT_EQ(trace::compare_phase_ends(predicted, recorded).value_or("no difference"), "no difference");
  const trace::Timeline left(predicted), right(recorded);
  EXPECT_GT(left.peak().bytes, Bytes());
  EXPECT_EQ(left.peak().bytes, right.peak().bytes);
  EXPECT_EQ(left.peak().phase, right.peak().phase);
  for (std::uint32_t step = 1; step <= 2; ++step) EXPECT_EQ(left.peak(step).bytes, right.peak(step).bytes) << "step " << step;
  const auto predicted_peak = report::summarize_peak(predicted), recorded_peak = report::summarize_peak(recorded);
  EXPECT_EQ(predicted_peak.module, recorded_peak.module);
  for (int c = 0; c < trace::kCategoryCount; ++c) {
    const auto category = static_cast<trace::Category>(c);
    EXPECT_EQ(predicted_peak.categories[category], recorded_peak.categories[category]) << trace::name_of(category);
  }
  EXPECT_EQ(predicted_peak.categories.sum(), predicted_peak.requested);
  if (left.peak().bytes != right.peak().bytes)
    if (const auto first = trace::first_divergence(predicted, recorded)) ADD_FAILURE() << first->sentence;
}

TEST_P(Prediction, EqualsTheRecording) {
  const auto predicted = train::simulator(job(), device::find("cpu"))(plan());
  expect_equal(predicted, record_run(job(), plan()));
}

INSTANTIATE_TEST_SUITE_P(Matrix, Prediction,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp),
                                            ::testing::Values(8, 18),
                                            ::testing::Values(Technique::kPlain, Technique::kCheckpointed,
                                                              Technique::kAccumulation, Technique::kBoth),
                                            ::testing::Values(1, 2)),
                         name_of);

// ---- every model, in both precisions -----------------------------------------------------------------------------------

enum class Size : std::uint8_t { kSmall, kSmallCheckpointed, kLarger };
using FamilyCase = std::tuple<ModelKind, job::Precision, job::OptimizerKind, Size>;
class Families : public ::testing::TestWithParam<FamilyCase> {};

struct Enlarge {
  void operator()(job::GptConfig& gpt) const { gpt = {.layers = 2, .hidden_size = 128, .heads = 4, .context_length = 130, .vocab_size = 700}; }
  void operator()(job::ResNetConfig& resnet) const { resnet.image_size = 64; }
  void operator()(job::MlpConfig& mlp) const { mlp.sizes = {300, 256, 130, 20}; }
  void operator()(job::BertConfig& bert) const {
    bert.layers = 3, bert.hidden_size = 96, bert.heads = 3, bert.intermediate_size = 200, bert.context_length = 70, bert.vocab_size = 700;
  }
  void operator()(job::VitConfig& vit) const { vit.layers = 3, vit.hidden_size = 96, vit.heads = 3, vit.patch_size = 4; }
  void operator()(job::LlamaConfig& llama) const {
    llama.hidden_size = 96, llama.heads = 6, llama.key_value_heads = 1, llama.intermediate_size = 200, llama.context_length = 100;
  }
  void operator()(job::LstmConfig& lstm) const { lstm.layers = 3, lstm.hidden_size = 70, lstm.context_length = 33; }
  void operator()(job::UnetConfig& unet) const { unet.base_channels = 12, unet.levels = 3, unet.image_size = 48; }
};

job::Job family_job(const FamilyCase& wanted) {
  const auto [model, precision, optimizer, size] = wanted;
  auto job = small_job(model, size == Size::kLarger ? 7 : 4);
  if (size == Size::kLarger) std::visit(Enlarge{}, job.model);
  job.train.precision = precision;
  job.train.optimizer.kind = optimizer;
  job.train.optimizer.momentum = optimizer == job::OptimizerKind::kSgd ? 0.9 : 0;
  return job;
}

std::string name_of_family(const ::testing::TestParamInfo<FamilyCase>& info) {
  const auto [model, precision, optimizer, size] = info.param;
  return name_of(model) + (precision == job::Precision::kBf16 ? "Bf16" : "Fp32") +
         (optimizer == job::OptimizerKind::kSgd ? "Sgd" : "AdamW") +
         (size == Size::kSmall ? "Small" : size == Size::kLarger ? "Larger" : "SmallCheckpointed");
}

TEST_P(Families, EqualTheRecording) {
  train::set_threads(2);
  const auto job = family_job(GetParam());
  const auto plan = std::get<Size>(GetParam()) == Size::kSmallCheckpointed ? checkpoint_all(job) : plan::Plan{};
  expect_equal(train::simulator(job, device::find("cpu"))(plan), record_run(job, plan));
}

INSTANTIATE_TEST_SUITE_P(Matrix, Families,
                         ::testing::Combine(::testing::ValuesIn(kAllModels),
                                            ::testing::Values(job::Precision::kFp32, job::Precision::kBf16),
                                            ::testing::Values(job::OptimizerKind::kSgd, job::OptimizerKind::kAdamW),
                                            ::testing::Values(Size::kSmall, Size::kSmallCheckpointed, Size::kLarger)),
                         name_of_family);

// ---- evaluation alone -----------------------------------------------------------------------------------------------

using EvaluationCase = std::tuple<ModelKind, std::int64_t, int>;
class Evaluation : public ::testing::TestWithParam<EvaluationCase> {};

template <class NextBatch>
void evaluate_only(const job::Job& job, const NextBatch& next) {
  const auto session = [&] {
    const trace::PhaseScope init(trace::Phase::kInit, 0);
    return std::make_unique<train::Session>(job, plan::Plan{});
  }();
  train::run_evaluation(*session, next, 2, 0);
}

TEST_P(Evaluation, EqualsTheRecording) {
  const auto [model, batch, threads] = GetParam();
  train::set_threads(threads);
  const auto job = small_job(model, batch);
  trace::Trace predicted, recorded;
  {
    const dryrun::DryRun dry(predicted, device::find("cpu"));
    evaluate_only(job, [&] { return data::example_batch(job.data, job.model, job.train.batch_size); });
  }
  {
    const auto source = data::open(job.data, job.model, job.train.batch_size, job.train.seed);
    const record::Recorder recorder(recorded);
    evaluate_only(job, [&] { return source->next(); });
  }
  EXPECT_EQ(trace::compare_phase_ends(predicted, recorded).value_or("no difference"), "no difference");
  EXPECT_EQ(trace::Timeline(predicted).peak().bytes, trace::Timeline(recorded).peak().bytes);
}

INSTANTIATE_TEST_SUITE_P(Matrix, Evaluation,
                         ::testing::Combine(::testing::Values(ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp),
                                            ::testing::Values(8, 18), ::testing::Values(1, 2)));

// ---- what else shapes a step ----------------------------------------------------------------------------------------

void expect_predicted(const job::Job& job, const plan::Plan& plan = {}) {
  expect_equal(train::simulator(job, device::find("cpu"))(plan), record_run(job, plan));
}

TEST(PredictionOf, AttentionDropoutAndAnUntiedHead) {
  auto job = small_job(ModelKind::kGpt, 6);
  auto& gpt = std::get<job::GptConfig>(job.model);
  gpt.attention_dropout = 0.1;
  gpt.tie_weights = false;
  expect_predicted(job);
  expect_predicted(job, checkpoint_all(job));
}

TEST(PredictionOf, NoDropoutAndNoClipping) {
  for (auto kind : {ModelKind::kGpt, ModelKind::kMlp}) {
    auto job = small_job(kind, 5);
    if (auto* gpt = std::get_if<job::GptConfig>(&job.model)) gpt->dropout = 0;
    if (auto* mlp = std::get_if<job::MlpConfig>(&job.model)) mlp->dropout = 0;
    job.train.max_grad_norm.reset();
    expect_predicted(job);
  }
}

TEST(PredictionOf, SgdWithAndWithoutMomentum) {
  for (auto kind : {ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp})
    for (double momentum : {0.0, 0.9}) {
      auto job = small_job(kind, 4);
      job.train.optimizer = {.kind = job::OptimizerKind::kSgd, .momentum = momentum};
      expect_predicted(job);
    }
}

TEST(PredictionOf, AShortLastMicroBatch) {
  for (auto kind : {ModelKind::kGpt, ModelKind::kMlp}) {
    plan::Plan plan;
    plan.micro_batch_size = 3;
    expect_predicted(small_job(kind, 7), plan);
  }
}

TEST(PredictionOf, PaddingThatIsNotTrained) {
  for (const auto kind : {ModelKind::kBertMasked, ModelKind::kBertClassifier, ModelKind::kLlama}) {
    auto job = small_job(kind, 3);
    if (auto* bert = std::get_if<job::BertConfig>(&job.model)) bert->padding_token = 0;
    if (auto* llama = std::get_if<job::LlamaConfig>(&job.model)) llama->padding_token = 299;
    expect_predicted(job);
  }
}

TEST(PredictionOf, ASingleSample) {
  for (auto kind : {ModelKind::kGpt, ModelKind::kMlp}) expect_predicted(small_job(kind, 1));
}

TEST(PredictionOf, ADryRunLeavesTheRandomStreamAlone) {
  const auto job = small_job(ModelKind::kGpt, 4);
  const auto before = at::rand({4});  // also: the generator exists
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const auto state = generator.get_state();
  train::simulator(job, device::find("cpu"))({});
  EXPECT_TRUE(at::equal(state, generator.get_state()));
}

/// Jobs nobody thought of. CINCH_SOAK: how many (unset: a few).
TEST(PredictionOf, RandomJobs) {
  const char* soak = std::getenv("CINCH_SOAK");
  std::mt19937 random(20261201);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
  for (int round = soak ? std::atoi(soak) : 4; round > 0; --round) {
    const auto kind = static_cast<ModelKind>(pick(0, 2));
    auto job = small_job(kind, pick(2, 40));
    if (kind == ModelKind::kGpt)
      job.model = job::GptConfig{.layers = pick(1, 4), .hidden_size = 4 * pick(3, 40), .heads = pick(1, 2) * 2, .context_length = pick(1, 200),
                                 .vocab_size = pick(2, 3000), .dropout = 0.1 * static_cast<double>(pick(0, 1)), .tie_weights = pick(0, 1) == 1};
    if (kind == ModelKind::kResNet18) job.model = job::ResNetConfig{.classes = pick(2, 50), .channels = pick(1, 3), .image_size = 32 * pick(1, 2)};
    if (kind == ModelKind::kMlp) job.model = job::MlpConfig{.sizes = {pick(1, 900), pick(1, 900), pick(1, 900), pick(2, 90)}, .dropout = 0.2};
    if (pick(0, 1) == 1) job.train.optimizer = {.kind = job::OptimizerKind::kSgd, .momentum = 0.5 * static_cast<double>(pick(0, 1))};
    if (pick(0, 1) == 1) job.train.max_grad_norm.reset();
    train::set_threads(static_cast<int>(pick(1, 2)));
    auto plan = pick(0, 1) == 1 ? checkpoint_all(job) : plan::Plan{};
    std::erase_if(plan.activations, [&](const auto&) { return pick(0, 2) == 0; });
    if (kind != ModelKind::kResNet18) plan.micro_batch_size = pick(0, static_cast<int>(job.train.batch_size));
    SCOPED_TRACE(job::to_toml(job) + plan::to_toml(plan));
    expect_predicted(job, plan);
  }
}

/// Every rule that these models reach says what the kernel does. The other models reach no other ops.
void expect_rules_to_agree(ModelKind kind, int threads) {
  using dryrun::internal::CheckRules;
  SCOPED_TRACE(name_of(kind));
  train::set_threads(threads);
  auto job = small_job(kind, 4);
  const CheckRules check;
  train::simulator(job, device::find("cpu"))({});
  job.train.precision = job::Precision::kBf16;
  train::simulator(job, device::find("cpu"))({});
  EXPECT_THAT(CheckRules::faults(), ::testing::IsEmpty());
  EXPECT_GT(CheckRules::checked("aten::addmm") + CheckRules::checked("aten::mm") + CheckRules::checked("aten::cat"), 0u);
}

TEST(Rules, AgreeWithTheKernels) {
  for (auto kind : {ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp, ModelKind::kBertMasked, ModelKind::kVit, ModelKind::kLlama, ModelKind::kUnet})
    expect_rules_to_agree(kind, 1);
}

/// Without attention: threads of its fused backward take their sums side by side or one after the other, as it happens.
TEST(Rules, AgreeWithTheKernelsOfTwoThreads) {
  for (auto kind : {ModelKind::kResNet18, ModelKind::kMlp, ModelKind::kUnet}) expect_rules_to_agree(kind, 2);
}
}  // namespace
}  // namespace cinch::tests
