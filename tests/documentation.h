#pragma once
// Tables of docs/ that tests measure: between "<!-- measured: tests/FILE -->" and "<!-- end -->".

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "cinch/core/text.h"

namespace cinch::tests {

/// docs/`page` has to hold `table` in the place that names tests/`test`. With CINCH_WRITE_DOCS set it is put there.
inline void expect_in_documentation(const std::string& page, const std::string& test, const std::string& table) {
  std::string file = CINCH_SOURCE_DIR, head = "<!-- measured: tests/";
  file.append("/docs/").append(page);
  head.append(test).append(" -->\n");
  auto text = read_file(file);
  const auto begin = text.find(head), end = text.find("<!-- end -->", begin);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos) << file << " has no place for it";
  const auto first = begin + head.size();
  if (std::getenv("CINCH_WRITE_DOCS") != nullptr) {
    text.replace(first, end - first, table);
    write_file(file, text);
  } else {
    EXPECT_EQ(text.substr(first, end - first), table);
  }
}
}  // namespace cinch::tests
