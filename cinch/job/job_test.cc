#include "cinch/job/job.h"

#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cinch/core/error.h"

namespace cinch::job {
namespace {
using testing::HasSubstr;

constexpr char kGpt[] = R"([model]
kind = "gpt"
layers = 2
hidden_size = 64
heads = 4
context_length = 32
[data]
kind = "text"
path = "corpus/*.txt"
[train]
batch_size = 8
steps = 100
learning_rate = 3e-4
)";

constexpr char kMlp[] = R"([model]
kind = "mlp"
sizes = [784, 100, 10]
[data]
kind = "synthetic"
[train]
batch_size = 8
steps = 10
learning_rate = 0.1
)";

constexpr char kResNet[] = R"([model]
kind = "resnet"
classes = 10
image_size = 64
[data]
kind = "csv"
path = ["a.csv", "b.csv"]
[train]
batch_size = 8
steps = 10
learning_rate = 0.1
optimizer = "sgd"
)";

Job with(const char* text, std::vector<std::string> overrides) { return parse(text, "job.toml", overrides); }

ConfigError error_of(std::string_view text, std::vector<std::string> overrides = {}) {
  try {
    parse(text, "job.toml", overrides);
  } catch (const ConfigError& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << text << (overrides.empty() ? "" : overrides.back());
  return ConfigError("", 0, "", "");
}

// ---- what a right file says

TEST(Job, ReadsAGptWithDefaults) {
  const Job job = parse(kGpt, "job.toml");
  const auto& gpt = std::get<GptConfig>(job.model);
  EXPECT_EQ(gpt.layers, 2);
  EXPECT_EQ(gpt.vocab_size, 256);
  EXPECT_TRUE(gpt.tie_weights);
  EXPECT_EQ(std::get<TextData>(job.data).path, std::vector<std::string>{"corpus/*.txt"});
  EXPECT_EQ(std::get<TextData>(job.data).held_out, 0.05);
  EXPECT_EQ(job.train.optimizer.kind, OptimizerKind::kAdamW);
  EXPECT_EQ(job.train.learning_rate, 3e-4);
  EXPECT_FALSE(job.train.max_grad_norm);
  EXPECT_FALSE(job.memory.budget);
  EXPECT_TRUE(job.memory.arena);
  EXPECT_FALSE(has_batch_norm(job.model));
}

TEST(Job, ReadsAResNetOnCsv) {
  const Job job = parse(kResNet, "job.toml");
  EXPECT_EQ(std::get<ResNetConfig>(job.model).channels, 3);
  EXPECT_THAT(std::get<CsvData>(job.data).path, testing::ElementsAre("a.csv", "b.csv"));
  EXPECT_EQ(job.train.optimizer.kind, OptimizerKind::kSgd);
  EXPECT_TRUE(has_batch_norm(job.model));
  EXPECT_FALSE(may_divide_batch(job));
  EXPECT_TRUE(may_divide_batch(with(kResNet, {"memory.divide_batch_norm=true"})));
}

TEST(Job, ReadsAnMlpWithWholeNumbersWhereNumbersAreWanted) {
  const Job job = with(kMlp, {"model.dropout=0", "train.learning_rate=1"});
  EXPECT_THAT(std::get<MlpConfig>(job.model).sizes, testing::ElementsAre(784, 100, 10));
  EXPECT_EQ(job.train.learning_rate, 1.0);
}

TEST(Job, BudgetIsASizeOrBytes) {
  EXPECT_EQ(with(kMlp, {"memory.budget=\"1.5GiB\""}).memory.budget, Bytes(1610612736));
  EXPECT_EQ(with(kMlp, {"memory.budget=2048"}).memory.budget, Bytes(2048));
  EXPECT_FALSE(with(kMlp, {"memory.arena=false"}).memory.arena);
}

// ---- overrides

TEST(Job, OverridesWinInOrderAndMayAddSections) {
  const Job job = with(kGpt, {"train.steps=10", "train.steps = 20", "memory.budget=2GiB", "train.run_dir=runs/a b",
                              "data.path=[\"x\", \"y\"]", "train.schedule=cosine", "train.warmup_steps=5"});
  EXPECT_EQ(job.train.steps, 20);
  EXPECT_EQ(job.memory.budget, Bytes(std::int64_t{2} << 30));
  EXPECT_EQ(job.train.run_dir, "runs/a b");
  EXPECT_THAT(std::get<TextData>(job.data).path, testing::ElementsAre("x", "y"));
  EXPECT_EQ(job.train.schedule, Schedule::kCosine);
}

TEST(Job, AnOverrideWithoutAValueIsTheEmptyText) {
  EXPECT_EQ(with(kMlp, {"train.run_dir=runs/x", "train.run_dir="}).train.run_dir, "");
}

TEST(Job, ErrorsOfOverridesNameSet) {
  for (const auto& [text, key, says] : std::vector<std::array<const char*, 3>>{
           {"train.stepz=10", "train.stepz", "unknown"},
           {"steps=10", "steps", "unknown"},
           {"train.steps", "train.steps", "has no ="},
           {"train.steps=ten", "train.steps", "wants a whole number; found the text \"ten\""},
           {"train.steps=0", "train.steps", "is 0"},
           {"train.steps=[1", "train.steps", "no TOML"},
           {"train.steps=1\n[x]", "train.steps", "line break"},
           {"train.learning_rate=nan", "train.learning_rate", "finite"},
           {"train.run_dir=\xff", "train.run_dir", "no text"},
       }) {
    const ConfigError error = error_of(kMlp, {text});
    EXPECT_EQ(error.file(), "--set") << text;
    EXPECT_EQ(error.line(), 0) << text;
    EXPECT_EQ(error.key(), key);
    EXPECT_THAT(error.what(), HasSubstr(says));
  }
  EXPECT_THAT(error_of(kMlp, {"train.stepz=10"}).hint(), HasSubstr("train.steps"));
}

// ---- refusals name file, line, key and the nearest known key

TEST(Job, UnknownKeyNamesTheNearest) {
  const ConfigError error = error_of(std::string(kGpt) + "batch_sise = 3\n");
  EXPECT_EQ(error.file(), "job.toml");
  EXPECT_EQ(error.line(), 14);
  EXPECT_EQ(error.key(), "train.batch_sise");
  EXPECT_THAT(error.what(), HasSubstr("job.toml:14: "));
  EXPECT_THAT(error.hint(), HasSubstr("batch_size"));
}

TEST(Job, UnknownSectionNamesTheNearest) {
  const ConfigError error = error_of("[modle]\nkind = \"gpt\"\n");
  EXPECT_EQ(error.line(), 1);
  EXPECT_THAT(error.hint(), HasSubstr("model"));
}

TEST(Job, AKeyOfAnotherKindIsUnknown) {
  EXPECT_EQ(error_of(kMlp, {"model.layers=3"}).key(), "model.layers");
  EXPECT_EQ(error_of(kGpt, {"train.momentum=0.9"}).key(), "train.momentum");
  EXPECT_EQ(error_of(kMlp, {"data.path=x"}).key(), "data.path");
}

TEST(Job, MalformedTomlNamesTheLine) {
  const ConfigError error = error_of("[model]\nkind = \"gpt\nlayers = 2\n");
  EXPECT_EQ(error.line(), 2);
  EXPECT_THAT(error.what(), HasSubstr("no TOML"));
}

TEST(Job, MissingKeysAreNamed) {
  for (const char* key : {"kind = \"gpt\"", "layers = 2", "hidden_size = 64", "heads = 4", "context_length = 32",
                          "kind = \"text\"", "path = \"corpus/*.txt\"", "batch_size = 8", "steps = 100",
                          "learning_rate = 3e-4"}) {
    std::string text = kGpt;
    text.replace(text.find(key), std::string_view(key).size(), "");
    EXPECT_THAT(error_of(text).what(), HasSubstr("is missing")) << key;
  }
  EXPECT_EQ(error_of("").key(), "model.kind");
}

TEST(Job, WrongTypesSayWhatIsWantedAndWhatIsThere) {
  EXPECT_THAT(error_of(kGpt, {"model.layers=2.5"}).what(), HasSubstr("wants a whole number; found the number 2.5"));
  EXPECT_THAT(error_of(kGpt, {"model.tie_weights=1"}).what(), HasSubstr("true or false; found the whole number 1"));
  EXPECT_THAT(error_of(kGpt, {"model.dropout=\"x\""}).what(), HasSubstr("wants a number; found the text \"x\""));
  EXPECT_THAT(error_of(kGpt, {"data.path=3"}).what(), HasSubstr("a text or a list of texts; found the whole number 3"));
  EXPECT_THAT(error_of(kGpt, {"data.path=[1]"}).what(), HasSubstr("found the whole number 1"));
  EXPECT_THAT(error_of(kGpt, {"train.run_dir=[]"}).what(), HasSubstr("found a list"));
  EXPECT_THAT(error_of(kGpt, {"train.optimizer={}"}).what(), HasSubstr("found a table"));
  EXPECT_THAT(error_of(kGpt, {"model.kind=1979-05-27"}).what(), HasSubstr("found a date or time"));
  EXPECT_THAT(error_of(kMlp, {"model.sizes=3"}).what(), HasSubstr("a list of whole numbers"));
  EXPECT_THAT(error_of("model = 3\n").what(), HasSubstr("model"));
}

TEST(Job, EachOptimizerHasItsKeys) {
  for (const char* name : {"adamw", "sgd", "adam", "adafactor", "lion"}) {
    const auto job = with(kGpt, {std::string("train.optimizer=") + name});
    EXPECT_THAT(to_toml(job), HasSubstr("optimizer = \"" + std::string(name) + "\""));
    EXPECT_EQ(parse(to_toml(job), "job.toml").train.optimizer.kind, job.train.optimizer.kind);
  }
  EXPECT_EQ(with(kGpt, {"train.optimizer=lion"}).train.optimizer.beta2, 0.99);
  EXPECT_EQ(with(kGpt, {"train.optimizer=lion", "train.betas=[0.8, 0.7]"}).train.optimizer.beta2, 0.7);
  EXPECT_EQ(with(kGpt, {"train.optimizer=adam", "train.eps=0.5"}).train.optimizer.eps, 0.5);
  EXPECT_EQ(error_of(kGpt, {"train.optimizer=lion", "train.eps=1e-8"}).key(), "train.eps");
  EXPECT_EQ(error_of(kGpt, {"train.optimizer=adafactor", "train.betas=[0.9, 0.9]"}).key(), "train.betas");
  EXPECT_EQ(error_of(kGpt, {"train.optimizer=adam", "train.momentum=0.9"}).key(), "train.momentum");
}

TEST(Job, UnknownChoicesNameTheNearest) {
  EXPECT_THAT(error_of(kGpt, {"model.kind=gptt"}).hint(), HasSubstr("gpt"));
  EXPECT_THAT(error_of(kGpt, {"train.optimizer=adamv"}).hint(), HasSubstr("adamw"));
  EXPECT_THAT(error_of(kGpt, {"train.schedule=cosin"}).hint(), HasSubstr("cosine"));
  EXPECT_THAT(error_of(kGpt, {"data.kind=jsonl"}).hint(), HasSubstr("synthetic"));
}

TEST(Job, AllowsTechniquesByTheirKeys) {
  EXPECT_TRUE(with(kGpt, {}).memory.allow.empty());
  EXPECT_THAT(with(kGpt, {"memory.allow=[\"offload\", \"adam8bit\", \"offload\"]"}).memory.allow,
              testing::ElementsAre("adam8bit", "offload"));
  EXPECT_THAT(with(kGpt, {"memory.allow=adam8bit"}).memory.allow, testing::ElementsAre("adam8bit"));
  const ConfigError error = error_of(kGpt, {"memory.allow=[\"adam8bits\"]"});
  EXPECT_THAT(error.what(), HasSubstr("\"adam8bits\", which is no technique"));
  EXPECT_THAT(error.hint(), HasSubstr("adam8bit"));
}

TEST(Job, RangesAreChecked) {
  for (const char* text :
       {"model.layers=0", "model.layers=-1", "model.layers=10001", "model.hidden_size=2147483649", "model.vocab_size=0",
        "model.dropout=1.0", "model.dropout=-0.1", "model.attention_dropout=1", "model.context_length=0",
        "data.held_out=1", "data.held_out=-0.5", "data.held_out=inf", "data.path=[]", "data.path=\"\"",
        "train.batch_size=0", "train.steps=0", "train.steps=-4", "train.learning_rate=0", "train.learning_rate=-1",
        "train.learning_rate=inf", "train.learning_rate=nan", "train.warmup_steps=-1", "train.warmup_steps=101",
        "train.max_grad_norm=0", "train.evaluate_every=-1", "train.evaluation_batches=0", "train.save_every=-1",
        "train.seed=-1", "train.threads=-1", "train.betas=[0.9]", "train.betas=[0.9, 1.0]", "train.eps=0",
        "train.weight_decay=-1", "memory.budget=0", "memory.budget=-1", "memory.budget=12XB", "memory.budget=1.5",
        "memory.budget=99999999999999GiB", "memory.allow=[\"adam9bit\"]", "memory.arena=1",
        "train.precision=fp23"}) {
    const std::string key = std::string(text).substr(0, std::string_view(text).find('='));
    EXPECT_EQ(error_of(kGpt, {text}).key(), key) << text;
  }
  for (const char* text : {"model.sizes=[3]", "model.sizes=[3, 0]", "model.sizes=[]", "model.dropout=1"}) {
    error_of(kMlp, {text});
  }
  for (const char* text : {"model.depth=20", "model.classes=0", "model.image_size=0", "train.momentum=1"}) {
    error_of(kResNet, {text});
  }
}

TEST(Job, PrecisionIsTheUsersWord) {
  EXPECT_EQ(with(kGpt, {}).train.precision, Precision::kFp32);
  EXPECT_EQ(with(kGpt, {"train.precision=fp32"}).train.precision, Precision::kFp32);
  EXPECT_EQ(with(kGpt, {"train.precision=bf16"}).train.precision, Precision::kBf16);
  const auto job = with(kGpt, {"train.precision=fp16"});
  EXPECT_EQ(job.train.precision, Precision::kFp16);
  EXPECT_EQ(parse(to_toml(job), "job.toml").train.precision, Precision::kFp16);
}

TEST(Job, RelationsAreChecked) {
  EXPECT_THAT(error_of(kGpt, {"model.heads=5"}).what(), HasSubstr("5, which does not divide hidden_size 64"));
  EXPECT_EQ(error_of(kGpt, {"model.vocab_size=255"}).key(), "model.vocab_size");
  EXPECT_NO_THROW(with(kResNet, {"data.path=x"}));
  EXPECT_EQ(error_of(kGpt, {"data.kind=csv"}).key(), "data.kind");
  EXPECT_EQ(error_of(kResNet, {"data.kind=text"}).key(), "data.kind");
  EXPECT_EQ(error_of(kResNet, {"model.image_size=32", "train.batch_size=1"}).key(), "model.image_size");
  EXPECT_EQ(error_of(kResNet, {"model.image_size=32", "memory.divide_batch_norm=true"}).key(),
            "memory.divide_batch_norm");
}

TEST(Job, SizesWhoseProductLeaves64BitsAreRefused) {
  EXPECT_EQ(error_of(kGpt, {"model.hidden_size=2147483648", "model.heads=1", "model.layers=1000"}).key(),
            "model.hidden_size");
  EXPECT_EQ(error_of(kMlp, {"model.sizes=[2147483648, 2147483648]"}).key(), "model.sizes");
  EXPECT_EQ(error_of(kGpt, {"model.context_length=100000000", "train.batch_size=2147483648"}).key(),
            "train.batch_size");
}

TEST(Job, AMissingFileIsAConfigError) {
  try {
    load("/nowhere/job.toml");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.line(), 0);
    EXPECT_THAT(error.what(), HasSubstr("No such file"));
  }
  EXPECT_THROW(load("/"), ConfigError);
}

