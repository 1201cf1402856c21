#pragma once
// Which of transformers' tensors are which of a model's here.

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "cinch/job/job.h"

namespace cinch::interchange {

/// A tensor as transformers names and lays it out, as a view of the model's own.
struct Piece {
  std::string name;        ///< Without the family's prefix.
  at::Tensor view;         ///< Writing to it writes the model's.
  bool head = false;       ///< Not part of the base model; its name never has the prefix.
  bool positions = false;  ///< The file's may have more rows: the first ones count.
};

struct Names {
  std::string prefix;  ///< "bert.": before every name but a head's, in files of models with a head.
  std::vector<Piece> pieces;
  std::vector<std::string> unused;  ///< Patterns of further names that files may hold.
};

/// Throws UsageError for a model that transformers does not have.
Names names_of(const torch::nn::Module& model, const job::ModelConfig& config);

/// Whether `name` is `pattern`, in which each * stands for a number; a pattern that ends with a dot is met by all that
/// begins like it.
bool matches(std::string_view name, std::string_view pattern);
}  // namespace cinch::interchange
