// Dry runs on a claimed CUDA device. No card is here: what is right follows from arithmetic and from recorded runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cinch/allocator/on_card.h"
#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/offload.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"
#include "cinch/train/estimate.h"
#include "tests/jobs.h"

namespace cinch::tests {
namespace {

device::DeviceSpec card(int capability) {
  device::DeviceSpec spec;
  spec.name = "card";
  spec.type = device::DeviceType::kCuda;
  spec.memory = Bytes(std::int64_t{80} << 30);
  spec.compute_capability = capability;
  spec.cublas_workspace = Bytes(std::int64_t{capability >= 90 ? 33'554'432 : 8'519'680});
  return spec;
}

/// Bytes that the second step's ops read and write, each as often as it is called.
double bytes_moved(const trace::Trace& trace) {
  double bytes = 0;
  for (const trace::OpCall& call : trace.ops())
    if (call.step == 2) bytes += static_cast<double>((call.read + call.written).count()) * call.times;
  return bytes;
}

// Backward runs on a thread of the device's own.
TEST(ClaimedCuda, AnAbridgedDryRunCountsForwardAndBackwardOfThePartsLeftOut) {
  const auto job = small_job(ModelKind::kGpt, 14);
  for (const auto policy : {plan::ActivationPolicy::kKeep, plan::ActivationPolicy::kCheckpoint}) {
    auto plan = checkpoint_all(job);
    for (auto& [path, its] : plan.activations) its = policy;
    plan.micro_batch_size = 3;
    const auto whole = train::simulator(job, card(80))(plan), abridged = train::abridged_simulator(job, card(80))(plan);
    EXPECT_LT(abridged.ops().size(), whole.ops().size());
    EXPECT_DOUBLE_EQ(bytes_moved(abridged), bytes_moved(whole));
    EXPECT_EQ(trace::Timeline(abridged).peak().bytes, trace::Timeline(whole).peak().bytes);
  }
}

TEST(ClaimedCuda, TensorsAreThere) {
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, card(80));
    EXPECT_TRUE(torch::cuda::is_available());
    const auto x = torch::rand({1024, 1024}, torch::kCUDA);
    EXPECT_TRUE(x.is_cuda());
    const auto host = torch::rand({1024, 1024});
    EXPECT_TRUE(host.is_cpu());
    EXPECT_TRUE((x + host.to(torch::kCUDA)).is_cuda());
    EXPECT_TRUE((x * 2).is_cuda());
    EXPECT_TRUE(x.cpu().is_cpu());
  }
  EXPECT_EQ(trace::Timeline(trace).peak().bytes, Bytes(3 * 4 * 1024 * 1024));
}

TEST(ClaimedCuda, AStep) {
  const auto estimate = cinch::estimate(
      [] {
        torch::nn::Linear net(1000, 100);
        net->to(torch::kCUDA);
        torch::optim::SGD optimizer(net->parameters(), 0.1);
        const auto x = torch::rand({50, 1000}, torch::kCUDA);
        net->forward(x).sum().backward();
        optimizer.step();
      },
      card(80));
  const trace::Timeline timeline(estimate.trace);
  const auto categories = timeline.live_by_category(timeline.peak().event);
  EXPECT_EQ(categories[trace::Category::kParameter], Bytes(4 * (1000 * 100 + 100)));
  EXPECT_GE(estimate.peak, Bytes(2 * 8'519'680));  // Forward's thread and backward's each have a workspace.
}

std::set<std::string> ops_of(const trace::Trace& trace) {
  std::set<std::string> ops;
  for (const auto& call : trace.ops()) ops.emplace(trace.name(call.name));
  return ops;
}

std::string attention_of(int capability, at::ScalarType type, std::int64_t head_size, bool masked = false) {
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, card(capability));
    const auto options = at::TensorOptions(at::kCUDA).dtype(type).requires_grad(true);
    const auto q = torch::empty({2, 4, 256, head_size}, options);
    std::optional<at::Tensor> mask;
    if (masked) mask = torch::zeros({256, 256}, at::TensorOptions(at::kCUDA).dtype(type));
    const auto y = at::scaled_dot_product_attention(q, q, q, mask);
    EXPECT_EQ(y.sizes(), q.sizes());
    y.sum().backward();
    EXPECT_EQ(q.grad().sizes(), q.sizes());
  }
  for (const char* kind : {"flash", "efficient", "cudnn"})
    if (ops_of(trace).contains(std::string("aten::_scaled_dot_product_") + kind + "_attention_backward")) return kind;
  return "math";
}

