#pragma once
// Objects that the JSON documents share.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cinch/report/summaries.h"

namespace cinch::report::internal {

using nlohmann::ordered_json;

/// JSON has no NaN and no infinity: null.
ordered_json number(double value);
/// What every document begins with.
ordered_json head(std::string_view schema, const Environment& environment, const std::string& job);
/// The document as text, with a closing newline.
std::string close(const ordered_json& document);

ordered_json categories(const trace::CategoryBytes& bytes);
/// On a CPU nothing is rounded or reserved: all four sizes are the requested one.
ordered_json peak(const PeakSummary& summary);
ordered_json tensors(const std::vector<plan::PeakTensor>& tensors);
/// As in a plan file.
ordered_json plan_object(const plan::Plan& plan);
/// {plan, peak_bytes, step_seconds}
ordered_json candidate(const plan::Candidate& candidate);
}  // namespace cinch::report::internal
