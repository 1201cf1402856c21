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
  bool checkpoints(std::size_t i) const {
    const auto found = plan_.activations.find("blocks." + std::to_string(i));
    return found != plan_.activations.end() && found->second == ActivationPolicy::kCheckpoint;
  }

  void enter(std::size_t i) { b_.module("blocks." + std::to_string(i) + ".inner"); }

  // Saved tensors of block i, in two parts; its output too, where it is wanted.
  std::vector<AllocationId> forward(std::size_t i, std::int64_t samples) {
    const Block& block = chain_.blocks[i];
    enter(i);
    b_.op("forward", block.flops * static_cast<double>(samples));
    std::vector<AllocationId> saved{b_.alloc(Bytes(block.saved / 2 * samples))};
    const AllocationId transient = b_.alloc(Bytes(block.transient * samples));
    saved.push_back(b_.alloc(Bytes((block.saved - block.saved / 2) * samples)));
    b_.free(transient);
    return saved;
  }

  void free_all(std::vector<AllocationId>& allocations) {
    for (const AllocationId id : allocations) b_.free(id);
    allocations.clear();
  }

  void train(std::uint32_t step) {
    const std::int64_t size = plan_.micro_batch_size == 0 ? chain_.batch_size : plan_.micro_batch_size;
    for (std::int64_t done = 0; done < chain_.batch_size; done += size) {
      micro_batch(step, std::min(size, chain_.batch_size - done));
    }
    b_.phase(Phase::kOptimizer, step);
    for (const Block& block : chain_.blocks) {
      b_.op("update", 0, Bytes(4 * block.parameters), Bytes(3 * block.parameters));
      if (step == 1) b_.label(b_.alloc(Bytes(2 * block.parameters)), Category::kOptimizerState);
    }
    free_all(gradients_);
  }

  void micro_batch(std::uint32_t step, std::int64_t samples) {
    const std::size_t n = chain_.blocks.size();
    b_.phase(Phase::kForward, step);
    std::vector<std::vector<AllocationId>> saved(n);
    std::vector<AllocationId> outputs;
    for (std::size_t i = 0; i < n; ++i) {
      enter(i);
      if (checkpoints(i)) saved[i].push_back(b_.alloc(Bytes(16)));  // A generator's state.
      std::vector<AllocationId> made = forward(i, samples);
      outputs.push_back(b_.alloc(Bytes(chain_.blocks[i].output * samples)));
      if (checkpoints(i)) {
        free_all(made);
      } else {
        saved[i] = made;
      }
      b_.module("");
    }
    AllocationId head = b_.alloc(Bytes(chain_.head * samples));
    b_.phase(Phase::kBackward, step).free(head);
    const bool first = gradients_.empty();
    for (std::size_t i = n; i-- > 0;) {
      enter(i);
      if (checkpoints(i)) {
        b_.recompute(true);
        std::vector<AllocationId> again = forward(i, samples);
        saved[i].insert(saved[i].end(), again.begin(), again.end());
        b_.recompute(false);
      }
      b_.op("backward", 2 * chain_.blocks[i].flops * static_cast<double>(samples));
      const AllocationId gradient = b_.alloc(Bytes(chain_.blocks[i].gradient * samples));
      if (first) {
        gradients_.push_back(b_.alloc(Bytes(chain_.blocks[i].parameters)));
        b_.label(gradients_.back(), Category::kGradient);
      }
      free_all(saved[i]);
      b_.free(gradient).free(outputs[i]);
    }
  }

  const Chain& chain_;
  const Plan& plan_;
  trace::TraceBuilder b_;
  std::vector<AllocationId> gradients_;
};
}  // namespace cinch::plan::internal
