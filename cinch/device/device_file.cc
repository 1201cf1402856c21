#include "cinch/device/device_file.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <sstream>
#include <vector>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/device/internal/cards.h"

namespace cinch::device {
namespace {

constexpr std::uint64_t kLargestFile = 1u << 20;
constexpr std::int64_t kLeastMemory = std::int64_t{1} << 20, kMostMemory = std::int64_t{1} << 50;
constexpr double kLeastRate = 1e6, kMostRate = 1e18;  // Of flops and bytes: no device is outside.
constexpr int kMostThreads = 65536;
constexpr std::size_t kLongestName = 64;

const std::vector<std::string> kTypes{"cpu", "cuda"};  // In the order of DeviceType.
const std::vector<std::string> kKeys{
    "name", "type", "memory", "bytes_per_second", "disk_bytes_per_second", "launch_seconds",
    "flops_per_second"};
const std::vector<std::string> kCudaKeys{"context", "cublas_workspace", "compute_capability", "host_bytes_per_second"};
const std::vector<std::string> kCpuKeys{"threads"};

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::toml_formatter(toml::value<std::string>{text}, toml::format_flags::none);
  return out.str();
}

/// Shortest that reads back the same, and is a TOML float.
std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

class Reader {
 public:
  Reader(std::string_view text, const std::filesystem::path& name) : name_(name) {
    if (const int line = line_of_deep_key(text)) throw ConfigError(name_, line, "", "a key has more than 100 parts");
    try {
      root_ = toml::parse(text, name.string());
    } catch (const toml::parse_error& error) {
      throw ConfigError(name_, static_cast<int>(error.source().begin.line), "",
                        fmt::format("this is no TOML: {}", error.description()),
                        "cinch devices rtx4090-24gb prints a file to begin with.");
    }
  }

  DeviceSpec read() const {
    DeviceSpec spec;
    spec.name = text("name");
    if (spec.name.empty() || spec.name.size() > kLongestName || spec.name != printable(spec.name) ||
        spec.name.find_first_of("\n\t") != std::string::npos)
      fail(root_.get("name"), "name", fmt::format("name has 1 to {} printable letters", kLongestName));
    spec.type = type();
    check_keys(spec.type);
    spec.memory = bytes("memory", kLeastMemory, kMostMemory);
    spec.bytes_per_second = number("bytes_per_second", kLeastRate, kMostRate);
    if (root_.contains("disk_bytes_per_second"))
      spec.disk_bytes_per_second = number("disk_bytes_per_second", kLeastRate, kMostRate);
    spec.launch = std::chrono::duration<double>(number("launch_seconds", 0, 1));
    spec.peak_rates = rates();
    if (spec.type == DeviceType::kCuda) read_cuda(spec);
    if (spec.type == DeviceType::kCpu) spec.threads = static_cast<int>(whole("threads", 1, kMostThreads));
    return spec;
  }

 private:
  [[noreturn]] void fail(const toml::node* node, const std::string& key, const std::string& problem,
                         const std::string& hint = {}) const {
    throw ConfigError(name_, node == nullptr ? 0 : static_cast<int>(node->source().begin.line), key, problem, hint);
  }

  void read_cuda(DeviceSpec& spec) const {
    const std::int64_t most = spec.memory.count() - 1;
    spec.context = bytes("context", 0, most);
    spec.compute_capability = compute_capability();
    spec.cublas_workspace = root_.contains("cublas_workspace")
                                ? bytes("cublas_workspace", 0, most)
                                : internal::default_cublas_workspace(spec.compute_capability);
    spec.host_bytes_per_second = number("host_bytes_per_second", kLeastRate, kMostRate);
    if (usable(spec) <= Bytes()) fail(root_.get("context"), "context", "context leaves nothing of the memory");
  }

  DeviceType type() const {
    const std::string word = text("type");
    const auto found = std::ranges::find(kTypes, word);
    if (found == kTypes.end())
      fail(root_.get("type"), "type", fmt::format("type is \"{}\", which is unknown", printable(word)),
           "It is \"cuda\" or \"cpu\".");
    return static_cast<DeviceType>(found - kTypes.begin());
  }

  void check_keys(DeviceType type) const {
    std::vector<std::string> known = kKeys;
    const auto& more = type == DeviceType::kCuda ? kCudaKeys : kCpuKeys;
    known.insert(known.end(), more.begin(), more.end());
    for (const auto& [key, node] : root_) {
      const std::string word(key.str());
      if (std::ranges::find(known, word) != known.end()) continue;
      const std::string near = nearest(word, known);
      fail(&node, word, fmt::format("\"{}\" is unknown", printable(word)),
           near.empty() ? fmt::format("Known here: {}.", fmt::join(known, ", "))
                        : fmt::format("Did you mean {}?", near));
    }
  }

  const toml::node& need(const std::string& key) const {
    const toml::node* node = root_.get(key);
    if (node == nullptr)
      fail(nullptr, key, key + " is missing", "cinch devices NAME prints a file that has every key.");
    return *node;
  }

  std::string text(const std::string& key) const {
    const toml::node& node = need(key);
    if (!node.is_string()) fail(&node, key, key + " wants a text in quotes");
    return node.as_string()->get();
  }

  std::int64_t whole(const std::string& key, std::int64_t least, std::int64_t most) const {
    const toml::node& node = need(key);
    if (!node.is_integer()) fail(&node, key, key + " wants a whole number");
    const std::int64_t value = node.as_integer()->get();
    if (value < least || value > most)
      fail(&node, key, fmt::format("{} is {}; it lies between {} and {}", key, value, least, most));
    return value;
  }

