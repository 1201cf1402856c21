#include "cinch/dryrun/internal/check_rules.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "cinch/dryrun/internal/call_values.h"
#include "cinch/dryrun/internal/probe.h"

namespace cinch::dryrun::internal {
namespace {
bool g_checking = false;
std::vector<std::string> g_faults;
std::map<std::string, std::size_t> g_checked;

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << tensor.sizes() << '/' << tensor.strides();
  return text.str();
}

std::string describe(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  std::string text = c10::toString(op.operator_name()) + "(";
  std::size_t shown = 0;
  for (const auto& value : arguments)
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (++shown <= 6) text += (shown > 1 ? ", " : "") + describe(tensor);
    });
  return text + ")";
}

std::vector<std::string> layouts(const KernelScript& script) {
  std::vector<std::string> all;
  for (const auto& value : script.outputs)
    for_each_tensor(value, [&](const at::Tensor& tensor) { all.push_back(describe(tensor)); });
  return all;
}
}  // namespace

CheckRules::CheckRules() {
  g_checking = true;
  g_faults.clear();
  g_checked.clear();
}
CheckRules::~CheckRules() { g_checking = false; }
const std::vector<std::string>& CheckRules::faults() { return g_faults; }
std::size_t CheckRules::checked(const std::string& op) { return g_checked[op]; }
bool checking_rules() noexcept { return g_checking; }

void check_rule(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, const KernelScript& by_rule,
                Bytes racing) {
  ++g_checked[op.operator_name().name];
  const auto& real = probe(op, arguments);
  auto fault = [&](const std::string& what, const std::string& rule, const std::string& kernel) {
    if (rule == kernel) return;
    auto text = describe(op, arguments) + ": " + what + " " + rule + " by rule, " + kernel + " in the kernel";
    if (std::find(g_faults.begin(), g_faults.end(), text) == g_faults.end()) g_faults.push_back(std::move(text));
  };
  const auto left = layouts(by_rule), right = layouts(real);
  fault("outputs", std::to_string(left.size()), std::to_string(right.size()));
  for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i) fault("layout", left[i], right[i]);
  if (real.peak() > by_rule.peak() || real.peak() + racing < by_rule.peak())
    fault("peak", std::to_string(by_rule.peak().count()), std::to_string(real.peak().count()));
  fault("kept", std::to_string(by_rule.kept().count()), std::to_string(real.kept().count()));
}
}  // namespace cinch::dryrun::internal
