// Any bytes as what a probe found: read or refused, and what was read is written as it was, adds up, and is held
// against a call without a crash.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <ATen/ops/zeros.h>

#include "cinch/dryrun/internal/probe_bytes.h"

using namespace cinch::dryrun::internal;

namespace {
void require(bool condition) {
  if (!condition) std::abort();
}

/// One that reads an argument and writes another.
bool answers_a_call(const KernelScript& script) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::cumsum", "out");
  static const torch::jit::Stack arguments{at::zeros({10, 10}), std::int64_t{0}, c10::IValue(), at::zeros({5})};
  return answers(script, op, arguments);
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto script = from_bytes(bytes);
  if (!script) return 0;
  require(to_bytes(*script) == bytes);
  require(script->kept() <= script->peak());
  const auto kept = without_scratch(*script);
  require(kept.outputs.size() == script->outputs.size() && kept.peak() <= script->peak());
  if (answers_a_call(*script)) {
    require(script->outputs.size() == 1 && script->places.size() <= 1);
    for (const auto& relaid : script->relaid) require(relaid.argument == 1);
  }
  return 0;
}
