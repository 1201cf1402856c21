#pragma once
// Lifetimes by scope: what is to be gone at the end.
//
//   {
//     techniques::OwningScope step;
//     auto& batch = step.own(next_batch());
//     step.at_end([&] { optimizer.zero_grad(); });
//     loss(batch).backward();  // throws: gradients are dropped, then the batch; only then is it caught
//     optimizer.step();
//   }

#include <functional>
#include <list>
#include <memory>
#include <utility>

namespace cinch::techniques {

/// After an exception in backward LibTorch's engine keeps tensors in its queue until the next backward pass. This runs
/// one, over nothing. Never throws.
void flush_autograd() noexcept;

/// Lets go of what it owns at its end, last first, each before the one that was given earlier. When an exception ends
/// it, it also empties the engine's queue: whoever catches finds the memory free. Who else has a handle to a tensor
/// keeps it alive: LeakCheck (cinch/techniques/leak_check.h) says who.
class [[nodiscard]] OwningScope {
 public:
  OwningScope();
  ~OwningScope();
  OwningScope(const OwningScope&) = delete;
  OwningScope& operator=(const OwningScope&) = delete;

  /// Owns `value`, a tensor or anything that holds some. The reference is valid until the end.
  template <class Value>
  Value& own(Value value) {
    auto owned = std::make_shared<Value>(std::move(value));
    auto& reference = *owned;
    at_end([owned = std::move(owned)] {});
    return reference;
  }
  /// Runs `action` in its turn. What it throws is dropped.
  void at_end(std::function<void()> action);
  /// The end, now. The scope can go on and own other things.
  void end() noexcept;

 private:
  std::list<std::function<void()>> actions_;  ///< The last one first.
  int exceptions_;
};
}  // namespace cinch::techniques
