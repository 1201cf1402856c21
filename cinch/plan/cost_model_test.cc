#include "cinch/plan/cost_model.h"

#include <gtest/gtest.h>

#include "cinch/trace/builder.h"

namespace cinch::plan {
namespace {
using trace::OpCall;
using trace::Phase;

device::DeviceSpec machine() {
  device::DeviceSpec spec;
  spec.name = "cpu";
  spec.peak_rates = {{DType::kFloat32, 100e9}, {DType::kFloat64, 50e9}};
  spec.bytes_per_second = 10e9;
  spec.launch = Seconds(1e-6);
  return spec;
}

OpCall call(double flops, std::int64_t read, std::int64_t written, DType dtype = DType::kFloat32) {
  OpCall op;
  op.flops = flops;
  op.read = Bytes(read);
  op.written = Bytes(written);
  op.dtype = dtype;
  return op;
}

TEST(CostModel, RooflineIsTheSlowerOfArithmeticAndMemoryPlusLaunch) {
  const CostModel costs(machine());
  EXPECT_FALSE(costs.calibrated());
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e9, 1000, 1000)).count(), 0.01 + 1e-6);
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e3, 6'000'000, 4'000'000)).count(), 1e-3 + 1e-6);
  EXPECT_DOUBLE_EQ(costs.op_time(call(0, 0, 0)).count(), 1e-6);
}

TEST(CostModel, OnACardLaunchesAreHiddenBehindWork) {
  device::DeviceSpec card = machine();
  card.type = device::DeviceType::kCuda;
  const CostModel costs(card);
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e9, 1000, 1000)).count(), 0.01);
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e3, 10, 10)).count(), 1e-6);
}

TEST(CostModel, ATypeWithoutARateRunsAtTheSlowest) {
  const CostModel costs(machine());
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e9, 0, 0, DType::kFloat64)).count(), 0.02 + 1e-6);
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e9, 0, 0, DType::kInt64)).count(), 0.02 + 1e-6);
}

TEST(CostModel, MeasuredRatesAreInterpolatedInTheLogarithmOfSizeAndClamped) {
  const CostModel costs(machine(), {.matrix = {{1e6, 10e9}, {1e8, 30e9}}, .elementwise = {{1e3, 1e9}, {1e5, 5e9}}});
  EXPECT_TRUE(costs.calibrated());
  const auto matrix_rate = [&](double flops) { return flops / (costs.op_time(call(flops, 0, 0)).count() - 1e-6); };
  EXPECT_NEAR(matrix_rate(1e7), 20e9, 1e3);
  EXPECT_NEAR(matrix_rate(1e6), 10e9, 1e3);
  EXPECT_NEAR(matrix_rate(1e3), 10e9, 1e6);
  EXPECT_NEAR(matrix_rate(1e12), 30e9, 1e3);
  EXPECT_NEAR(costs.op_time(call(0, 5'000, 5'000)).count(), 1e4 / 3e9 + 1e-6, 1e-12);
}

TEST(CostModel, AnOpWithACurveOfItsOwnFollowsIt) {
  Calibration calibration{.matrix = {{1e6, 10e9}}, .elementwise = {{1e3, 1e9}}};
  calibration.ops["aten::bernoulli_"] = {{1e3, 2e6}, {1e5, 4e6}};
  calibration.ops["aten::convolution"] = {{1e6, 5e9}};
  const CostModel costs(machine(), calibration);
  EXPECT_NEAR(costs.op_time(call(0, 5'000, 5'000), "aten::bernoulli_").count(), 1e4 / 3e6 + 1e-6, 1e-12);
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e9, 5'000, 5'000), "aten::convolution").count(), 0.2 + 1e-6);  // by flops
  EXPECT_DOUBLE_EQ(costs.op_time(call(0, 0, 0), "aten::bernoulli_").count(), 1e-6);
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e9, 0, 0), "aten::mm").count(), 0.1 + 1e-6);
  trace::TraceBuilder b;
  b.phase(Phase::kBackward, 1).op("aten::bernoulli_", 0, Bytes(100'000));
  b.op("aten::mm", 1e9);
  EXPECT_NEAR(costs.step_time(b.build()).count(), 1e5 / 4e6 + 0.1 + 2e-6, 1e-9);
}

TEST(CostModel, ArithmeticIsNeverSlowerThanTheStep) {
  Calibration calibration{.matrix = {{1e6, 10e9}, {1e8, 20e9}}, .elementwise = {{1e3, 1e9}}};
  calibration.ops["aten::convolution"] = {{1e6, 25e9}, {1e8, 50e9}};
  trace::TraceBuilder b;
  b.phase(Phase::kBackward, 1).op("aten::convolution", 1e9);
  b.op("aten::mm", 1e9);
  const trace::Trace trace = b.build();
  const CostModel costs(machine(), calibration);
  EXPECT_NEAR(costs.arithmetic_time(trace).count(), 0.02 + 0.05, 1e-12);
  EXPECT_LE(costs.arithmetic_time(trace), costs.step_time(trace));
}

TEST(CostModel, AMeasuredLaunchOutranksTheDevices) {
  const CostModel costs(machine(), {.matrix = {{1e6, 10e9}}, .elementwise = {}, .launch = Seconds(5e-6)});
  EXPECT_DOUBLE_EQ(costs.op_time(call(0, 0, 0)).count(), 5e-6);
}

TEST(CostModel, OneMeasuredPointHoldsForAllSizes) {
  const CostModel costs(machine(), {.matrix = {{1e6, 10e9}}, .elementwise = {}});
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e9, 0, 0)).count(), 0.1 + 1e-6);
}

