#pragma once
// A training step made by hand, for tests of the solver: so cheap that every plan there is can be played.

#include <algorithm>
#include <string>
#include <vector>

#include "cinch/plan/plan.h"
#include "cinch/trace/builder.h"
#include "cinch/trace/trace.h"

namespace cinch::plan::internal {

using trace::AllocationId;
using trace::Category;
using trace::Phase;

// A chain of blocks, as a training step sees it: sizes in bytes a sample, costs in flops a sample.
struct Block {
  std::int64_t saved = 0;       // Kept for backward.
  std::int64_t transient = 0;   // Lives within the forward.
  std::int64_t output = 0;      // The next block's input, kept by it.
  std::int64_t gradient = 0;    // Of the activations, lives within the backward.
  std::int64_t parameters = 0;  // Bytes, whatever the batch.
  double flops = 0;             // Of the forward.
};

inline constexpr std::int64_t kTokens = 32;  // Of a sample: what a loss_chunk_size divides.

struct Chain {
  std::vector<Block> blocks;
  std::int64_t head = 0;        // Logits, kept for backward.
  std::int64_t evaluation = 0;  // Peak of an evaluation, above what stands. 0: none.
  std::int64_t batch_size = 1;

  std::vector<std::string> modules() const {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < blocks.size(); ++i) paths.push_back("blocks." + std::to_string(i));
    return paths;
  }
};

// Plays a chain's training under a plan into a trace.
class Player {
 public:
  Player(const Chain& chain, const Plan& plan) : chain_(chain), plan_(plan) {}

  trace::Trace play() {
    b_.phase(Phase::kInit, 0);
    for (const Block& block : chain_.blocks) {
      b_.label(b_.alloc(Bytes(block.parameters)), Category::kParameter);
    }
    for (std::uint32_t step = 1; step <= 2; ++step) train(step);
    if (chain_.evaluation > 0) b_.phase(Phase::kEvaluation, 2).free(b_.alloc(Bytes(chain_.evaluation)));
    trace::Trace trace = b_.build();
    classify(trace);
    return trace;
  }

 private:
  struct Saved {
    AllocationId product, rest;  // Of matrix products, which selective checkpoints keep, and what follows from them.
  };

  ActivationPolicy policy(std::size_t i) const {
    const auto found = plan_.activations.find("blocks." + std::to_string(i));
    return found == plan_.activations.end() ? ActivationPolicy::kKeep : found->second;
  }

  void enter(std::size_t i) { b_.module("blocks." + std::to_string(i) + ".inner"); }

  // Saved tensors of block i, in two parts.
  Saved forward(std::size_t i, std::int64_t samples) {
    const Block& block = chain_.blocks[i];
    enter(i);
    b_.op("forward", block.flops * static_cast<double>(samples));
    const AllocationId product = b_.alloc(Bytes(block.saved / 2 * samples));
    const AllocationId transient = b_.alloc(Bytes(block.transient * samples));
    const AllocationId rest = b_.alloc(Bytes((block.saved - block.saved / 2) * samples));
    b_.free(transient);
    return {product, rest};
  }

  // What a policy leaves of them after the forward, after its output was made.
  std::vector<AllocationId> leave(std::size_t i, const Saved& made, std::int64_t samples) {
    switch (policy(i)) {
      case ActivationPolicy::kKeep:
        return {made.product, made.rest};
      case ActivationPolicy::kSelective:
        b_.free(made.rest);
        return {made.product};
      case ActivationPolicy::kOffload:
        b_.op("cinch::offload", 0, Bytes(chain_.blocks[i].saved * samples));
        [[fallthrough]];
      default:
        b_.free(made.product).free(made.rest);
        return {};
    }
  }

  // What backward needs of them again.
  void come_back(std::size_t i, std::int64_t samples, std::vector<AllocationId>& saved) {
    const Block& block = chain_.blocks[i];
    if (policy(i) == ActivationPolicy::kCheckpoint) {
      b_.recompute(true);
      const Saved again = forward(i, samples);
      saved.insert(saved.end(), {again.product, again.rest});
    } else if (policy(i) == ActivationPolicy::kSelective) {
      b_.recompute(true);
      b_.op("cheap", block.flops / 5 * static_cast<double>(samples));
      const AllocationId transient = b_.alloc(Bytes(block.transient * samples));
      saved.push_back(b_.alloc(Bytes((block.saved - block.saved / 2) * samples)));
      b_.free(transient);
    } else if (policy(i) == ActivationPolicy::kOffload) {
      b_.op("cinch::fetch", 0, {}, Bytes(block.saved * samples));
      saved.push_back(b_.alloc(Bytes(block.saved * samples)));
      b_.label(saved.back(), Category::kActivation, trace::kBroughtBack);
    }
    b_.recompute(false);
  }

