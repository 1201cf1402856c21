// Does AdamW with 8-bit state come as far as with float32, and as near to it as bitsandbytes' and torchao's
// (optimizers_loss_peers.py)? A small model of the next byte of a real text, 500 steps, three seeds.
//
// The peers run where CINCH_PEER_TORCH names a folder with PyTorch for Python and them, as for `optimizers`.

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "benchmarks/measure.h"
#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/optimizer.h"

namespace cinch::benchmarks {
namespace {
namespace nn = torch::nn;

constexpr char kText[] = CINCH_SOURCE_DIR "/README.md";
constexpr std::int64_t kContext = 16, kBatch = 64;
constexpr int kSteps = 500, kSeeds = 3;

at::Tensor text() {
  std::ifstream file(kText, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.empty()) throw std::runtime_error(std::string("cannot read ") + kText);
  return at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte).to(at::kLong);
}

struct Batch {
  at::Tensor inputs, targets;
};
Batch batch_at(const at::Tensor& source, const at::Tensor& starts) {
  const auto all = source.index({starts.unsqueeze(1) + at::arange(kContext + 1)});
  return {all.narrow(1, 0, kContext), all.select(1, kContext)};
}

double held_out_loss(int seed, bool in_8_bits) {
  at::manual_seed(static_cast<std::uint64_t>(seed));
  nn::Sequential net(nn::Embedding(256, 32), nn::Flatten(), nn::Linear(512, 512), nn::GELU(), nn::Linear(512, 256));
  const std::vector<optim::ParameterGroup> groups{{optim::named(*net), 1e-3, 0.01}};
  const auto optimizer = in_8_bits ? optim::adamw_8bit(groups) : optim::adamw(groups);
  const auto data = text();
  const std::int64_t split = data.size(0) * 9 / 10;
  const auto train = data.narrow(0, 0, split), held_out = data.narrow(0, split, data.size(0) - split);
  for (int step = 0; step < kSteps; ++step) {
    const auto batch = batch_at(train, at::randint(split - kContext, {kBatch}, at::kLong));
    nn::functional::cross_entropy(net->forward(batch.inputs), batch.targets).backward();
    optimizer->step();
    optimizer->zero_grad();
  }
  const at::NoGradGuard no_grad;
  const auto batch = batch_at(held_out, at::arange(0, held_out.size(0) - kContext, 3));
  return nn::functional::cross_entropy(net->forward(batch.inputs), batch.targets).item<double>();
}

std::map<std::string, double> peers(int seed) {
  std::map<std::string, double> losses;
  const char* folder = std::getenv("CINCH_PEER_TORCH");
  if (folder == nullptr) return losses;
  ::setenv("PYTHONPATH", folder, 1);
  ::unsetenv("LD_LIBRARY_PATH");
  const char* named = std::getenv("CINCH_PEER_PYTHON");
  const std::string command = std::string(named == nullptr ? "python3" : named) + " " CINCH_SOURCE_DIR +
                              "/benchmarks/optimizers_loss_peers.py " + kText + " " + std::to_string(seed) + " " +
                              std::to_string(kSteps);
  std::FILE* out = ::popen(command.c_str(), "r");
  if (out == nullptr) throw std::runtime_error("cannot start " + command);
  char name[64];
  for (double loss = 0; std::fscanf(out, "%63s %lf", name, &loss) == 2;) losses[name] = loss;
  if (::pclose(out) != 0 || losses.empty()) throw std::runtime_error("the peers failed: " + command);
  return losses;
}

int run() {
  double ours = 0, theirs = 0;
  bool compared = false;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const double whole = held_out_loss(seed, /*in_8_bits=*/false), in_8_bits = held_out_loss(seed, /*in_8_bits=*/true);
    std::printf("  seed %d: held-out loss after %d steps: float32 %.5f, 8 bits %.5f", seed, kSteps, whole, in_8_bits);
    const auto losses = peers(seed);
    for (const auto& [name, loss] : losses)
      std::printf(", %s%s %.5f", name.c_str(), name == "float32" ? " in Python" : "", loss);
    std::puts("");
    std::fflush(stdout);
    ours += std::abs(in_8_bits - whole) / kSeeds;
    if (!losses.contains("bitsandbytes") || !losses.contains("torchao")) continue;
    compared = true;
    theirs += std::abs(losses.at("bitsandbytes") - losses.at("torchao")) / kSeeds;
  }
  std::printf("  8 bits differ from float32 by %.5f, mean of seeds", ours);
  if (compared) std::printf("; bitsandbytes from torchao by %.5f: %s", theirs, verdict(ours, theirs));
  std::puts(compared ? "" : "; the peers did not run: see optimizers");
  return 0;
}
}  // namespace
}  // namespace cinch::benchmarks

int main() try {
  cinch::benchmarks::print_conditions("optimizers_loss");
  return cinch::benchmarks::run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "optimizers_loss: %s\n", error.what());
  return 1;
}
