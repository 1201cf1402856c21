#pragma once
// Figures and places as the sentences about recordings have them.

#include <cstddef>
#include <string>

#include "cinch/core/bytes.h"
#include "cinch/inspect/categories.h"

namespace cinch::inspect {

/// "4.29 GiB", "5.4 MiB", "508 B"; "23 GiB" where it is exact. To be added up by eye, unlike to_string's three digits.
std::string size_words(Bytes bytes);

/// "in backward", "in the first optimizer step", "in forward of step 3"; "" where nothing is known. `step`: 0 if
/// unknown.
std::string phase_words(trace::Phase phase, std::uint32_t step);

/// "event 12,630 of 19,342".
std::string event_words(std::size_t event, std::size_t events);
}  // namespace cinch::inspect