  /// 25383100416 or "23.64GiB".
  Bytes bytes(const std::string& key, std::int64_t least, std::int64_t most) const {
    const toml::node& node = need(key);
    if (node.is_integer()) return Bytes(whole(key, least, most));
    if (!node.is_string()) fail(&node, key, key + " wants a size: \"24GiB\", or bytes");
    Bytes value;
    try {
      value = Bytes::parse(node.as_string()->get());
    } catch (const Error& error) {
      fail(&node, key, fmt::format("{}: {}", key, error.what()), error.hint());
    }
    if (value < Bytes(least) || value > Bytes(most))
      fail(&node, key,
           fmt::format("{} is {}; it lies between {} and {}", key, to_string(value), to_string(Bytes(least)),
                       to_string(Bytes(most))));
    return value;
  }

  double number(const std::string& key, double least, double most) const { return number(need(key), key, least, most); }

  double number(const toml::node& node, const std::string& key, double least, double most) const {
    const auto value = node.is_number() ? node.value<double>() : std::nullopt;
    if (!value) fail(&node, key, key + " wants a number");
    // Not a number compares false.
    if (!(*value >= least && *value <= most))
      fail(&node, key, fmt::format("{} is {}; it lies between {} and {}", key, *value, least, most));
    return *value;
  }

  int compute_capability() const {
    const std::string word = text("compute_capability");
    int major = 0, minor = 0;
    const char* end = word.data() + word.size();
    const auto whole_part = std::from_chars(word.data(), end, major);
    const bool pointed = whole_part.ec == std::errc() && whole_part.ptr != end && *whole_part.ptr == '.';
    const auto rest = pointed ? std::from_chars(whole_part.ptr + 1, end, minor) : whole_part;
    if (!pointed || rest.ec != std::errc() || rest.ptr != end || major < 5 || major > 99 || minor < 0 || minor > 9)
      fail(root_.get("compute_capability"), "compute_capability",
           fmt::format("compute_capability is \"{}\", which is none", printable(word)),
           "As NVIDIA writes it, from \"5.0\": \"8.9\".");
    return 10 * major + minor;
  }

  std::vector<DeviceSpec::Rate> rates() const {
    const toml::node& node = need("flops_per_second");
    const toml::table* table = node.as_table();
    if (table == nullptr)
      fail(&node, "flops_per_second", "flops_per_second is a section",
           "Write [flops_per_second] on a line of its own.");
    std::vector<DeviceSpec::Rate> result;
    for (const auto& [key, rate] : *table) {
      const auto dtype = dtype_named(key.str());
      if (!dtype)
        fail(&rate, std::string(key.str()), fmt::format("\"{}\" is no type", printable(key.str())),
             "For example float32, bfloat16, float16.");
      result.push_back({*dtype, number(rate, "flops_per_second." + std::string(key.str()), kLeastRate, kMostRate)});
    }
    std::ranges::sort(result, {}, &DeviceSpec::Rate::dtype);
    if (std::ranges::find(result, DType::kFloat32, &DeviceSpec::Rate::dtype) == result.end())
      fail(&node, "flops_per_second.float32", "flops_per_second.float32 is missing");
    return result;
  }

  std::filesystem::path name_;
  toml::table root_;
};
}  // namespace

std::string to_toml(const DeviceSpec& device) {
  std::string text =
      fmt::format("name = {}\ntype = \"{}\"\n", quoted(device.name), kTypes[static_cast<std::size_t>(device.type)]);
  const auto size = [&](const char* key, Bytes bytes, const char* meaning) {
    text += fmt::format("{} = {}  # {}: {}\n", key, bytes.count(), to_string(bytes), meaning);
  };
  const bool cuda = device.type == DeviceType::kCuda;
  size("memory", device.memory, cuda ? "total, as the driver reports it" : "that the process may use");
  if (cuda) {
    size("context", device.context, "taken before the first tensor, kernels included");
    size("cublas_workspace", device.cublas_workspace, "for each thread and stream");
    text +=
        fmt::format("compute_capability = \"{}.{}\"\n", device.compute_capability / 10, device.compute_capability % 10);
    text += fmt::format("host_bytes_per_second = {}  # one direction\n", number_text(device.host_bytes_per_second));
  } else {
    text += fmt::format("threads = {}\n", device.threads);
  }
  text += fmt::format("bytes_per_second = {}  # of its memory\n", number_text(device.bytes_per_second));
  if (device.disk_bytes_per_second > 0)
    text += fmt::format("disk_bytes_per_second = {}  # of a file, written or read\n",
                        number_text(device.disk_bytes_per_second));
  text += fmt::format("launch_seconds = {}  # fixed cost of one op\n", number_text(device.launch.count()));
  text += "\n[flops_per_second]  # dense matrix products\n";
  std::vector<DeviceSpec::Rate> rates = device.peak_rates;
  std::ranges::sort(rates, {}, &DeviceSpec::Rate::dtype);
  for (const auto& rate : rates)
    text += fmt::format("{} = {}\n", name_of(rate.dtype), number_text(rate.flops_per_second));
  return text;
}

DeviceSpec parse(std::string_view toml, const std::filesystem::path& name_for_errors) {
  return Reader(toml, name_for_errors).read();
}

DeviceSpec load(const std::filesystem::path& file) {
  std::string text;
  try {
    text = read_file(file, kLargestFile);
  } catch (const Error& error) {
    throw ConfigError(file, 0, "", error.what(), error.hint());
  }
  return parse(text, file);
}

DeviceSpec find_or_load(const std::string& name_or_file, int threads) {
  if (!name_or_file.ends_with(".toml") && name_or_file.find('/') == std::string::npos)
    return find(name_or_file, threads);
  DeviceSpec device = load(name_or_file);
  if (device.type == DeviceType::kCpu && threads > 0) device.threads = threads;
  return device;
}
}  // namespace cinch::device
