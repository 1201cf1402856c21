#pragma once
// Files that become part of a page: those of assets/, and d3 where the build found it (cmake/CinchAssets.cmake).

#include <string_view>

namespace cinch::report::internal {

/// The text of a file by its name, "page.css"; "" if there is none.
std::string_view asset(std::string_view name);

/// Whether d3 was there: without it pages have their static charts alone.
inline bool interactive() { return !asset("d3.min.js").empty(); }
}  // namespace cinch::report::internal
