#pragma once

#include <map>
#include <string>
#include <string_view>

#include "cinch/dryrun/op_rules.h"

namespace cinch::dryrun::internal {

/// By "aten::add" (all overloads) or "aten::add.out" (that one, before the other).
class RuleTable {
 public:
  /// Throws UsageError if there is one.
  void add(std::string_view op, OpRule rule);
  /// Names without "aten::", parted by spaces.
  void add_all(std::string_view names, const OpRule& rule);
  const OpRule* find(const c10::OperatorName& op) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, OpRule, std::less<>> rules_;
};

/// Of every rule, users' own included.
std::vector<std::string> rule_names();

// One a family, in rules_*.cc.
void add_view_rules(RuleTable& table);
void add_pointwise_rules(RuleTable& table);
void add_matrix_rules(RuleTable& table);
void add_reduction_rules(RuleTable& table);
void add_embedding_rules(RuleTable& table);
void add_normalization_rules(RuleTable& table);
void add_attention_rules(RuleTable& table);
void add_cuda_attention_rules(RuleTable& table);
void add_cuda_rules(RuleTable& table);
void add_loss_rules(RuleTable& table);
void add_convolution_rules(RuleTable& table);
void add_pooling_rules(RuleTable& table);
void add_optimizer_rules(RuleTable& table);
}  // namespace cinch::dryrun::internal
