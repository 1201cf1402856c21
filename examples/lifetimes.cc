// A leak that many have had, found by name; and a scope whose memory is free when an exception is caught.
#include <iostream>

#include <ATen/ATen.h>

#include "cinch/record/recorder.h"
#include "cinch/techniques/leak_check.h"
#include "cinch/techniques/scope.h"
#include "cinch/trace/trace.h"

void find_the_leak() {
  const auto weight = at::randn({64, 64}).requires_grad_();
  auto total = at::zeros({});
  cinch::techniques::LeakCheck leaks;
  leaks.name(total, "total");
  for (int step = 0; step < 2; ++step) total += at::randn({32, 64}).mm(weight).square().mean();  // should be detached
  for (const auto& leak : leaks.leaks()) std::cout << leak.text() << '\n';
}

void run_out_of_memory() {
  const auto weight = at::randn({256, 256}).requires_grad_();
  cinch::trace::Trace trace;
  const cinch::record::Recorder recorder(trace, {.cap = cinch::Bytes::parse("1MiB")});
  try {
    cinch::techniques::OwningScope step;
    step.at_end([&] { weight.mutable_grad().reset(); });
    const auto& x = step.own(at::randn({256, 256}));
    x.mm(weight).exp().square().sum().backward();
  } catch (const cinch::record::OutOfMemoryError& error) {
    std::cout << error.what() << "\nlive now: " << to_string(recorder.live()) << '\n';
  }
}

int main() {
  find_the_leak();
  run_out_of_memory();
}
