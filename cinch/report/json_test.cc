#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "cinch/core/version.h"
#include "cinch/report/internal/samples_for_test.h"
#include "cinch/report/report.h"

namespace cinch::report {
namespace {

using namespace internal;
using nlohmann::json;

/// Every key of the list, and nothing that is missing. More keys may be there: documents grow.
void expect_keys(const json& object, std::initializer_list<const char*> keys) {
  ASSERT_TRUE(object.is_object());
  for (const char* key : keys) EXPECT_TRUE(object.contains(key)) << key;
}

void expect_head(const json& document, const char* schema) {
  EXPECT_EQ(document.at("schema"), schema);
  EXPECT_EQ(document.at("cinch"), kVersion);
  EXPECT_EQ(document.at("libtorch"), "2.11.0");
  EXPECT_EQ(document.at("device"), "cpu");
  EXPECT_EQ(document.at("threads"), 2);
}

void expect_sample_peak(const json& peak) {
  for (const char* key : {"requested_bytes", "allocated_bytes", "reserved_bytes", "device_bytes"}) {
    EXPECT_EQ(peak.at(key), 629145600) << key;
  }
  EXPECT_EQ(peak.at("step"), 2);
  EXPECT_EQ(peak.at("phase"), "backward");
  EXPECT_EQ(peak.at("module"), "blocks.1.mlp");
  EXPECT_EQ(peak.at("op"), "aten::gelu_backward");
}

TEST(Json, OfAnEstimate) {
  const json document = json::parse(report::json(sample_estimate()));
  expect_head(document, "cinch.estimate/1");
  EXPECT_EQ(document.at("fits"), false);
  EXPECT_EQ(document.at("budget_bytes"), 524288000);
  EXPECT_EQ(document.at("capacity_bytes"), 17179869184);
  EXPECT_EQ(document.at("elapsed_seconds"), 0.08);
  EXPECT_EQ(document.at("parameters"), 10485760);
  expect_sample_peak(document.at("peak"));

  const json& categories = document.at("categories_at_peak");
  expect_keys(categories,
              {"parameter", "gradient", "activation", "optimizer_state", "input", "buffer", "temporary", "unknown"});
  EXPECT_EQ(categories.size(), 8u);
  std::int64_t sum = 0;
  for (const auto& bytes : categories) sum += bytes.get<std::int64_t>();
  EXPECT_EQ(sum, 629145600);

  ASSERT_EQ(document.at("tensors_at_peak").size(), 5u);
  const json expected{
      {"bytes", 167772160},  {"category", "activation"}, {"name", ""},        {"module", "blocks.0.attention"},
      {"op", "aten::addmm"}, {"sizes", {32, 512, 2560}}, {"dtype", "float32"}};
  EXPECT_EQ(document.at("tensors_at_peak")[0], expected);
  EXPECT_EQ(document.at("steps")[2], (json{{"step", 2}, {"peak_requested_bytes", 629145600}}));
  const json& suggestion = document.at("suggestions").at(1);
  EXPECT_EQ(suggestion.at("change"), "micro-batch 16");
  EXPECT_EQ(suggestion.at("peak_bytes"), 534773760);
  EXPECT_EQ(suggestion.at("step_seconds"), 0.375);
  EXPECT_EQ(suggestion.at("equivalence"), "reassociated");
}

TEST(Json, OfAPlanThatFits) {
  const json document = json::parse(report::json(sample_planned()));
  expect_head(document, "cinch.plan/1");
  EXPECT_EQ(document.at("budget_bytes"), 671088640);
  EXPECT_EQ(document.at("fits"), true);
  EXPECT_EQ(document.at("plan").at("micro_batch_size"), 0);
  EXPECT_EQ(document.at("plan").at("activations"), (json{{"blocks.0", "checkpoint"}}));
  expect_sample_peak(document.at("predicted").at("peak"));
  EXPECT_EQ(document.at("predicted").at("step_seconds"), 0.45);
  EXPECT_EQ(document.at("gap"), 0.0);
  ASSERT_EQ(document.at("frontier").size(), 4u);
  EXPECT_EQ(document.at("frontier")[0].at("plan").at("micro_batch_size"), 16);
  EXPECT_EQ(document.at("frontier")[0].at("peak_bytes"), 262144000);
  EXPECT_EQ(document.at("frontier")[0].at("step_seconds"), 0.6);
  EXPECT_TRUE(document.at("infeasible").is_null());
  EXPECT_EQ(document.at("elapsed_seconds"), 1.9);
}

TEST(Json, OfAPlanThatDoesNotFitHasTheSameKeys) {
  const json fits = json::parse(report::json(sample_planned())),
             document = json::parse(report::json(sample_infeasible()));
  for (const auto& [key, value] : fits.items()) EXPECT_TRUE(document.contains(key)) << key;
  EXPECT_EQ(document.at("fits"), false);
  EXPECT_TRUE(document.at("plan").is_null());
  EXPECT_TRUE(document.at("frontier").empty());
  EXPECT_EQ(document.at("infeasible").at("floor_bytes"), 629145600);
  EXPECT_EQ(document.at("infeasible").at("tensors").size(), 5u);
  EXPECT_EQ(document.at("infeasible").at("advice"), "Parameters, gradients and optimizer state alone need 160 MiB.");
}

TEST(Json, SaysWhatPlansExchangeAndWhatOthersWouldGive) {
  Planned planned = sample_planned();
  planned.allowed = {"checkpoint", "micro_batch"};
  std::get<plan::Solution>(planned.result).would_give = sample_gives();
  json document = json::parse(report::json(planned));
  const json& smallest = document.at("frontier").at(0).at("exchange");
  EXPECT_EQ(smallest.at("change"), "micro-batch 16, checkpoint 1 of 2 modules");
  EXPECT_EQ(smallest.at("sentence"), "for 20 % more time, 22 % less memory: micro-batch 16, checkpoint 1 of 2 modules");
  EXPECT_DOUBLE_EQ(smallest.at("time_ratio"), 1.2);
  EXPECT_TRUE(document.at("frontier").back().at("exchange").is_null());
  EXPECT_EQ(document.at("would_give").size(), 2u);
  EXPECT_EQ(document.at("would_give").at(1).at("flags"), "--allow adam8bit --allow bf16");
  EXPECT_EQ(document.at("would_give").at(1).at("fits"), true);
  EXPECT_EQ(document.at("next"), "cinch train job.toml --budget 640MiB");
  planned = sample_infeasible();
  planned.smaller = {{"context 128", {"model.context_length=128"}, {sample_plan(), 99_MiB, plan::Seconds(0.1)}}};
  document = json::parse(report::json(planned));
  EXPECT_EQ(document.at("smaller").at(0).at("set"), json{"model.context_length=128"});
  EXPECT_EQ(document.at("smaller").at(0).at("peak_bytes"), 99 << 20);
}

TEST(Json, OfATraining) {
  const json document = json::parse(report::json(sample_fit()));
  expect_head(document, "cinch.train/1");
  expect_keys(document, {"plan", "budget_bytes", "predicted", "measured", "steps", "evaluations", "step_seconds",
                         "alloc_retries", "samples_per_second", "elapsed_seconds", "run_dir"});
  EXPECT_EQ(document.at("budget_bytes"), 734003200);
  expect_sample_peak(document.at("predicted").at("peak"));
  expect_sample_peak(document.at("measured").at("peak"));
  EXPECT_EQ(document.at("measured").at("reserved_bytes"), 610 << 20);
  EXPECT_EQ(document.at("measured").at("resident_bytes"), 1 << 30);
  EXPECT_EQ(document.at("equal"), true);
  EXPECT_EQ(document.at("steps").size(), 300u);
  EXPECT_EQ(document.at("evaluations")[0], (json{{"step", 0}, {"loss", 5.5}}));
  EXPECT_EQ(document.at("step_seconds"), (json{{"p50", 0.41}, {"p99", 0.5}, {"max", 0.61}}));
  EXPECT_EQ(document.at("alloc_retries"), 0);
  EXPECT_EQ(document.at("run_dir"), "runs/demo");
}

TEST(Json, WritesNullForWhatIsNoNumberOrNotThere) {
  FitSummary fit = sample_fit();
  fit.steps = {{1, std::nan("")}, {2, std::numeric_limits<double>::infinity()}};
  fit.samples_per_second = std::nan("");
  fit.budget.reset();
  fit.run_dir.clear();
  const json document = json::parse(report::json(fit));
  EXPECT_TRUE(document.at("steps")[0].at("loss").is_null());
  EXPECT_TRUE(document.at("steps")[1].at("loss").is_null());
  EXPECT_TRUE(document.at("samples_per_second").is_null());
  EXPECT_TRUE(document.at("budget_bytes").is_null());
  EXPECT_TRUE(document.at("run_dir").is_null());
}

TEST(Json, IsValidWhateverBytesAModelWrites) {
  FitSummary fit = sample_fit();
  fit.sample = "\"\x01\xff\xfe{";
  EXPECT_NO_THROW(json::parse(report::json(fit)));
}

TEST(Json, IsOneDocumentWithAClosingNewline) {
  const std::string text = report::json(sample_estimate());
  EXPECT_EQ(text.front(), '{');
  EXPECT_TRUE(text.ends_with("}\n"));
}
}  // namespace
}  // namespace cinch::report
