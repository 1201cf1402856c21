#pragma once
// Words of the answers about more than one job or device.

#include <string>
#include <vector>

#include "cinch/report/questions.h"

namespace cinch::report::internal {

/// "LARGEST BATCH: 61 (the job's own is 8), needs 23.1 GiB of 23.2 GiB: 0.05 GiB spare"; "NO BATCH FITS: …".
std::string answer(const Largest& largest);
/// What has to be known of the question.
std::vector<std::string> remarks(const Largest& largest);

/// "SMALLEST CARD: t4-16gb with a plan; rtx3090-24gb as it is"; "NO CARD HOLDS IT".
std::string answer(const Cards& cards);
/// The first whose answer is at least that; null if there is none.
const CardAnswer* smallest_card(const Cards& cards, CardAnswer::Fit fit);
/// "FITS as it is", "FITS with micro-batch 4", "no: 3.20 GiB too much".
std::string result_of(const CardAnswer& card, std::size_t modules);

/// Of the answer; "" if there is none.
std::string next_command(const Largest& largest);
std::string next_command(const Cards& cards);
}  // namespace cinch::report::internal
