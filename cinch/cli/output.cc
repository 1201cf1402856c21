#include "cinch/cli/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cinch/core/error.h"

namespace cinch::cli {

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw Error(std::string("cannot write to standard output: ") + std::strerror(errno));
}

bool colour_on_stdout() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) && !(no_colour && *no_colour) && terminal && std::string_view(terminal) != "dumb";
}

void print_error(const std::string& what, const std::string& hint) {
  std::fprintf(stderr, "cinch: %s\n", printable(what).c_str());
  if (!hint.empty()) std::fprintf(stderr, "  hint: %s\n", printable(hint).c_str());
}
}  // namespace cinch::cli
