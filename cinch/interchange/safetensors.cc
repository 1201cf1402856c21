#include "cinch/interchange/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cinch/core/durable_file.h"
#include "cinch/core/error.h"
#include "cinch/interchange/internal/header.h"

namespace cinch::interchange {
namespace {
static_assert(std::endian::native == std::endian::little, "safetensors is little-endian, and is written as memory is");
constexpr std::size_t kBuffer = 1u << 20;

// --- writing

void check_storable(const std::string& name, const at::Tensor& tensor) {
  const char* problem = nullptr;
  if (name == "__metadata__") problem = "is a name the format keeps for itself";
  if (!tensor.defined()) {
    problem = "is undefined";
  } else if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    problem = "is not a plain dense tensor";
  } else if (!tensor.device().is_cpu()) {
    problem = "is not in the processor's memory";
  } else if (tensor.is_conj() || tensor.is_neg()) {
    problem = "is a lazy conjugate or negation: resolve it first";
  } else if (format_name(tensor.scalar_type()).empty()) {
    problem = "has a dtype that safetensors does not have";
  }
  if (problem != nullptr) throw UsageError("cannot save '" + name + "' as safetensors: it " + problem);
}

using Entry = std::pair<std::string, at::Tensor>;

/// By falling element size, so that each is aligned when the file is mapped; then by name.
std::vector<Entry> in_file_order(const std::map<std::string, at::Tensor>& tensors) {
  for (const auto& [name, tensor] : tensors) check_storable(name, tensor);
  std::vector<Entry> entries(tensors.begin(), tensors.end());
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& left, const Entry& right) {
    return left.second.element_size() > right.second.element_size();
  });
  return entries;
}

std::string make_header(const std::vector<Entry>& entries, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : entries) {
    nlohmann::ordered_json& entry = header[name];
    const std::uint64_t end = offset + tensor.nbytes();
    entry["dtype"] = format_name(tensor.scalar_type());
    entry["shape"] = tensor.sizes().vec();
    entry["data_offsets"] = {offset, end};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kLargestHeader) throw UsageError("too many tensors for one safetensors file");
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

/// Elements one by one in row-major order, through a small buffer.
void write_strided(DurableFile& out, const at::Tensor& tensor) {
  const std::size_t element = tensor.element_size();
  const char* data = static_cast<const char*>(tensor.const_data_ptr());
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  std::vector<std::int64_t> index(sizes.size(), 0);
  std::string buffer;
  std::int64_t offset = 0;
  for (std::int64_t left = tensor.numel(); left > 0; --left) {
    buffer.append(data + offset * static_cast<std::int64_t>(element), element);
    if (buffer.size() + element > kBuffer) {
      out.write(buffer);
      buffer.clear();
    }
    for (std::size_t dim = sizes.size(); dim-- > 0;) {
      offset += strides[dim];
      if (++index[dim] < sizes[dim]) break;
      offset -= strides[dim] * sizes[dim];
      index[dim] = 0;
    }
  }
  out.write(buffer);
}

// --- reading

class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (descriptor_ < 0) throw IoError(path, "read", errno);
  }
  ~InputFile() { ::close(descriptor_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const {
    struct ::stat status{};
    if (::fstat(descriptor_, &status) < 0) throw IoError(path_, "read", errno);
    if (!S_ISREG(status.st_mode)) throw DataError(path_, 0, "not a regular file");
    return static_cast<std::uint64_t>(status.st_size);
  }
  void read(std::uint64_t offset, std::uint64_t count, void* out) const {
    auto* to = static_cast<char*>(out);
    while (count > 0) {
      const ::ssize_t got = ::pread(descriptor_, to, count, static_cast<::off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError(path_, "read", errno);
      if (got == 0) throw DataError(path_, offset, "the file ends here");
      to += got;
      offset += static_cast<std::uint64_t>(got);
      count -= static_cast<std::uint64_t>(got);
    }
  }
  /// Copy-on-write; unmapped with the last owner.
  std::shared_ptr<char> map(std::uint64_t size) const {
    void* begin = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
    if (begin == MAP_FAILED) throw IoError(path_, "map", errno);
    return {static_cast<char*>(begin), [size](char* data) { ::munmap(data, size); }};
  }

 private:
  const std::filesystem::path& path_;
  int descriptor_;
};

struct OpenedHeader {
  Header header;
  std::uint64_t data_begin = 0, file_size = 0;
};

OpenedHeader read_header(const InputFile& in, const std::filesystem::path& path) {
  const std::uint64_t size = in.size();
  std::uint64_t length = 0;
  if (size < sizeof length) throw DataError(path, size, "too short for a safetensors file");
  in.read(0, sizeof length, &length);
  if (length > kLargestHeader) {
    throw DataError(path, 0, "a header of " + std::to_string(length) + " bytes, more than the format allows",
                    "This is probably no safetensors file.");
  }
  if (length > size - sizeof length) throw DataError(path, size, "the file ends within its header");
  std::string text(length, '\0');
  in.read(sizeof length, length, text.data());
  const std::uint64_t begin = sizeof length + length;
  return {parse_header(text, size - begin, path), begin, size};
}

at::Tensor read_tensor(const InputFile& in, const HeaderEntry& entry, std::uint64_t data_begin) {
  at::Tensor tensor = at::empty(entry.sizes, entry.dtype);
  if (entry.end > entry.begin) in.read(data_begin + entry.begin, entry.end - entry.begin, tensor.mutable_data_ptr());
  return tensor;
}
}  // namespace

void save_safetensors(const std::filesystem::path& file, const Safetensors& content) {
  const std::vector<Entry> entries = in_file_order(content.tensors);
  const std::string header = make_header(entries, content.metadata);
  DurableFile out(file);
  out.write(header);
  for (const auto& [name, tensor] : entries) {
    if (tensor.numel() == 0) continue;
    if (tensor.is_contiguous()) {
      out.write({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
    } else {
      write_strided(out, tensor);
    }
  }
  out.close();
}

Safetensors load_safetensors(const std::filesystem::path& file) {
  const InputFile in(file);
  OpenedHeader opened = read_header(in, file);
  Safetensors content{{}, std::move(opened.header.metadata)};
  for (const HeaderEntry& entry : opened.header.entries) {
    content.tensors[entry.name] = read_tensor(in, entry, opened.data_begin);
  }
  return content;
}

Safetensors map_safetensors(const std::filesystem::path& file) {
  const InputFile in(file);
  OpenedHeader opened = read_header(in, file);
  Safetensors content{{}, std::move(opened.header.metadata)};
  const std::shared_ptr<char> map = in.map(opened.file_size);
  for (const HeaderEntry& entry : opened.header.entries) {
    const std::uint64_t offset = opened.data_begin + entry.begin;
    if (entry.end == entry.begin || offset % c10::elementSize(entry.dtype) != 0) {
      content.tensors[entry.name] = read_tensor(in, entry, opened.data_begin);
      continue;
    }
    content.tensors[entry.name] =
        at::from_blob(map.get() + offset, entry.sizes, [map](void*) {}, at::TensorOptions(entry.dtype));
  }
  return content;
}
}  // namespace cinch::interchange
