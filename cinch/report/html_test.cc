#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cinch/report/internal/assets.h"
#include "cinch/report/internal/chart.h"
#include "cinch/report/internal/page.h"
#include "cinch/report/internal/samples_for_test.h"
#include "cinch/report/report.h"
#include "cinch/report/summarize.h"
#include "cinch/trace/builder.h"

namespace cinch::report {
namespace {

using namespace internal;
using testing::HasSubstr;
using testing::Not;

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

/// Every element that is opened is closed, in order; what HTML leaves open is known.
std::string first_fault(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) return "no > after " + html.substr(at, 40);
    const std::string tag = html.substr(at + 1, end - at - 1), name = tag.substr(0, tag.find_first_of(" />", 1));
    if (tag.starts_with('!') || name == "meta" || tag.ends_with('/')) continue;
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != name) return "unexpected <" + tag + ">";
      open.pop_back();
    } else {
      open.push_back(name);
      if (name == "script" || name == "style") at = html.find("</" + name, end) - 1;
    }
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

std::vector<std::string> all_pages() {
  Estimate no_curve = sample_estimate();
  no_curve.curve = {};
  FitSummary nothing;
  return {html(sample_estimate()),   html(no_curve),     html(sample_planned()),
          html(sample_infeasible()), html(sample_fit()), html(nothing)};
}

/// sample_estimate() with a history of a step in the module `module`.
Estimate with_history(const std::string& module) {
  trace::TraceBuilder builder;
  builder.phase(Phase::kForward, 1).module(module).op(module);
  builder.label(builder.alloc(1_MiB), Category::kParameter, module);
  builder.free(builder.alloc(1_MiB));
  Estimate estimate = sample_estimate();
  estimate.history = history(builder.build());
  return estimate;
}

/// Without what d3 brings: it names the namespaces of SVG and the like, which are no addresses to go to.
std::string without_d3(std::string page) {
  const std::size_t at = interactive() ? page.find(asset("d3.min.js")) : std::string::npos;
  return at == std::string::npos ? page : page.erase(at, asset("d3.min.js").size());
}

TEST(Html, WithAHistoryIsDrawnByTheScriptAndHasItsStaticFigures) {
  const std::string page = html(with_history("layers.0"));
  EXPECT_EQ(first_fault(without_d3(page)), "");
  EXPECT_EQ(count(page, "id=\"history-predicted\""), 1u);
  EXPECT_EQ(count(page, "class=\"moves memory-live\" data-history=\"predicted\""), 1u);
  EXPECT_EQ(count(page, "class=\"moves map-live\""), 1u);
  EXPECT_EQ(count(page, "class=\"still\""), 2u);
  EXPECT_THAT(page, HasSubstr("peak 600 MiB"));
  EXPECT_EQ(count(page, "<script>"), interactive() ? 3u : 1u);
  for (const char* what : {"http://", "https://", "src=", "href=", "@import", "url("})
    EXPECT_THAT(without_d3(page), Not(HasSubstr(what)));
}

TEST(Html, NamesOfAHistoryStandNowhereAsTheyAre) {
  EXPECT_THAT(html(with_history("</script><img onerror=hurt>")), Not(HasSubstr("<img")));
}