TEST(Job, ExamplesLoad) {
  for (const char* name : {"demo.toml", "gpt-small.toml", "resnet18.toml", "mlp.toml"}) {
    EXPECT_NO_THROW(load(std::string(CINCH_SOURCE_DIR "/examples/") + name)) << name;
  }
}

// ---- printing

// A job with every field away from its default.
Job random_job(std::mt19937_64& random) {
  const auto whole = [&](std::int64_t most) { return static_cast<std::int64_t>(random() % most) + 1; };
  const auto share = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const auto text = [&] {
    std::string result = "x";
    for (int i = 0; i < 6; ++i) result += "ab/ \"'\\#=\t\x7f*"[random() % 13];
    return result + "é";
  };
  Job job;
  const std::int64_t heads = whole(8);
  switch (random() % 3) {
    case 0:
      job.model = GptConfig{whole(50), heads * whole(90), heads, whole(999), 255 + whole(999), share(), share(), random() % 2 == 0};
      job.data = TextData{{text(), text()}, share()};
      break;
    case 1:
      job.model = ResNetConfig{18, whole(1000), whole(4), 32 + whole(400)};
      job.data = CsvData{{text()}, share()};
      job.memory.divide_batch_norm = random() % 2 == 0;
      break;
    default:
      job.model = MlpConfig{{whole(1000), whole(1000), whole(10)}, share()};
      job.data = SyntheticData{};
  }
  job.memory.arena = random() % 2 == 0;
  for (const char* key : {"adam8bit", "offload"})
    if (random() % 2 == 0) job.memory.allow.insert(key);
  TrainConfig& train = job.train;
  train.batch_size = whole(1000);
  train.steps = 10 + whole(1000);
  train.optimizer.weight_decay = share() * 1e-3;
  if (random() % 2 == 0) {
    train.optimizer.kind = OptimizerKind::kSgd;
    train.optimizer.momentum = share();
  } else {
    train.optimizer.beta1 = share();
    train.optimizer.beta2 = share();
    train.optimizer.eps = share() + 1e-300;
  }
  train.learning_rate = share() + 1e-12;
  train.schedule = static_cast<Schedule>(random() % 3);
  train.warmup_steps = whole(10);
  if (random() % 2 == 0) train.max_grad_norm = 1 + share();
  train.evaluate_every = whole(100);
  train.evaluation_batches = whole(9);
  train.save_every = whole(99);
  train.run_dir = text();
  train.seed = random() >> 1;
  train.threads = static_cast<int>(whole(64));
  if (random() % 2 == 0) job.memory.budget = Bytes(whole(std::int64_t{1} << 40));
  return job;
}