/// The rules of LibTorch 2.11, sdp_utils.cpp.
TEST(ClaimedCuda, AttentionRunsTheKernelThatTheCardHas) {
  EXPECT_EQ(attention_of(80, at::kBFloat16, 64), "flash");
  EXPECT_EQ(attention_of(89, at::kHalf, 128), "flash");
  EXPECT_EQ(attention_of(90, at::kBFloat16, 128), "cudnn");
  EXPECT_EQ(attention_of(90, at::kBFloat16, 256), "flash") << "wider than cuDNN takes";
  EXPECT_EQ(attention_of(89, at::kBFloat16, 256), "flash") << "without dropout";
  EXPECT_EQ(attention_of(89, at::kBFloat16, 224), "efficient") << "flash does not train heads of 193 to 224 there";
  EXPECT_EQ(attention_of(80, at::kFloat, 64), "efficient") << "flash takes half types alone";
  EXPECT_EQ(attention_of(80, at::kBFloat16, 64, /*masked=*/true), "efficient") << "flash takes no mask";
  EXPECT_EQ(attention_of(75, at::kHalf, 64), "efficient");
  EXPECT_EQ(attention_of(75, at::kBFloat16, 64), "math") << "bfloat16 needs 8.0";
  EXPECT_EQ(attention_of(80, at::kDouble, 64), "math");
}

struct Convolution {
  std::vector<std::int64_t> input, weight;
  std::int64_t stride = 1, padding = 0, dilation = 1, output_padding = 0, groups = 1;
  bool transposed = false, channels_last = false;
};

/// Layouts of an output and its gradients.
std::string layouts_of(const Convolution& of, at::Device device) {
  const auto dims = static_cast<std::size_t>(of.input.size() - 2);
  const auto all = [&](std::int64_t value) { return std::vector<std::int64_t>(dims, value); };
  auto input = at::empty(of.input, device).fill_(0.5).requires_grad_();
  if (of.channels_last) input = input.detach().contiguous(at::MemoryFormat::ChannelsLast).requires_grad_();
  const auto weight = at::empty(of.weight, device).fill_(0.5).requires_grad_();
  const auto bias =
      at::empty({of.transposed ? of.weight[1] * of.groups : of.weight[0]}, device).fill_(0.5).requires_grad_();
  const auto output = at::convolution(input, weight, bias, all(of.stride), all(of.padding), all(of.dilation),
                                      of.transposed, all(of.output_padding), of.groups);
  output.sum().backward();
  std::ostringstream text;
  for (const auto& tensor : {output, input.grad(), weight.grad(), bias.grad()})
    text << tensor.sizes() << tensor.strides() << ' ';
  return text.str();
}

/// No CPU kernel is asked for a card, so the rule's function must say what the kernels do.
TEST(ClaimedCuda, ConvolutionsLieAsTheCpuKernelsLayThem) {
  const std::vector<Convolution> cases{
      {.input = {2, 6, 20}, .weight = {8, 6, 3}, .padding = 1},
      {.input = {2, 6, 17, 19}, .weight = {8, 3, 3, 5}, .stride = 2, .padding = 1, .dilation = 2, .groups = 2},
      {.input = {2, 6, 17, 19}, .weight = {8, 6, 3, 3}, .padding = 1, .channels_last = true},
      {.input = {2, 6, 9, 8, 7}, .weight = {4, 6, 3, 3, 3}, .stride = 2, .padding = 1},
      {.input = {2, 6, 17, 19},
       .weight = {6, 4, 3, 3},
       .stride = 2,
       .padding = 1,
       .output_padding = 1,
       .groups = 2,
       .transposed = true},
      {.input = {2, 6, 20}, .weight = {6, 4, 4}, .stride = 2, .padding = 1, .transposed = true},
  };
  for (const auto& of : cases) {
    const std::string real = layouts_of(of, at::kCPU);
    trace::Trace trace;
    const dryrun::DryRun dry(trace, card(80));
    EXPECT_EQ(layouts_of(of, at::kCUDA), real);
    EXPECT_THAT(dry.by_shape_alone(), ::testing::IsEmpty()) << "nothing is missing on a card";
  }
}

TEST(ClaimedCuda, AJobOfEachModel) {
  for (const auto kind : {ModelKind::kGpt, ModelKind::kResNet18, ModelKind::kMlp}) {
    const auto job = small_job(kind, 8);
    const auto here = train::simulator(job, device::find("cpu"))({});
    const auto there = train::simulator(job, card(80))({});
    const trace::Timeline left(here), right(there);
    const auto host = left.live_by_category(left.peak().event), cuda = right.live_by_category(right.peak().event);
    EXPECT_EQ(host[trace::Category::kParameter], cuda[trace::Category::kParameter]);
    EXPECT_EQ(host[trace::Category::kBuffer], cuda[trace::Category::kBuffer]);
    EXPECT_EQ(host[trace::Category::kInput], cuda[trace::Category::kInput]);
    EXPECT_EQ(there.left_out(), 0u);
    EXPECT_EQ(cuda.sum(), right.peak().bytes);
    EXPECT_TRUE(ops_of(there).contains("aten::_fused_adamw_"));
  }
}

