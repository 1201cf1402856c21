#pragma once

#include <functional>
#include <stdexcept>
#include <string>

#include "cinch/record/recorder.h"
#include "cinch/trace/trace.h"

namespace outside {
inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("expected " + what);
}

/// The peak of two real steps, of what they allocate themselves.
inline cinch::Bytes measured_peak(const std::function<void()>& step) {
  cinch::trace::Trace trace;
  cinch::record::Recorder recorder(trace);
  step();
  step();
  return recorder.peak();
}

void estimate_any_module();
void checkpoint_called_children();
void train_own_model();
}  // namespace outside
