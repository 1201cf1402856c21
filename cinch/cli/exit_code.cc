#include "cinch/cli/exit_code.h"

#include <cerrno>

#include "cinch/core/error.h"

namespace cinch::cli {
namespace {

bool is_the_disks_fault(int error_number) {
  switch (error_number) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EROFS:
    case EIO:
      return true;
    default:
      return false;
  }
}
}  // namespace

ExitCode exit_code(const std::exception& error, Stage stage) {
  if (const auto* io = dynamic_cast<const IoError*>(&error)) {
    return stage == Stage::kWorking || is_the_disks_fault(io->error_number()) ? kFailed : kBadInput;
  }
  const bool input = dynamic_cast<const UsageError*>(&error) || dynamic_cast<const ConfigError*>(&error) ||
                     dynamic_cast<const DataError*>(&error) || dynamic_cast<const OverflowError*>(&error);
  return input ? kBadInput : kFailed;
}
}  // namespace cinch::cli
