#include "cinch/techniques/scope.h"

#include <exception>
#include <utility>

#include <ATen/ATen.h>

#include "cinch/record/recorder.h"

namespace cinch::techniques {

void flush_autograd() noexcept {
  try {
    const record::Muted muted;
    const at::AutoGradMode grad(true);
    at::zeros({1}).set_requires_grad(true).sum().backward();
  } catch (const std::exception&) {  // Nothing worse than memory held a little longer.
  }
}

OwningScope::OwningScope() : exceptions_(std::uncaught_exceptions()) {}

OwningScope::~OwningScope() {
  end();
  if (std::uncaught_exceptions() > exceptions_) flush_autograd();
}

void OwningScope::at_end(std::function<void()> action) { actions_.push_front(std::move(action)); }

void OwningScope::end() noexcept {
  while (!actions_.empty()) {
    const auto action = std::move(actions_.front());
    actions_.pop_front();
    try {
      action();
    } catch (...) {  // The others have their turn; a destructor must not throw.
    }
  }
}
}  // namespace cinch::techniques
