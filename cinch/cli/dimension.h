#pragma once
// The sizes of a job that can be made larger or smaller by themselves.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cinch/job/job.h"

namespace cinch::cli {

/// Counted in steps from 1, each a job of its own; what a step means the model says.
struct Dimension {
  std::string what;      ///< "batch", "context", "layers", "width".
  std::string key;       ///< Of the job: "train.batch_size".
  std::int64_t own = 1;  ///< The job's step.
  std::int64_t most = 1;
  std::function<std::int64_t(std::int64_t step)> value;                ///< Of the key.
  std::function<std::vector<std::string>(std::int64_t step)> changes;  ///< "model.hidden_size=512", as for --set.
};

/// None if the model has no such size. Width keeps the number of heads and the feed-forward's share: its steps are the
/// least that the heads divide, eight of them where the job's width is such.
std::optional<Dimension> dimension(const job::Job& job, const std::string& what);

/// All names, in the order of the help.
const std::vector<std::string>& dimensions();
}  // namespace cinch::cli
