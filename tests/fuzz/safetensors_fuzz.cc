// Any bytes as a safetensors file: read, or refused with a DataError; never a crash, never memory that the file does not
// account for. What is read is written and read again: the same.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "cinch/core/error.h"
#include "cinch/interchange/safetensors.h"

namespace {
/// A file in memory with a path.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {}
  ~MemoryFile() { ::close(descriptor_); }
  void fill(const std::uint8_t* data, std::size_t size) {
    if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, data, size, 0) != static_cast<::ssize_t>(size)) abort();
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  MemoryFile file, again;
  file.fill(data, size);
  try {
    const auto content = cinch::interchange::load_safetensors(file.path());
    const auto mapped = cinch::interchange::map_safetensors(file.path());
    if (mapped.tensors.size() != content.tensors.size() || mapped.metadata != content.metadata) abort();
    cinch::interchange::save_safetensors(again.path(), content);
    const auto copy = cinch::interchange::load_safetensors(again.path());
    if (copy.tensors.size() != content.tensors.size() || copy.metadata != content.metadata) abort();
    for (const auto& [name, tensor] : content.tensors) {
      if (copy.tensors.at(name).sizes() != tensor.sizes()) abort();
    }
  } catch (const cinch::DataError&) {
  }
  return 0;
}
