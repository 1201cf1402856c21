// Feeds every file of a corpus folder, and every prefix that a cut-off download would leave, to a fuzz target.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: replay CORPUS_FOLDER\n");
    return 2;
  }
  std::size_t files = 0, inputs = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    const std::vector<char> read((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const std::size_t stride = read.size() / 256 + 1;  // At most some 256 prefixes a file.
    for (std::size_t size = 0; size < read.size() + stride; size += stride) {
      // A copy of exactly this size, so that a sanitizer sees a read past its end.
      const std::vector<char> copy(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(std::min(size, read.size())));
      LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(copy.data()), copy.size());
      ++inputs;
    }
    ++files;
  }
  std::printf("%zu inputs from %zu files\n", inputs, files);
  return files == 0;
}
