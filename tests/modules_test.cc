// Every family of modules and functions, two training steps each, dry and real: equal to the byte.
#include "tests/modules.h"

#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cstdlib>
#include <mutex>
#include <set>

#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/dryrun/internal/check_rules.h"
#include "cinch/dryrun/internal/rule_table.h"
#include "cinch/optim/optimizer.h"
#include "cinch/record/recorder.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"

namespace cinch::tests {
namespace {

const Rows& table() {
  static const auto* rows = [] {
    auto* all = new Rows;
    add_layer_rows(*all);
    add_activation_rows(*all);
    add_loss_rows(*all);
    add_sequence_rows(*all);
    add_function_rows(*all);
    add_shape_rows(*all);
    add_numeric_rows(*all);
    return all;
  }();
  return *rows;
}

// ---- a row as a program ---------------------------------------------------------------------------------------------

enum class Optimizer : std::uint8_t { kTorchSgd, kTorchAdamW, kSgd, kAdamW };

struct Step {
  std::function<void()> update;
  std::shared_ptr<torch::optim::Optimizer> of_torch;
  std::shared_ptr<optim::Optimizer> of_cinch;
};

/// Of cinch for real floating point alone.
Step make_optimizer(Optimizer kind, const std::vector<at::Tensor>& parameters) {
  bool fused = true;
  for (const auto& parameter : parameters) fused = fused && parameter.is_floating_point();
  if (parameters.empty()) return {[] {}, nullptr, nullptr};
  if (fused && (kind == Optimizer::kSgd || kind == Optimizer::kAdamW)) {
    optim::ParameterGroup group;
    group.learning_rate = 1e-3;
    for (std::size_t i = 0; i < parameters.size(); ++i) group.parameters.push_back({std::to_string(i), parameters[i]});
    std::shared_ptr<optim::Optimizer> optimizer =
        kind == Optimizer::kSgd ? optim::sgd({group}, {.momentum = 0.9}) : optim::adamw({group});
    return {[optimizer] { optimizer->step({.max_grad_norm = 1.0}); }, nullptr, optimizer};
  }
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  if (kind == Optimizer::kTorchAdamW || kind == Optimizer::kAdamW)
    optimizer = std::make_shared<torch::optim::AdamW>(parameters);
  else
    optimizer = std::make_shared<torch::optim::SGD>(parameters, torch::optim::SGDOptions(1e-3).momentum(0.9));
  return {[optimizer] { optimizer->step(); }, optimizer, nullptr};
}

at::Tensor loss_of(const at::Tensor& result) {
  if (result.dim() == 0 && result.is_floating_point()) return result;
  return (result.is_complex() ? at::view_as_real(result) : result).square().mean();
}

void train(const Row& row, Optimizer kind) {
  const auto in = [](trace::Phase phase, std::uint32_t step, const auto& work) {
    const trace::PhaseScope scope(phase, step);
    return work();
  };
  const auto learner = in(trace::Phase::kInit, 0, row.make);
  const auto optimizer = make_optimizer(kind, learner.parameters);
  for (std::uint32_t step = 1; step <= 2; ++step) {
    for (const auto& parameter : learner.parameters) parameter.mutable_grad() = at::Tensor();
    const auto loss = in(trace::Phase::kForward, step, [&] {
      const auto result = learner.forward();
      return result.is_floating_point() || result.is_complex() ? loss_of(result) : result;
    });
    if (loss.requires_grad()) in(trace::Phase::kBackward, step, [&] { loss.backward(); });
    in(trace::Phase::kOptimizer, step, [&] { optimizer.update(); });
  }
}

trace::Trace run_dry(const Row& row, Optimizer kind) {
  trace::Trace trace;
  const dryrun::DryRun dry(trace, device::find("cpu"));
  train(row, kind);
  return trace;
}

trace::Trace run_real(const Row& row, Optimizer kind) {
  trace::Trace trace;
  at::manual_seed(3);
  const record::Recorder recorder(trace);
  train(row, kind);
  return trace;
}

// ---- every row ------------------------------------------------------------------------------------------------------

class Modules : public ::testing::TestWithParam<std::tuple<std::size_t, int>> {
 protected:
  void SetUp() override { at::set_num_threads(std::get<1>(GetParam())); }
  const Row& row() const { return table()[std::get<0>(GetParam())]; }
  Optimizer optimizer() const {
    return static_cast<Optimizer>((std::get<0>(GetParam()) + static_cast<std::size_t>(std::get<1>(GetParam()))) % 4);
  }
};

/// The rows whose peak no prediction can name (docs/dry-run.md); what lives after each phase is exact there too.
enum class Peak : std::uint8_t {
  kExact,
  kAtMost,     ///< A kernel chooses by values; predicted is what its larger branch takes.
  kByThreads,  ///< Threads take a little each while they work, together or one after the other.
};
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }
/// With dropout attention is not fused.
bool is_fused_attention(const std::string& row) { return row.starts_with("attention") && !contains(row, "dropout"); }
Peak peak_of(const std::string& row, int threads) {
  if (row == "matrix_exp" || (row.starts_with("reduce_") && contains(row, "prod"))) return Peak::kAtMost;
  if (is_fused_attention(row) && threads > 1) return Peak::kByThreads;
  return Peak::kExact;
}

/// What a second thread of fused attention's backward has beside the first, or not: the sums of a block's 32 rows. In
/// half precision the kernel is probed, so that prediction and recording may each have it or not; in bfloat16 oneDNN's
/// scratch for one product comes with it: 20,100 bytes for these sizes with AVX-512.
struct Racing {
  Bytes most;
  bool either_way = false;
};
Racing racing_of(const std::string& row) {
  if (contains(row, "bfloat16")) return {Bytes(32 * 4 + 32768), true};
  if (contains(row, "half")) return {Bytes(32 * 4), true};
  return {Bytes(32 * (contains(row, "double") ? 8 : 4))};
}

TEST_P(Modules, PredictedEqualsMeasured) {
  const auto predicted = run_dry(row(), optimizer()), recorded = run_real(row(), optimizer());
  const auto left = trace::Timeline(predicted).peak().bytes, right = trace::Timeline(recorded).peak().bytes;
  if (const auto kind = peak_of(row().name, std::get<1>(GetParam())); kind != Peak::kExact) {
    EXPECT_EQ(trace::phase_ends(predicted), trace::phase_ends(recorded));
    const auto racing = racing_of(row().name);
    if (kind == Peak::kAtMost || !racing.either_way) {
      EXPECT_GE(left, right);
    }
    if (kind == Peak::kByThreads) {
      EXPECT_LE(left, right + racing.most);
      EXPECT_LE(right, left + racing.most);
    }
    return;
  }
  const auto fault = trace::compare_phase_ends(predicted, recorded);
  EXPECT_EQ(fault.value_or("none"), "none");
  EXPECT_EQ(left, right);
  EXPECT_GT(left, Bytes());
  if (fault || left != right)
    if (const auto first = trace::first_divergence(predicted, recorded)) ADD_FAILURE() << first->sentence;
}

TEST_P(Modules, RulesDescribeTheirKernels) {
  const dryrun::internal::CheckRules check;
  run_dry(row(), optimizer());
  EXPECT_THAT(dryrun::internal::CheckRules::faults(), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Table, Modules,
                         ::testing::Combine(::testing::Range(std::size_t{0}, table().size()), ::testing::Values(1, 2)),
                         [](const auto& info) {
                           return table()[std::get<0>(info.param)].name + "_Threads" +
                                  std::to_string(std::get<1>(info.param));
                         });

// ---- every rule -----------------------------------------------------------------------------------------------------

/// Collects the ops that are dispatched while it lives.
class MetOps {
 public:
  MetOps()
      : handle_(at::addGlobalCallback(at::RecordFunctionCallback(&MetOps::note).scopes({at::RecordScope::FUNCTION}))) {}
  ~MetOps() { at::removeCallback(handle_); }
  static bool has(const std::string& rule) { return names().contains(rule); }

 private:
  static std::set<std::string>& names() {
    static std::set<std::string> all;
    return all;
  }
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    static std::mutex lock;
    if (const auto op = function.operator_name()) {
      const std::lock_guard guard(lock);
      names().insert(op->name);
      names().insert(op->name + "." + op->overload_name);
    }
    return nullptr;
  }
  at::CallbackHandle handle_;
};

/// tests/cuda_prediction_test.cc holds these against recordings.
bool of_cuda_alone(const std::string& rule) {
  return rule.find("cudnn") != std::string::npos || rule.find("efficient_attention") != std::string::npos ||
         (rule.find("flash_attention") != std::string::npos && rule.find("for_cpu") == std::string::npos);
}

TEST(Rules, EachIsMetByARow) {
  at::set_num_threads(1);
  const MetOps met;
  for (const auto& row : table()) run_dry(row, Optimizer::kTorchAdamW);
  for (const auto& row : {table().front()}) run_dry(row, Optimizer::kSgd), run_dry(row, Optimizer::kAdamW);
  std::string unmet;
  for (const auto& rule : dryrun::internal::rule_names())
    if (rule.starts_with("aten::") && !of_cuda_alone(rule) && !MetOps::has(rule)) unmet += rule.substr(6) + " ";
  EXPECT_EQ(unmet, "");
}
}  // namespace
}  // namespace cinch::tests
