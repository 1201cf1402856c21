#pragma once
// How large a model is, roughly: enough to refuse sizes whose bytes leave 64 bits before anything is built.

#include "cinch/job/job.h"

namespace cinch::job::internal {

// Holds products of a few sizes without overflow, and exactly enough to compare with 2^63.
using Wide = long double;

struct Scale {
  const char* key;  ///< Of [model]: the one to make smaller.
  Wide parameters;
  Wide largest_tensor;  ///< Numbers in the largest tensor that one sample makes.
};

Scale scale_of(const ModelConfig& model);
}  // namespace cinch::job::internal