void expect_equal(const Job& a, const Job& b) {
  // to_toml writes every key and prints doubles so that they read back exactly: equal text, equal jobs.
  EXPECT_EQ(to_toml(a), to_toml(b));
  EXPECT_EQ(a.train.learning_rate, b.train.learning_rate);
  EXPECT_EQ(a.train.run_dir, b.train.run_dir);
  EXPECT_EQ(a.train.optimizer.eps, b.train.optimizer.eps);
  EXPECT_EQ(a.train.seed, b.train.seed);
  EXPECT_EQ(a.memory.budget, b.memory.budget);
  EXPECT_EQ(a.memory.allow, b.memory.allow);
  EXPECT_EQ(a.memory.arena, b.memory.arena);
  if (const auto* text = std::get_if<TextData>(&a.data)) {
    EXPECT_EQ(text->path, std::get<TextData>(b.data).path);
  }
}

TEST(Job, WhatIsPrintedReadsBackTheSame) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 300; ++i) {
    const Job job = random_job(random);
    const std::string text = to_toml(job);
    SCOPED_TRACE(text);
    expect_equal(parse(text, "printed"), job);
  }
}

TEST(Job, EveryKeyIsPrinted) {
  const std::string text = to_toml(with(kGpt, {"train.max_grad_norm=1", "memory.budget=1GiB"}));
  for (const char* key : {"kind", "layers", "hidden_size", "heads", "context_length", "vocab_size", "dropout",
                          "attention_dropout", "tie_weights", "path", "held_out", "batch_size", "steps", "optimizer",
                          "betas", "eps", "weight_decay", "learning_rate", "schedule", "warmup_steps", "max_grad_norm",
                          "precision", "evaluate_every", "evaluation_batches", "save_every", "run_dir", "seed",
                          "threads", "budget", "allow"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\n") + key + " = ")) << key;
  }
}

// ---- schedule

TrainConfig schedule_of(Schedule schedule, std::int64_t steps, std::int64_t warmup, double rate) {
  TrainConfig train;
  train.steps = steps;
  train.learning_rate = rate;
  train.schedule = schedule;
  train.warmup_steps = warmup;
  return train;
}

TEST(LearningRate, WarmsUpLinearlyThenStays) {
  TrainConfig train = schedule_of(Schedule::kConstant, 100, 0, 1);
  EXPECT_EQ(learning_rate_at(train, 1), 1);
  EXPECT_EQ(learning_rate_at(train, 100), 1);
  train.warmup_steps = 10;
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 1), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 10), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 11), 1);
}