  void free_all(std::vector<AllocationId>& allocations) {
    for (const AllocationId id : allocations) b_.free(id);
    allocations.clear();
  }

  void train(std::uint32_t step) {
    const std::int64_t size = plan_.micro_batch_size == 0 ? chain_.batch_size : plan_.micro_batch_size;
    for (std::int64_t done = 0; done < chain_.batch_size; done += size) {
      micro_batch(step, std::min(size, chain_.batch_size - done), done + size >= chain_.batch_size);
    }
    b_.phase(Phase::kOptimizer, step);
    if (!plan_.optimizer.in_backward) {
      for (std::size_t i = 0; i < chain_.blocks.size(); ++i) update(i, step);
    }
    for (std::size_t i = 0; i < gradients_.size(); ++i) b_.free(gradients_[i]);
    gradients_.clear();
  }

  // The optimizer's step on the parameters of block i.
  void update(std::size_t i, std::uint32_t step) {
    const std::int64_t parameters = chain_.blocks[i].parameters;
    const bool small = plan_.optimizer.state == OptimizerState::k8Bit;
    const Bytes state(small ? parameters / 2 + 1 : 2 * parameters);
    if (plan_.optimizer.place != StatePlace::kDevice) {
      const std::int64_t slower = plan_.optimizer.place == StatePlace::kDisk ? 20 : 4;
      const AllocationId visits = b_.alloc(state);
      b_.label(visits, Category::kOptimizerState);
      b_.op("away", 0, Bytes(slower * parameters), Bytes(slower * parameters));
      b_.free(visits);
    } else if (step == 1) {
      b_.label(b_.alloc(state), Category::kOptimizerState);
    }
    b_.op("update", 0, Bytes((small ? 9 : 4) * parameters), Bytes(3 * parameters));
  }

  // Logits and their loss, forward and backward, in chunks if the plan says so.
  void loss(std::int64_t samples) {
    const std::int64_t tokens = samples * kTokens, chunk = plan_.loss_chunk_size;
    b_.module("head");
    for (std::int64_t done = 0; chunk != 0 && done < tokens; done += chunk) {
      const std::int64_t part = std::min(chunk, tokens - done);
      b_.op("chunk", 0, Bytes(part));
      b_.free(b_.alloc(Bytes(chain_.head * part / kTokens)));
    }
    if (chunk == 0) logits_ = b_.alloc(Bytes(chain_.head * samples));
    b_.module("");
  }

  void micro_batch(std::uint32_t step, std::int64_t samples, bool last) {
    const std::size_t n = chain_.blocks.size();
    b_.phase(Phase::kForward, step);
    std::vector<std::vector<AllocationId>> saved(n);
    std::vector<AllocationId> outputs;
    for (std::size_t i = 0; i < n; ++i) {
      enter(i);
      std::vector<AllocationId> generator;
      if (policy(i) == ActivationPolicy::kCheckpoint) generator.push_back(b_.alloc(Bytes(16)));  // Its state.
      const Saved made = forward(i, samples);
      outputs.push_back(b_.alloc(Bytes(chain_.blocks[i].output * samples)));
      saved[i] = leave(i, made, samples);
      saved[i].insert(saved[i].end(), generator.begin(), generator.end());
      b_.module("");
    }
    loss(samples);
    b_.phase(Phase::kBackward, step);
    if (plan_.loss_chunk_size == 0) b_.free(logits_);
    for (std::size_t i = n; i-- > 0;) {
      enter(i);
      come_back(i, samples, saved[i]);
      b_.op("backward", 2 * chain_.blocks[i].flops * static_cast<double>(samples));
      const AllocationId gradient = b_.alloc(Bytes(chain_.blocks[i].gradient * samples));
      if (gradients_.size() < n) {
        gradients_.push_back(b_.alloc(Bytes(chain_.blocks[i].parameters)));
        b_.label(gradients_.back(), Category::kGradient);
      }
      free_all(saved[i]);
      b_.free(gradient).free(outputs[i]);
      if (last && plan_.optimizer.in_backward) {
        update(i, step);
        b_.free(gradients_[n - 1 - i]);
      }
    }
    if (last && plan_.optimizer.in_backward) gradients_.clear();
  }

  const Chain& chain_;
  const Plan& plan_;
  trace::TraceBuilder b_;
  AllocationId logits_{};
  std::vector<AllocationId> gradients_;  // The last block's first.
};
}  // namespace cinch::plan::internal
