// Usage: make_page KIND EVENTS OUT
// Writes OUT.html, the report of a made-up training of at least so many events, and OUT.json, what it has to show,
// found another way than the page's. KIND: estimate, fit (predicted beside measured), card, hostile (names that would
// break a page which does not escape them), varied (estimate; no step is like another).
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "cinch/core/text.h"
#include "cinch/report/report.h"
#include "cinch/report/summarize.h"
#include "cinch/trace/builder.h"

namespace {

using namespace cinch;
using namespace cinch::literals;
using nlohmann::ordered_json;
using trace::AllocationId;
using trace::Category;
using trace::Phase;

const std::string kHostile = "</script><img src=x onerror=\"window.hurt=1\">'&<!--";

/// A transformer of some layers, as its allocator would see it trained.
class Training {
 public:
  Training(bool hostile, bool varied) : hostile_(hostile), varied_(varied) { init(); }

  trace::Trace run(std::size_t events) {
    step(1);
    const std::size_t first = builder_.build().events().size();
    step(2);
    std::size_t done = builder_.build().events().size();
    const std::size_t each = done - first;  // All later steps have as many.
    for (std::uint32_t number = 3; done < events; ++number, done += each) step(number);
    trace::Trace trace = builder_.build();
    trace::classify(trace);
    return trace;
  }

 private:
  static constexpr int kLayers = 12;
  static constexpr std::int64_t kWidth = 256, kBatch = 8, kHeads = 4;

  std::string layer(int i) const { return (hostile_ ? kHostile : "") + "layers." + std::to_string(i); }

  AllocationId floats(std::vector<std::int64_t> sizes) { return builder_.alloc({DType::kFloat32, std::move(sizes)}); }

  void init() {
    builder_.phase(Phase::kInit, 0);
    const auto parameter = [&](const std::string& name, std::vector<std::int64_t> sizes) {
      parameters_.push_back({name, sizes, {}});
      builder_.label(floats(std::move(sizes)), Category::kParameter, name);
    };
    parameter("embedding.weight", {8192, kWidth});
    for (int i = 0; i < kLayers; ++i) {
      parameter(layer(i) + ".attention.weight", {3 * kWidth, kWidth});
      parameter(layer(i) + ".mlp.up.weight", {4 * kWidth, kWidth});
      parameter(layer(i) + ".mlp.down.weight", {kWidth, 4 * kWidth});
    }
  }

  void step(std::uint32_t number) {
    const std::int64_t length = varied_ ? std::uniform_int_distribution<std::int64_t>(64, 8192)(random_) : 128;
    builder_.phase(Phase::kData, number);
    const AllocationId input = builder_.alloc({DType::kInt64, {kBatch, length}});
    builder_.label(input, Category::kInput);
    std::vector<std::pair<std::string, AllocationId>> kept;
    builder_.phase(Phase::kForward, number);
    const auto keep = [&](const std::string& module, const char* op, std::vector<std::int64_t> sizes) {
      builder_.module(module).op(hostile_ ? kHostile : op);
      builder_.free(floats({kBatch, length, 64}));  // A kernel's scratch.
      kept.emplace_back(module, floats(std::move(sizes)));
    };
    for (int i = 0; i < kLayers; ++i) {
      keep(layer(i) + ".attention", "aten::addmm", {kBatch, length, 3 * kWidth});
      keep(layer(i) + ".attention", "aten::_softmax", {kBatch, kHeads, length, length});
      keep(layer(i) + ".mlp.up", "aten::addmm", {kBatch, length, 4 * kWidth});
      keep(layer(i) + ".mlp", "aten::gelu", {kBatch, length, 4 * kWidth});
    }
    builder_.phase(Phase::kBackward, number);
    for (std::size_t i = kept.size(); i-- > 0;) {
      builder_.module(kept[i].first).recompute(i % 16 == 3).op("aten::mm");
      builder_.free(floats({kBatch, length, 2 * kWidth})).free(kept[i].second);
    }
    builder_.recompute(false);
    for (auto& parameter : parameters_) {
      parameter.gradient = floats(parameter.sizes);
      builder_.label(parameter.gradient, Category::kGradient, parameter.name);
    }
    builder_.phase(Phase::kOptimizer, number).op("aten::_fused_adamw_");
    for (auto& parameter : parameters_) {
      if (number == 1) {
        for (const char* state : {".exp_avg", ".exp_avg_sq"})
          builder_.label(floats(parameter.sizes), Category::kOptimizerState, parameter.name + state);
      }
      builder_.free(parameter.gradient);
    }
    builder_.free(input);
  }

