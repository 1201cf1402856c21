#pragma once
// What the calling thread is doing, for the events it causes.
//
//   trace::PhaseScope forward(trace::Phase::kForward, step);
//   trace::ModuleScope module(path);   // `path` must outlive the scope

#include <cstdint>
#include <string>

#include "cinch/trace/event.h"

namespace cinch::trace {

/// Copying it is how a scope crosses threads.
struct Context {
  Phase phase = Phase::kOther;
  bool recompute = false;
  std::uint32_t step = 0;
  const std::string* module = nullptr;  ///< Not owned; nullptr outside any.
  std::uint32_t times = 1;              ///< OpCall::times of what is called here.
};
Context current() noexcept;

/// Sets the calling thread's context until destroyed; scopes nest. Costs one thread-local store.
class [[nodiscard]] ContextScope {
 public:
  explicit ContextScope(Context context) noexcept;
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context before_;
};

/// A phase of one step begins. The module starts anew at the root.
class [[nodiscard]] PhaseScope {
 public:
  PhaseScope(Phase phase, std::uint32_t step) noexcept;

 private:
  ContextScope scope_;
};

/// What runs stands for so many equal runs. Phases keep it.
class [[nodiscard]] RepeatScope {
 public:
  explicit RepeatScope(std::uint32_t times) noexcept;

 private:
  ContextScope scope_;
};

class [[nodiscard]] ModuleScope {
 public:
  explicit ModuleScope(const std::string& path) noexcept;

 private:
  ContextScope scope_;
};

class [[nodiscard]] RecomputeScope {
 public:
  RecomputeScope() noexcept;

 private:
  ContextScope scope_;
};
}  // namespace cinch::trace
