#include "cinch/trace/scope.h"

namespace cinch::trace {
namespace {
thread_local Context t_context;

Context in_module(const std::string& path) {
  Context context = t_context;
  context.module = &path;
  return context;
}

Context in_recomputation() {
  Context context = t_context;
  context.recompute = true;
  return context;
}

Context repeated(std::uint32_t times) {
  Context context = t_context;
  context.times = times;
  return context;
}
}  // namespace

Context current() noexcept { return t_context; }

ContextScope::ContextScope(Context context) noexcept : before_(t_context) { t_context = context; }
ContextScope::~ContextScope() { t_context = before_; }

PhaseScope::PhaseScope(Phase phase, std::uint32_t step) noexcept : scope_({.phase = phase, .step = step, .times = t_context.times}) {}
RepeatScope::RepeatScope(std::uint32_t times) noexcept : scope_(repeated(times)) {}
ModuleScope::ModuleScope(const std::string& path) noexcept : scope_(in_module(path)) {}
RecomputeScope::RecomputeScope() noexcept : scope_(in_recomputation()) {}
}  // namespace cinch::trace
