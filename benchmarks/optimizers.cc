// How long does one optimizer step of 16.8 million parameters take: AdamW with 8-bit state beside the fused float32
// one, the other optimizers, offloaded state; and beside PyTorch's AdamW for Python and the 8-bit AdamW of bitsandbytes
// and torchao (optimizers_peers.py)?
//
// The peers run where CINCH_PEER_TORCH names a folder, or several parted by colons, with PyTorch for Python and them:
//   pip install --target DIR torch==2.11.0 numpy packaging bitsandbytes torchao;  CINCH_PEER_TORCH=DIR optimizers
// CINCH_PEER_PYTHON: the interpreter, python3 if it is not set.

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "benchmarks/measure.h"
#include "cinch/optim/adamw_8bit.h"
#include "cinch/optim/offload.h"
#include "cinch/optim/optimizer.h"

extern char** environ;

namespace cinch::benchmarks {
namespace {

constexpr std::int64_t kSide = 4096;
constexpr int kRounds = 15;
constexpr double kMostOfFused = 2.0, kLeastOfPeers = 10.0, kMostState = 2.1;

std::vector<optim::ParameterGroup> weight(int parts = 1) {
  optim::ParameterGroup group{{}, 1e-4, 0.01};
  for (int i = 0; i < parts; ++i) {
    const auto parameter = at::randn({kSide / parts, kSide}).mul_(0.02).requires_grad_();
    parameter.mutable_grad() = at::randn({kSide / parts, kSide}).mul_(1e-3);
    group.parameters.push_back({"w" + std::to_string(i), parameter});
  }
  return {group};
}

struct Side {
  std::string name;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<double> seconds = {};
};

std::vector<Side> sides() {
  std::vector<Side> all;
  all.push_back({"AdamW, fused", optim::adamw(weight())});
  all.push_back({"AdamW, 8 bits", optim::adamw_8bit(weight())});
  all.push_back({"Adam, fused", optim::adam(weight())});
  all.push_back({"Lion", optim::lion(weight())});
  all.push_back({"Adafactor", optim::adafactor(weight())});
  // Of 16 weights: one would leave nothing to bring in meanwhile.
  all.push_back({"AdamW on the host", optim::offloaded(optim::adamw(weight(16)))});
  all.push_back(
      {"AdamW on the disk", optim::offloaded(optim::adamw(weight(16)),
                                             {optim::OffloadPlace::kDisk, std::filesystem::temp_directory_path()})});
  all.push_back({"AdamW, 8 bits, host", optim::offloaded(optim::adamw_8bit(weight(16)))});
  for (auto& side : all)
    for (int i = 0; i < 2; ++i) side.optimizer->step();
  return all;
}

/// Python, which steps whatever it is asked to.
class Peers {
 public:
  explicit Peers(const char* folder) {
    std::array<int, 2> in{}, out{};
    if (::pipe2(in.data(), O_CLOEXEC) != 0 || ::pipe2(out.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    ::setenv("PYTHONPATH", folder, 1);
    ::unsetenv("LD_LIBRARY_PATH");
    const char* named = std::getenv("CINCH_PEER_PYTHON");
    std::string python = named == nullptr ? "python3" : named,
                script = CINCH_SOURCE_DIR "/benchmarks/optimizers_peers.py";
    std::array<char*, 3> arguments{python.data(), script.data(), nullptr};
    const int failed = ::posix_spawnp(&id_, python.c_str(), &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    if (failed != 0) throw std::runtime_error("cannot start " + python);
    to_ = ::fdopen(in[1], "w");
    from_ = ::fdopen(out[0], "r");
    std::istringstream words(line());
    std::string word;
    words >> word;
    if (word != "ready") throw std::runtime_error("the peers do not run: " + script);
    while (words >> word) names_.push_back(word);
  }
  ~Peers() {
    std::fclose(to_);
    std::fclose(from_);
    ::waitpid(id_, nullptr, 0);
  }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  double step(const std::string& name) {
    std::fprintf(to_, "%s\n", name.c_str());
    std::fflush(to_);
    return std::stod(line());
  }

 private:
  std::string line() {
    std::array<char, 512> text{};
    if (std::fgets(text.data(), text.size(), from_) == nullptr) throw std::runtime_error("the peers ended early");
    return text.data();
  }

  pid_t id_ = -1;
  std::FILE *to_ = nullptr, *from_ = nullptr;
  std::vector<std::string> names_;
};

void print(const std::string& name, const std::vector<double>& seconds, const std::vector<double>& fused) {
  const auto pairs = ratios(seconds, fused);
  std::printf("  %-22s %7.1f ms   of fused AdamW's: median %5.2f, quartiles %.2f to %.2f, %zu", name.c_str(),
              median(seconds) * 1e3, median(pairs), quantile(pairs, 0.25), quantile(pairs, 0.75), pairs.size());
}

double bytes_a_parameter(const optim::Optimizer& optimizer) {
  double bytes = 0;
  for (const auto& [key, tensor] : optimizer.state()) bytes += static_cast<double>(tensor.nbytes());
  return bytes / static_cast<double>(kSide * kSide);
}

int run() {
  auto all = sides();
  std::optional<Peers> peers;
  const char* folder = std::getenv("CINCH_PEER_TORCH");
  if (folder != nullptr) peers.emplace(folder);
  std::map<std::string, std::vector<double>> of_peers;
  for (int round = 0; round < kRounds; ++round) {
    for (auto& side : all) side.seconds.push_back(seconds_of([&] { side.optimizer->step(); }));
    if (!peers) continue;
    for (const auto& name : peers->names()) of_peers[name].push_back(peers->step(name));
  }
  const auto &fused = all[0].seconds, &in_8_bits = all[1].seconds;
  for (const auto& side : all) {
    print(side.name, side.seconds, fused);
    std::printf("; state %.3f B a parameter\n", bytes_a_parameter(*side.optimizer));
  }
  for (const auto& [name, seconds] : of_peers) {
    print(name, seconds, fused);
    std::printf("; %.1f times cinch's 8 bits\n", median(ratios(seconds, in_8_bits)));
  }
  const double ratio = median(ratios(in_8_bits, fused)), state = bytes_a_parameter(*all[1].optimizer);
  std::printf("  8 bits of fused: %.2f, at most %.2f: %s\n", ratio, kMostOfFused, verdict(ratio, kMostOfFused));
  std::printf("  state in 8 bits: %.3f B a parameter, at most %.2f: %s\n", state, kMostState,
              verdict(state, kMostState));
  for (const char* name : {"bitsandbytes", "torchao"}) {
    if (!of_peers.contains(name)) {
      std::printf(
          "  %s did not run: pip install --target DIR torch==2.11.0 numpy packaging %s, then CINCH_PEER_TORCH=DIR\n",
          name, name);
      continue;
    }
    const double times = median(ratios(of_peers[name], in_8_bits));
    std::printf("  %s takes %.1f times as long, at least %.0f: %s\n", name, times, kLeastOfPeers,
                times >= kLeastOfPeers ? "held" : "MISSED");
  }
  return 0;
}
}  // namespace
}  // namespace cinch::benchmarks

int main() try {
  cinch::benchmarks::print_conditions("optimizers");
  return cinch::benchmarks::run();
} catch (const std::exception& error) {
  std::fprintf(stderr, "optimizers: %s\n", error.what());
  return 1;
}