/// Under autocast each weight that a product reads is cast once, and kept: two bytes a number, under the weight's name.
TEST(ClaimedCuda, CastsOfWeightsBearTheirNames) {
  auto job = small_job(ModelKind::kGpt, 8);
  job.train.precision = job::Precision::kBf16;
  const auto trace = train::simulator(job, card(80))({});
  std::map<std::string, Bytes> weights, copies;
  for (const auto& allocation : trace.allocations()) {
    const std::string name(trace.name(allocation.name));
    if (name.empty() || allocation.phase == trace::Phase::kEvaluation || allocation.step > 1) continue;
    if (allocation.category == trace::Category::kParameter) weights[name] = allocation.bytes;
    if (!allocation.labelled) copies[name] += allocation.bytes;
  }
  for (const char* name : {"layers.0.attention.qkv.weight", "layers.2.mlp.proj.weight", "layers.1.mlp.fc.weight"}) {
    ASSERT_GT(weights[name], Bytes()) << name;
    EXPECT_EQ(copies[name] + copies[name], weights[name]) << name;
  }
  EXPECT_FALSE(copies.contains("layers.0.norm1.weight")) << "layer norm stays in float32";
}

TEST(ClaimedCuda, CheckpointingRecomputesInBackward) {
  const auto job = small_job(ModelKind::kGpt, 8);
  const auto trace = train::simulator(job, card(80))(checkpoint_all(job));
  bool recomputed = false;
  for (const auto& call : trace.ops()) {
    if (!call.recompute) continue;
    recomputed = true;
    EXPECT_EQ(call.phase, trace::Phase::kBackward);
    EXPECT_NE(trace.name(call.module), "");
  }
  EXPECT_TRUE(recomputed);
}

TEST(ClaimedCuda, ACheckpointsInputsMayWaitOnTheHost) {
  job::Job job = small_job(ModelKind::kGpt, 8);
  auto& gpt = std::get<job::GptConfig>(job.model);
  gpt.layers = 8;
  const auto live_after_forward = [&](const plan::Plan& plan) {
    for (const auto& end : trace::phase_ends(train::simulator(job, card(80))(plan)))
      if (end.step == 2 && end.phase == trace::Phase::kForward) return end.live;
    throw std::logic_error("no forward");
  };
  const plan::Plan kept = checkpoint_all(job);
  plan::Plan sent = kept;
  for (auto& [path, policy] : sent.activations) policy = plan::ActivationPolicy::kCheckpointOffload;
  const Bytes input(8 * gpt.context_length * gpt.hidden_size * 4);
  ASSERT_EQ(kept.activations.size(), 8u);
  // Of the inputs of eight blocks two may still be on their way.
  EXPECT_GE(live_after_forward(kept) - live_after_forward(sent), input * 5);
}

TEST(ClaimedCuda, APlansAllocatorSettingsAreJudged) {
  job::Job job = small_job(ModelKind::kGpt, 8);
  std::get<job::GptConfig>(job.model).hidden_size = 768;
  const plan::Problem problem = train::make_problem(job, card(80), card(80).memory);
  const plan::Plan plan{.alloc_conf = "expandable_segments:True"};
  EXPECT_THAT(plan::validate(problem, plan), ::testing::IsEmpty());
  const auto trace = train::simulator(job, card(80))(plan);
  const Bytes pages = plan::bytes_on_device(problem, plan, trace), segments = plan::bytes_on_device(problem, {}, trace);
  EXPECT_NE(pages, segments);
  EXPECT_GE(pages, card(80).context + trace::Timeline(trace).peak().bytes);
  EXPECT_EQ(pages, allocator::on_card(trace, card(80), problem.budget, {.expandable_segments = true}).bytes.on_card());
}
// ---- optimizers
// -------------------------------------------------------------------------------------------------------

