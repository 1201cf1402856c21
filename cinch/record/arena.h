#pragma once
// Tensor memory of a training step from one planned block: no malloc, no page faults, huge pages.
//
//   cinch::record::Arena arena;
//   for (...) {
//     const cinch::record::Arena::Step step(arena);   // the first one is watched, the others are served
//     loss = model(batch); loss.backward(); optimizer.step(); optimizer.zero_grad();
//   }
//
// A training step asks for the same memory every time. Offsets for all of it are found once (cinch/placement/), by the
// way memory is planned in compilers for inference (Pisarchyk and Lee, 2020) and for training (STAlloc, 2025). glibc
// gives large blocks back to the system and takes them again, zeroed page by page, in every step; here pages stay.
//
// Results are the same to the bit. Nothing is taken on trust: a request gets its place if it is the one the plan
// expects and no live tensor has a byte of it; else the heap serves. So steps may differ, tensors may live on, any
// thread may free them. Steps that go on differing from their plan are planned anew.
//
// A Recorder's cap counts requested bytes as ever. What the system gives (parameters and so on from the heap, and the
// block) is at most 5 % more than what is live at the step's peak: a plan that would take more is not used. A step that
// differs takes what differs from the heap on top.

#include <cstdint>
#include <memory>

#include "cinch/core/bytes.h"

namespace cinch::record {

namespace internal {
struct ArenaState;
}

struct ArenaStats {
  Bytes mapped;             ///< The block; none while a step that has no plan runs.
  Bytes heap;               ///< Tensors elsewhere, as malloc rounds them; none that is older than cinch's allocator.
  std::int64_t plans = 0;   ///< Made so far.
  std::int64_t served = 0;  ///< Requests that got their planned place.
  std::int64_t missed = 0;  ///< Requests of planned steps that the plan did not expect, or whose place was taken.
};

/// One at a time in a process. Tensors may outlive it: its memory goes with the last of them.
class Arena {
 public:
  Arena();  ///< Replaces c10's CPU allocator for good, as a Recorder does. Throws UsageError if there is another.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A step, from construction to destruction. What is made in it and outlives it comes from the heap: so drop
  /// gradients before it ends. One that ends by an exception teaches nothing.
  class [[nodiscard]] Step {
   public:
    /// Steps of one `kind` ask for memory alike: training and evaluation are two kinds, and so are two batch sizes. The
    /// kinds share the block. Throws UsageError if another step has not ended.
    explicit Step(Arena& arena, std::int64_t kind = 0);
    ~Step();
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Arena& arena_;
    int exceptions_;
  };

  ArenaStats stats() const;

 private:
  std::unique_ptr<internal::ArenaState> state_;
};
}  // namespace cinch::record
