#pragma once
// What call() consults on this thread. A checkpointed region takes it along to its second run.

namespace cinch::techniques {
class CallPolicies;

namespace internal {

struct CallContext {
  CallPolicies* policies = nullptr;
  int depth = 0;  ///< Of call()s in progress.
};
CallContext& call_context() noexcept;

/// Sets the thread's context until destroyed.
class [[nodiscard]] CallContextScope {
 public:
  explicit CallContextScope(CallContext context) noexcept : before_(call_context()) { call_context() = context; }
  ~CallContextScope() { call_context() = before_; }
  CallContextScope(const CallContextScope&) = delete;
  CallContextScope& operator=(const CallContextScope&) = delete;

 private:
  CallContext before_;
};
}  // namespace internal
}  // namespace cinch::techniques