/// Live bytes of a category at the end of a phase of step 2, and at the peak of the optimizer's phase of step 2.
struct StateBytes {
  Bytes between_steps, at_most, temporaries;
};
StateBytes state_bytes(const trace::Trace& trace) {
  StateBytes bytes;
  const trace::Timeline timeline(trace);
  for (std::size_t i = 0; i < trace.events().size(); ++i) {
    const auto& event = trace.events()[i];
    if (event.step != 2) continue;
    const auto live = timeline.live_by_category(i);
    if (event.phase == trace::Phase::kForward) bytes.between_steps = live[trace::Category::kOptimizerState];
    if (event.phase != trace::Phase::kOptimizer) continue;
    bytes.at_most = std::max(bytes.at_most, live[trace::Category::kOptimizerState]);
    bytes.temporaries = std::max(bytes.temporaries, live[trace::Category::kTemporary]);
  }
  return bytes;
}

/// Bytes that ops of that name move in step 2.
Bytes crossing(const job::Job& job, const plan::Plan& plan, std::string_view op) {
  const auto trace = train::simulator(job, card(80))(plan);
  Bytes bytes;
  for (const auto& call : trace.ops())
    if (call.step == 2 && trace.name(call.name) == op) bytes += call.read + call.written;
  return bytes;
}

job::Job job_for_optimizers(job::OptimizerKind kind = job::OptimizerKind::kAdamW) {
  auto job = small_job(ModelKind::kGpt, 4);
  job.train.max_grad_norm.reset();
  job.train.optimizer.kind = kind;
  return job;
}

std::vector<std::int64_t> sizes_of_parameters(const job::Job& job) {
  std::vector<std::int64_t> sizes;
  train::Session session(job, {});
  for (const auto& group : session.optimizer().groups())
    for (const auto& parameter : group.parameters) sizes.push_back(parameter.tensor.numel());
  return sizes;
}

/// Codes of a byte and scales of four bytes a block, two of each; small parameters in float32. The count of steps of
/// the first is on the host, of the second on the card, where a number takes four bytes of the tensors' and 512 of the
/// card's.
TEST(ClaimedCuda, EightBitStateIsTwoBytesAParameter) {
  const auto job = job_for_optimizers();
  Bytes expected;
  for (const auto size : sizes_of_parameters(job))
    expected += Bytes(size >= 4096 ? 2 * size + 8 * ((size + 255) / 256) : 8 * size + 4);
  const auto trace = train::simulator(job, card(80))({.optimizer = {.state = plan::OptimizerState::k8Bit}});
  EXPECT_EQ(state_bytes(trace).between_steps, expected);
  EXPECT_EQ(state_bytes(trace).at_most, expected);
  EXPECT_TRUE(ops_of(trace).contains("cinch::adamw_8bit_"));

  trace::Trace large;
  {
    const dryrun::DryRun dry(large, card(80));
    const auto weight = at::empty({4096, 4096}, at::kCUDA).requires_grad_();
    weight.mutable_grad() = at::empty({4096, 4096}, at::kCUDA);
    const auto optimizer = optim::adamw_8bit({{{{"w", weight}}, 0.1, 0}});
    for (int step = 0; step < 2; ++step) optimizer->step();
  }
  constexpr double kElements = 4096.0 * 4096.0;
  const double peak = static_cast<double>(trace::Timeline(large).peak().bytes.count());
  EXPECT_EQ(peak / kElements - 8, 2.03125);
}

/// On the card: nothing between steps, and two buffers of the largest parameter's state in one. As on the CPU, where
/// "the host" is memory that is not counted.
TEST(ClaimedCuda, StateOnTheHostIsTwoBuffers) {
  const auto job = job_for_optimizers();
  const auto sizes = sizes_of_parameters(job);
  const auto largest = *std::max_element(sizes.begin(), sizes.end());
  const auto aligned = [](std::int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const plan::Plan plan{.optimizer = {.place = plan::StatePlace::kHost}};
  const auto there = state_bytes(train::simulator(job, card(80))(plan));
  EXPECT_EQ(there.between_steps, Bytes());
  EXPECT_EQ(there.at_most, Bytes(2 * (2 * aligned(4 * largest) + aligned(4))));
  const auto here = state_bytes(train::simulator(job, device::find("cpu"))(plan));
  EXPECT_EQ(here.between_steps, there.between_steps);
  EXPECT_EQ(here.at_most, there.at_most);
}

/// All state comes and goes once a step: two moments and a count, to 64 bytes each.
TEST(ClaimedCuda, StateElsewhereCrossesTheLinkOnceAStep) {
  const auto job = job_for_optimizers();
  std::int64_t bytes = 0;
  for (const auto size : sizes_of_parameters(job)) bytes += 2 * ((4 * size + 63) / 64 * 64) + 64;
  const plan::Plan host{.optimizer = {.place = plan::StatePlace::kHost}};
  const plan::Plan disk{.optimizer = {.place = plan::StatePlace::kDisk}};
  EXPECT_EQ(crossing(job, host, "cinch::fetch_state"), Bytes(bytes));
  EXPECT_EQ(crossing(job, host, "cinch::offload_state"), Bytes(bytes));
  EXPECT_EQ(crossing(job, host, "cinch::read_state"), Bytes());
  EXPECT_EQ(crossing(job, disk, "cinch::read_state"), Bytes(bytes));
  EXPECT_EQ(crossing(job, disk, "cinch::write_state"), Bytes(bytes));
}

/// What stays on the host takes no room in the buffers.
TEST(ClaimedCuda, EightBitStateOnTheHostLeavesItsCountThere) {
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, card(80));
    const auto weight = at::empty({64, 256}, at::kCUDA).requires_grad_();
    record::label(weight, trace::Category::kParameter, "w");
    weight.mutable_grad() = at::empty({64, 256}, at::kCUDA);
    const auto optimizer = optim::offloaded(optim::adamw_8bit({{{{"w", weight}}, 0.1, 0}}));
    for (std::uint32_t step = 1; step <= 2; ++step) {
      const trace::PhaseScope phase(trace::Phase::kOptimizer, step);
      optimizer->step();
    }
  }
  EXPECT_EQ(state_bytes(trace).at_most, Bytes(2 * (64 * 256 + 4 * 64)));
}

