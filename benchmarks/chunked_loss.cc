// What does the loss of a large head take, whole and in chunks? Forward and backward of a GPT's head, 4096 tokens of
// 768 over 50,257 words, weight and input trained; the plain ops (linear, cross_entropy_loss) against chunks of several
// sizes, in float32 and under bfloat16 autocast. Sides take turns; peaks are the recorder's, beside inputs and their
// gradients.
//
//   chunked_loss [ROUNDS] [fp32|bf16]     3 rounds, both

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/ATen.h>

#include "benchmarks/measure.h"
#include "cinch/record/recorder.h"
#include "cinch/techniques/autocast.h"
#include "cinch/techniques/linear_cross_entropy.h"
#include "cinch/trace/trace.h"

namespace cinch::benchmarks {
namespace {

constexpr std::int64_t kTokens = 4096, kHidden = 768, kWords = 50257;

struct Side {
  std::int64_t chunk = 0;  ///< 0: the plain ops.
  std::vector<double> seconds = {};
  Bytes peak = {};
  double loss = 0;
};

class Head {
 public:
  Head() {
    at::manual_seed(1);
    hidden_ = at::randn({kTokens, kHidden}).requires_grad_();
    weight_ = at::randn({kWords, kHidden}).mul_(0.02).requires_grad_();
    targets_ = at::randint(kWords, {kTokens}, at::kLong);
  }

  double run(std::int64_t chunk, bool bf16) {
    at::Tensor loss;
    {
      std::optional<techniques::Autocast> autocast;
      if (bf16) autocast.emplace(at::kCPU, at::kBFloat16);
      loss = linear_cross_entropy(hidden_, weight_, {}, targets_, {.chunk_size = chunk});
    }
    loss.backward();
    hidden_.mutable_grad().reset();
    weight_.mutable_grad().reset();
    return loss.item<double>();
  }

 private:
  at::Tensor hidden_, weight_, targets_;
};

void measure(Head& head, bool bf16, int rounds) {
  std::vector<Side> sides{{.chunk = 0},   {.chunk = 2048}, {.chunk = 1024},
                          {.chunk = 512}, {.chunk = 256},  {.chunk = 128}};
  for (auto& side : sides) {  // Warms up, too.
    trace::Trace trace;
    const record::Recorder recorder(trace);
    side.loss = head.run(side.chunk, bf16);
    side.peak = recorder.peak() - Bytes((kTokens + kWords) * kHidden * 4);
  }
  for (int round = 0; round < rounds; ++round)
    for (auto& side : sides) side.seconds.push_back(seconds_of([&] { head.run(side.chunk, bf16); }));
  std::printf("%s, %d rounds\n", bf16 ? "bfloat16 autocast" : "float32", rounds);
  for (const auto& side : sides) {
    const auto ratio = median(ratios(side.seconds, sides.front().seconds));
    std::printf("  %-10s peak %12lld B (%s, %5.1f %%)  %8.1f ms (%8.1f to %8.1f), ratio %.3f  loss %.6f\n",
                side.chunk == 0 ? "plain" : ("chunk " + std::to_string(side.chunk)).c_str(),
                static_cast<long long>(side.peak.count()), to_string(side.peak).c_str(),
                100.0 * static_cast<double>(side.peak.count()) / static_cast<double>(sides.front().peak.count()),
                1e3 * median(side.seconds), 1e3 * quantile(side.seconds, 0), 1e3 * quantile(side.seconds, 1), ratio,
                side.loss);
  }
  std::fflush(stdout);
}
}  // namespace
}  // namespace cinch::benchmarks

int main(int argc, char** argv) try {
  using namespace cinch::benchmarks;
  print_conditions("chunked_loss");
  Head head;
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 3;
  const std::string_view only = argc > 2 ? argv[2] : "";
  if (only != "bf16") measure(head, /*bf16=*/false, rounds);
  if (only != "fp32") measure(head, /*bf16=*/true, rounds);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "chunked_loss: %s\n", error.what());
  return 1;
}