TEST(CostModel, AStepIsTheLastThatTrainsWithoutEvaluationAndSaving) {
  trace::TraceBuilder b;
  b.phase(Phase::kInit, 0).op("init", 1e12);
  for (std::uint32_t step = 1; step <= 2; ++step) {
    b.phase(Phase::kForward, step).op("forward", 1e9 * step);
    b.phase(Phase::kBackward, step).module("m").recompute(true).op("again", 1e9);
    b.recompute(false).op("backward", 2e9);
    b.phase(Phase::kOptimizer, step).op("update", 0, Bytes(10'000'000));
  }
  b.phase(Phase::kEvaluation, 2).op("forward", 1e12);
  b.phase(Phase::kEvaluation, 3).op("forward", 1e12);
  const trace::Trace trace = b.build();
  const CostModel costs(machine());
  EXPECT_NEAR(costs.step_time(trace).count(), 0.02 + 0.01 + 0.02 + 0.001 + 4e-6, 1e-12);
  EXPECT_NEAR(costs.arithmetic_time(trace).count(), 0.04, 1e-12);
  double again = 0, all = 0;
  costs.for_each_op(
      [&](const trace::OpCall& call, Seconds time) {
        all += time.count();
        if (!call.recompute) return;
        EXPECT_EQ(trace.name(call.module), "m");
        again += time.count();
      },
      trace);
  EXPECT_NEAR(again, 0.01 + 1e-6, 1e-12);
  EXPECT_NEAR(all, costs.step_time(trace).count(), 1e-12);
}

TEST(CostModel, BytesBesideFlopsTakeTimeOnTop) {
  Calibration calibration{.matrix = {{1e6, 10e9}}, .elementwise = {}};
  calibration.ops["aten::convolution"] = {{1e6, 5e9}};
  calibration.ops["aten::convolution/bytes"] = {{1e3, 2e6}};
  const CostModel costs(machine(), calibration);
  EXPECT_DOUBLE_EQ(costs.op_time(call(1e9, 500'000, 500'000), "aten::convolution").count(), 0.2 + 0.5 + 1e-6);
}

TEST(CostModel, OnACardCopiesHideBehindThePhaseThatComputes) {
  device::DeviceSpec card = machine();
  card.type = device::DeviceType::kCuda;
  card.host_bytes_per_second = 1e9;
  const CostModel costs(card);
  trace::TraceBuilder b;
  b.phase(Phase::kForward, 1).op("mm", 1e9);  // 10 ms
  b.op("cinch::offload", 0, Bytes(4'000'000));  // 4 ms: hidden
  b.phase(Phase::kBackward, 1).op("cinch::fetch", 0, Bytes(2'000'000));  // Waited for.
  b.op("mm", 1e9);
  b.op("cinch::fetch", 0, Bytes(30'000'000));  // Longer than what is computed meanwhile.
  const double launch = 1e-6;
  EXPECT_NEAR(costs.step_time(b.build()).count(), 0.010 + 0.002 + 0.030 + 2 * launch, 1e-9);
}

TEST(CostModel, OnACpuCopiesTakeTurnsWithTheComputationAndADiskIsNoFasterThanItIs) {
  device::DeviceSpec cpu = machine();
  trace::TraceBuilder b;
  b.phase(Phase::kBackward, 1).op("mm", 1e9);
  b.phase(Phase::kOptimizer, 1).op("cinch::read_state", 0, Bytes(10'000'000));
  const trace::Trace trace = b.build();
  EXPECT_NEAR(CostModel(cpu).step_time(trace).count(), 0.010 + 0.001 + 2e-6, 1e-9);
  cpu.disk_bytes_per_second = 1e9;
  EXPECT_NEAR(CostModel(cpu).step_time(trace).count(), 0.010 + 0.010 + 2e-6, 1e-9);
}

TEST(CostModel, ATraceThatNeverTrainsTakesNoTime) {
  trace::TraceBuilder b;
  b.phase(Phase::kForward, 1).op("forward", 1e9);
  EXPECT_EQ(CostModel(machine()).step_time(b.build()).count(), 0);
}
}  // namespace
}  // namespace cinch::plan