TEST(ClaimedCuda, LionTakesNothingBesideItsMomentum) {
  const auto job = job_for_optimizers(job::OptimizerKind::kLion);
  Bytes expected;
  for (const auto size : sizes_of_parameters(job)) expected += Bytes(4 * size);
  const auto trace = train::simulator(job, card(80))({});
  EXPECT_EQ(state_bytes(trace).at_most, expected);
  EXPECT_EQ(state_bytes(trace).temporaries, Bytes(2 * 8'519'680)) << "cuBLAS's alone";
  EXPECT_TRUE(ops_of(trace).contains("cinch::lion_"));
}

/// Sums of rows and columns; in a step, a scratch of the largest parameter's size and of its sums.
TEST(ClaimedCuda, AdafactorTakesOneTemporary) {
  trace::Trace trace;
  {
    const dryrun::DryRun dry(trace, card(80));
    const auto weight = at::empty({300, 200}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16)).requires_grad_();
    record::label(weight, trace::Category::kParameter, "w");
    weight.mutable_grad() = at::empty_like(weight);
    record::label(weight.grad(), trace::Category::kGradient, "w");
    const auto optimizer = optim::adafactor({{{{"w", weight}}, 0.1, 0}}, {.scale_parameter = true});
    for (std::uint32_t step = 1; step <= 2; ++step) {
      const trace::PhaseScope phase(trace::Phase::kOptimizer, step);
      optimizer->step();
    }
    EXPECT_EQ(optimizer->state().at("w.exp_avg_sq_row").numel(), 300);
  }
  trace::classify(trace);
  const auto bytes = state_bytes(trace);
  EXPECT_EQ(bytes.at_most, Bytes(4 * (300 + 200)));
  EXPECT_GE(bytes.temporaries, Bytes(4 * 300 * 200));
  EXPECT_LE(bytes.temporaries, Bytes(4 * (300 * 200 + 300 + 200 + 3) + 64)) << "and a number or two";
}

/// An optimizer that was dry-run has its state made at its first real step.
TEST(ClaimedCuda, StateIsMadeAfterADryStep) {
  const auto stepped = [](bool dry_first) {
    const auto weight = at::ones({64, 64}).requires_grad_();
    const auto optimizer = optim::offloaded(optim::adamw({{{{"w", weight}}, 0.1, 0}}));
    const auto step = [&] {
      weight.mutable_grad() = at::full({64, 64}, 0.5);
      optimizer->step();
      optimizer->zero_grad();
    };
    if (dry_first) {
      trace::Trace trace;
      const dryrun::DryRun dry(trace, device::find("cpu"));
      step();
    }
    for (int i = 0; i < 3; ++i) step();
    EXPECT_EQ(optimizer->state().at("w.step").item<float>(), 3);
    return weight.detach().clone();
  };
  EXPECT_TRUE(at::equal(stepped(true), stepped(false)));
}

TEST(ClaimedCuda, OffloadedStateIsOfOneDevice) {
  trace::Trace trace;
  const dryrun::DryRun dry(trace, card(80));
  const auto here = at::empty({8}).requires_grad_(), there = at::empty({8}, at::kCUDA).requires_grad_();
  EXPECT_THROW(optim::offloaded(optim::adamw({{{{"a", here}, {"b", there}}, 0.1, 0}})), UnsupportedError);
}
}  // namespace
}  // namespace cinch::tests
