#pragma once
// A History as the page's script reads it.

#include <string>
#include <string_view>

#include "cinch/report/history.h"

namespace cinch::report::internal {

/// Tensors that a page lists one by one; the smaller rest is summed by category.
inline constexpr std::size_t kListedTensors = 20'000;

/// A <script> element with id "history-ID" that holds, as base64 of a zlib stream: four bytes, little-endian, the
/// length of a JSON document; the document (names, kinds of events, runs, tensors of the peak; categories by their
/// place in display_order()); then for each event a varint, zigzag: the number of its kind less the one before it,
/// less 1. Nothing of the trace's text stands in the HTML itself.
std::string history_script(std::string_view id, const History& history);

/// True when two histories run through the same steps and phases, so that one can be laid over the other.
bool comparable(const History& left, const History& right);
}  // namespace cinch::report::internal
