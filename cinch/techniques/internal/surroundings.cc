#include "cinch/techniques/internal/surroundings.h"

#include <algorithm>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace cinch::techniques::internal {

GeneratorStates::GeneratorStates(at::ArrayRef<at::Tensor> tensors) {
  add(at::detail::getDefaultCPUGenerator());
  for (const auto& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu() || tensor.is_meta()) continue;
    const auto& generator = at::globalContext().defaultGenerator(tensor.device());
    const auto known = std::any_of(states_.begin(), states_.end(), [&](const auto& s) { return s.first == generator; });
    if (!known) add(generator);
  }
}

GeneratorStates GeneratorStates::now() const {
  GeneratorStates result;
  for (const auto& [generator, state] : states_) result.add(generator);
  return result;
}

void GeneratorStates::restore() const {
  for (const auto& [generator, state] : states_) {
    auto target = generator;
    const std::lock_guard lock(target.mutex());
    target.set_state(state);
  }
}

void GeneratorStates::add(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  auto state = generator.get_state();
  states_.emplace_back(generator, std::move(state));
}

AutocastState::AutocastState() : cache_(at::autocast::is_autocast_cache_enabled()) {
  for (std::size_t i = 0; i < kDevices.size(); ++i) {
    devices_[i] = {at::autocast::is_autocast_enabled(kDevices[i]), at::autocast::get_autocast_dtype(kDevices[i])};
  }
}

void AutocastState::restore() const {
  for (std::size_t i = 0; i < kDevices.size(); ++i) {
    at::autocast::set_autocast_enabled(kDevices[i], devices_[i].enabled);
    at::autocast::set_autocast_dtype(kDevices[i], devices_[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(cache_);
}

bool AutocastState::enabled() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const Device& device) { return device.enabled; });
}

AutocastScope::AutocastScope(const AutocastState& state) : nests_(state.enabled()) {
  if (nests_) at::autocast::increment_nesting();
  state.restore();
}

AutocastScope::~AutocastScope() {
  if (nests_ && at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  before_.restore();
}

}  // namespace cinch::techniques::internal
