#include <cstdio>
#include <exception>

#include "outside.h"

int main() {
  try {
    outside::estimate_any_module();
    outside::checkpoint_called_children();
    outside::train_own_model();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::puts("outside project: all as expected");
}
