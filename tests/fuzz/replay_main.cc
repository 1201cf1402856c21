// Feeds every file of a corpus folder to a fuzz target, every prefix that a cut-off download would leave, and some
// damaged copies, the same in every run: a fuzzer without coverage, for builds that have no libFuzzer.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {
using Input = std::vector<std::uint8_t>;

constexpr std::size_t kPrefixes = 256;  // Of a file, at most about so many.
constexpr int kDamaged = 2000;          // Copies of a file.

std::size_t inputs = 0;

// A copy of exactly this size, so that a sanitizer sees a read past its end.
void feed(const Input& whole, std::size_t size) {
  const Input copy(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(std::min(size, whole.size())));
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  ++inputs;
}

// One to four bytes changed, a stretch left out, or one that comes twice.
void damage(Input& bytes, std::mt19937& random) {
  if (bytes.empty()) return;
  const auto place = [&] { return bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size()); };
  const unsigned kind = random() % 4;
  if (kind <= 1) {
    for (unsigned i = 0; i <= random() % 4; ++i) *place() = static_cast<std::uint8_t>(random());
    return;
  }
  const auto begin = place();
  const auto end = begin + static_cast<std::ptrdiff_t>(
                               random() % static_cast<unsigned>(std::min<std::ptrdiff_t>(bytes.end() - begin, 64)));
  if (kind == 2) {
    bytes.erase(begin, end);
  } else {
    const Input part(begin, end);
    bytes.insert(place(), part.begin(), part.end());
  }
}

void feed_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  const Input whole((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::size_t stride = whole.size() / kPrefixes + 1;
  for (std::size_t size = 0; size < whole.size() + stride; size += stride) feed(whole, size);
  std::mt19937 random(static_cast<unsigned>(whole.size()));
  for (int i = 0; i < kDamaged; ++i) {
    Input damaged = whole;
    damage(damaged, random);
    feed(damaged, damaged.size());
  }
}
}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !std::filesystem::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: replay CORPUS_FOLDER\n");
    return 2;
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[1])) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) feed_file(file);
  std::printf("%zu inputs from %zu files\n", inputs, files.size());
  return files.empty();
}
