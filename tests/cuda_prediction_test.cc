// Dry runs on a claimed CUDA device. No card is here: what is right follows from arithmetic and from recorded runs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cinch/device/device_spec.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/trace/scope.h"
#include "cinch/trace/trace.h"
#include "cinch/train/estimate.h"

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
}  // namespace
}  // namespace cinch::tests