TEST(LearningRate, LinearAndCosineFallToZeroAtTheLastStep) {
  TrainConfig train = schedule_of(Schedule::kLinear, 110, 10, 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 10), 2);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 35), 1.5);
  EXPECT_EQ(learning_rate_at(train, 110), 0);
  train.schedule = Schedule::kCosine;
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 60), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(train, 35), 1 + std::sqrt(0.5));
  EXPECT_EQ(learning_rate_at(train, 110), 0);
  EXPECT_EQ(learning_rate_at(train, 500), 0);
}

TEST(LearningRate, NeverRisesAfterTheWarmUpNorLeavesItsRange) {
  for (const Schedule schedule : {Schedule::kConstant, Schedule::kLinear, Schedule::kCosine}) {
    for (const std::int64_t warmup : {0, 1, 7, 20}) {
      const TrainConfig train = schedule_of(schedule, 20, warmup, 3);
      for (std::int64_t step = 1; step <= 20; ++step) {
        EXPECT_GE(learning_rate_at(train, step), 0);
        EXPECT_LE(learning_rate_at(train, step), 3);
        if (step > warmup + 1) {
          EXPECT_LE(learning_rate_at(train, step), learning_rate_at(train, step - 1));
        }
      }
    }
  }
}
}  // namespace
}  // namespace cinch::job