  struct Parameter {
    std::string name;
    std::vector<std::int64_t> sizes;
    AllocationId gradient;
  };
  const bool hostile_, varied_;
  std::mt19937 random_{7};
  trace::TraceBuilder builder_;
  std::vector<Parameter> parameters_;
};

report::PeakSummary summarize(const trace::Trace& trace, report::Curve& curve, report::History& history) {
  curve = report::thin(trace);
  history = report::history(trace);
  return report::summarize_peak(trace, 1000);
}

std::string estimate_page(const trace::Trace& trace, const std::string& kind) {
  report::Estimate estimate;
  estimate.environment = {"2.11.0", kind == "card" ? "rtx4090-24gb" : "cpu", 2};
  estimate.job = kind == "hostile" ? kHostile : "examples/made-up.toml";
  estimate.peak = summarize(trace, estimate.curve, estimate.history);
  estimate.parameters = 11'534'336;
  estimate.budget = 16_GiB;
  estimate.capacity = 24_GiB;
  if (kind == "card") {
    estimate.peak.card = report::CardBytes{estimate.peak.requested, estimate.peak.requested + 64_MiB, 400_MiB};
    estimate.budget = estimate.peak.card->on_card() + 20_MiB;
  }
  estimate.budget_given = true;
  estimate.fits = estimate.peak.needed() <= estimate.budget;
  estimate.elapsed_seconds = 0.08;
  estimate.suggestions = {{"checkpoint 12 of 12 modules", 120_MiB, 0.5, true, plan::Equivalence::kBitwise},
                          {"micro-batch 4", 180_MiB, 0.4, true, plan::Equivalence::kReassociated}};
  return report::html(estimate);
}

std::string fit_page(const trace::Trace& trace) {
  report::FitSummary fit;
  fit.environment = {"2.11.0", "cpu", 2};
  fit.job = "examples/made-up.toml";
  fit.predicted = summarize(trace, fit.predicted_curve, fit.predicted_history);
  fit.measured = summarize(trace, fit.measured_curve, fit.measured_history);
  fit.budget = fit.measured.requested + 30_MiB;
  for (int step = 1; step <= 100; ++step) fit.steps.push_back({step, 2 + 3.0 / step});
  fit.evaluations = {{0, 5.5}, {50, 3}, {100, 2.5}};
  fit.run_dir = "runs/made-up";
  return report::html(fit);
}

ordered_json by_category(const trace::CategoryBytes& live) {
  ordered_json result;
  for (int i = 0; i < trace::kCategoryCount; ++i) {
    const auto category = static_cast<Category>(i);
    result[std::string(name_of(category))] = live[category].count();
  }
  return result;
}

ordered_json expected(const trace::Trace& trace) {
  const trace::Timeline timeline(trace);
  const auto at = [&](std::size_t i) -> ordered_json {
    const trace::Event& event = trace.events()[i];
    return {{"event", i},
            {"step", event.step},
            {"phase", name_of(event.phase)},
            {"recompute", event.recompute},
            {"module", trace.name(event.module)},
            {"op", trace.op_name(event.op)},
            {"total", timeline.live(i).count()},
            {"bytes", by_category(timeline.live_by_category(i))}};
  };
  ordered_json result = {{"events", trace.events().size()}, {"peak", at(timeline.peak().event)}};
  result["tensors"] = timeline.live_allocations(timeline.peak().event).size();
  for (std::size_t i = 0; i < 40; ++i) result["samples"].push_back(at(i * (trace.events().size() - 1) / 39));
  return result;
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: make_page KIND EVENTS OUT\n"), 2;
  const std::string kind = argv[1], out = argv[3];
  const trace::Trace trace = Training(kind == "hostile", kind == "varied").run(std::stoul(argv[2]));
  write_file(out + ".html", kind == "fit" ? fit_page(trace) : estimate_page(trace, kind));
  write_file(out + ".json", expected(trace).dump(1));
  return 0;
}
