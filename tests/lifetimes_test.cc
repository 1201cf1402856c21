// What copies, views and graphs cost, as docs/lifetimes.md says it.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/leak_check.h"
#include "cinch/trace/trace.h"
#include "tests/documentation.h"

namespace cinch::tests {
namespace {

struct Row {
  std::string code;
  std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)> run;
  std::string note;
};

const std::vector<Row>& rows() {
  using T = const at::Tensor&;
  static const std::vector<Row> all{
      {"x.detach()", [](T x, T) { return x.detach(); }, "same memory"},
      {"x.view({-1}), x.t(), x.expand(…)",
       [](T x, T) {
         return x.view({-1}).view({1024, 1024}).t();
       },
       "same memory"},
      {"x[0]", [](T x, T) { return x[0]; }, "a row that keeps all of it"},
      {"x[0].clone()", [](T x, T) { return x[0].clone(); }, "a row"},
      {"x.clone()", [](T x, T) { return x.clone(); }, ""},
      {"x.contiguous()", [](T x, T) { return x.contiguous(); }, "it is: same tensor"},
      {"x.t().contiguous()", [](T x, T) { return x.t().contiguous(); }, "a copy"},
      {"x.reshape({-1})", [](T x, T) { return x.reshape({-1}); }, "a view where strides allow"},
      {"x.t().reshape({-1})", [](T x, T) { return x.t().reshape({-1}); }, "else a copy"},
      {"x.to(at::kFloat)", [](T x, T) { return x.to(at::kFloat); }, "it is: same tensor"},
      {"x.to(at::kBFloat16)", [](T x, T) { return x.to(at::kBFloat16); }, "half the bytes"},
      {"x.add_(1)", [](T x, T) { return x.add_(1); }, "in place"},
      {"x + 1", [](T x, T) { return x + 1; }, ""},
      {"x * w", [](T x, T w) { return x * w; }, "the graph keeps `x` for the gradient of `w`"},
      {"x * w, under NoGradGuard",
       [](T x, T w) {
         const at::NoGradGuard no_grad;
         return x * w;
       },
       "no graph"},
      {"(x * w).detach()", [](T x, T w) { return (x * w).detach(); }, "the graph is gone"},
      {"(x * w).clone()", [](T x, T w) { return (x * w).clone(); }, "a copy, and the graph with `x`"},
      {"(x * w).exp()", [](T x, T w) { return (x * w).exp(); }, "`exp` keeps its result: it is the same memory"},
      {"(x * w).sin()", [](T x, T w) { return (x * w).sin(); }, "`sin` keeps its argument"},
      {"(x * w).sum()", [](T x, T w) { return (x * w).sum(); }, "4 bytes that keep 4 MiB"},
      {"(x * w).sum().detach()", [](T x, T w) { return (x * w).sum().detach(); }, "4 bytes, as would item()"},
  };
  return all;
}

/// What `row` takes, and what its result keeps once x and everything else is let go of. x: 4 MiB of float32.
std::pair<Bytes, Bytes> cost_of(const Row& row) {
  const auto w = at::ones({1024, 1024}).requires_grad_();
  trace::Trace trace;
  const record::Recorder recorder(trace);
  auto x = at::ones({1024, 1024});
  const auto before = recorder.live();
  const auto y = row.run(x, w);
  const auto taken = recorder.live() - before;
  x.reset();
  return {taken, recorder.live()};
}

std::string table() {
  std::ostringstream out;
  out << "| `y =` | takes | `y` alone keeps | |\n|---|---|---|---|\n";
  for (const auto& row : rows()) {
    const auto [taken, kept] = cost_of(row);
    out << "| `" << row.code << "` | " << to_string(taken) << " | " << to_string(kept) << " | " << row.note << " |\n";
  }
  return out.str();
}

TEST(LeakCheck, FindsWhatADryRunKeeps) {
  trace::Trace trace;
  const dryrun::DryRun dry(trace, device::find("cpu"));
  const auto weight = at::rand({256, 256}).requires_grad_();
  at::Tensor loss;
  techniques::LeakCheck check;
  loss = weight.mm(at::rand({256, 256})).tanh().sum();
  check.name(loss, "loss");
  const auto leaks = check.leaks();
  std::string all;
  for (const auto& leak : leaks) all += leak.text() + "\n";
  EXPECT_TRUE(dryrun::is_fake(weight));
  EXPECT_NE(
      all.find("256 KiB Float [256, 256], made by aten::tanh: saved by TanhBackward0 for the backward pass of loss"),
      std::string::npos)
      << all;
}

TEST(Lifetimes, CostWhatTheDocumentationSays) { expect_in_documentation("lifetimes.md", "lifetimes_test.cc", table()); }
}  // namespace
}  // namespace cinch::tests