TEST(Html, WithoutAHistoryNeedsNoLibrary) { EXPECT_LT(html(sample_estimate()).size(), 150'000u); }

TEST(Html, FormsPlansAndTrainingsWithHistories) {
  Planned planned = sample_planned();
  planned.curve = sample_curve();
  planned.history = with_history("layers.0").history;
  EXPECT_EQ(count(html(planned), "memory-live"),
            1u + count(std::string(asset("start.js")), "memory-live") * interactive());
  FitSummary fit = sample_fit();
  fit.predicted_history = fit.measured_history = planned.history;
  EXPECT_EQ(count(html(fit), "data-over=\"predicted\""), 1u);
}

TEST(Html, OfACardSetsTensorsAgainstWhatTheContextLeaves) {
  Estimate estimate = sample_estimate();
  estimate.peak.card = CardBytes{610_MiB, 640_MiB, 400_MiB};
  estimate.budget = 1100_MiB;
  estimate.fits = true;
  EXPECT_THAT(html(estimate), HasSubstr("FITS: needs 1.02 GiB of 1.07 GiB"));
  EXPECT_THAT(html(estimate), HasSubstr("budget less context 700 MiB"));
}

TEST(Html, IsWellFormed) {
  for (const std::string& page : all_pages()) {
    EXPECT_EQ(first_fault(page), "");
    EXPECT_EQ(count(page, "<svg"), count(page, "</svg>"));
  }
}

TEST(Html, NeedsNothingFromElsewhere) {
  for (const std::string& page : all_pages()) {
    for (const char* what : {"http://", "https://", "src=", "href=", "@import", "url("})
      EXPECT_THAT(page, Not(HasSubstr(what)));
  }
}

TEST(Html, HasNoNumberThatIsNone) {
  FitSummary fit = sample_fit();
  fit.steps[3].loss = std::nan("");
  fit.evaluations[1].loss = std::nan("");
  for (const std::string& page : {html(fit), html(sample_planned()), html(sample_estimate())}) {
    EXPECT_EQ(count(page, "nan"), 0u);
    EXPECT_EQ(count(page, "inf "), 0u);
  }
}

TEST(Html, EscapesWhatComesFromOutside) {
  const std::string evil = "<b>&\"'";
  Estimate estimate = sample_estimate();
  estimate.job = estimate.peak.module = estimate.peak.tensors[0].name = estimate.suggestions[0].change = evil;
  estimate.environment.device = evil;
  FitSummary fit = sample_fit();
  fit.sample = fit.run_dir = fit.divergence.emplace() = evil;
  Planned planned = sample_infeasible();
  std::get<plan::Infeasible>(planned.result).advice = evil;
  for (const std::string& page : {html(estimate), html(fit), html(planned)}) {
    EXPECT_THAT(page, Not(HasSubstr("<b>")));
    EXPECT_THAT(page, HasSubstr("&lt;b&gt;&amp;&quot;&#39;"));
    EXPECT_EQ(first_fault(page), "");
  }
}

TEST(Html, ReplacesWhatIsNoText) { EXPECT_EQ(escape(std::string("a\0\xff\x1b[0m\n", 8)), "a\uFFFD\uFFFD\uFFFD[0m\n"); }

TEST(Html, ShowsTheBudgetWhereItIsNear) {
  const Curve curve = sample_curve();
  EXPECT_THAT(memory_chart(curve, 500_MiB), HasSubstr("budget 500 MiB"));
  EXPECT_THAT(memory_chart(curve, 500_GiB), Not(HasSubstr("budget 500 GiB")));
  EXPECT_THAT(memory_chart(curve, std::nullopt), HasSubstr("peak 600 MiB"));
}

TEST(Html, LaysThePredictionOverTheMeasurementWhereTheyRunAlike) {
  FitSummary fit = sample_fit();
  EXPECT_EQ(count(html(fit), "class=\"overlay\""), 1u);
  fit.measured_curve.points.resize(10);
  EXPECT_EQ(count(html(fit), "class=\"overlay\""), 0u);
  EXPECT_THAT(html(fit), HasSubstr("Memory over time, predicted"));
}

TEST(Html, SetsPlansThatAreNotAllowedApart) {
  Planned planned = sample_planned();
  EXPECT_EQ(count(html(planned), "class=\"give\""), 0u);
  planned.allowed = {"checkpoint", "micro_batch"};
  std::get<plan::Solution>(planned.result).would_give = internal::sample_gives();
  const std::string page = html(planned);
  EXPECT_EQ(first_fault(page), "");
  EXPECT_EQ(count(page, "class=\"give\""), 3u) << "on the chart and in its legend";
  EXPECT_THAT(page, HasSubstr(">adam8bit + bf16</text>"));
  EXPECT_THAT(page, HasSubstr("--allow adam8bit would give 60.0 MiB less: 540 MiB, -2 % time, FITS (lossy)"));
}

TEST(Html, SaysWhatWouldDoWhereNothingFits) {
  Planned planned = sample_infeasible();
  planned.smaller = {{"context 128", {"model.context_length=128"}, {sample_plan(), 99_MiB, plan::Seconds(0.1)}}};
  const std::string page = html(planned);
  EXPECT_EQ(first_fault(page), "");
  EXPECT_THAT(page, HasSubstr("Smaller jobs that fit"));
  EXPECT_THAT(page, HasSubstr("cinch plan job.toml --set model.context_length=128 --budget 100MiB"));
}

TEST(Html, MarksTheChosenPlan) {
  const std::string page = html(sample_planned());
  EXPECT_EQ(count(page, "class=\"dot best\""), 2u) << "on the chart and in its legend";
  EXPECT_EQ(count(page, "<tr class=\"best\">"), 1u);
  EXPECT_EQ(count(page, "<tr class=\"over\">"), 1u);
}

TEST(Ticks, AreRoundAndWithin) {
  EXPECT_EQ(ticks(0, 700, 6), (std::vector<double>{0, 200, 400, 600}));
  EXPECT_EQ(ticks(2.1, 5.4, 6), (std::vector<double>{3, 4, 5}));
  EXPECT_TRUE(ticks(1, 1, 6).empty());
}
}  // namespace
}  // namespace cinch::report
