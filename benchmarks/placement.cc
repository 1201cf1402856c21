// Does it fit, and how fast is that found? Any file of MiniMalloc's form, or its six instances in tests/data.
//
//   placement                                                 the instances, one line each
//   placement FILE.csv [--capacity N] [--alignment N] [--time-limit SECONDS] [--no-offsets]
//
// The time limit is 10 s unless given. A file gives one JSON document; exit code 0 if a validated placement fits the
// capacity (without one: exists), 3 if none was found, 2 for bad input. placement_steps.py makes files of 100,000
// buffers from a recorded training step.

#include "cinch/placement/placement.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cinch/core/error.h"

namespace cinch::placement {
namespace {
constexpr int kBadInput = 2;
constexpr int kDoesNotFit = 3;
constexpr auto kDefaultLimit = std::chrono::seconds(10);
constexpr auto kNoLimit = std::chrono::hours(24 * 365);

struct Arguments {
  std::filesystem::path file;
  Options options{.time_limit = kDefaultLimit};
  bool print_offsets = true;
};

struct Result {
  std::vector<Buffer> buffers;
  Placement placement;
  double seconds = 0;
  bool valid = false;
  bool fits = false;
};

double parse_number(const std::string& flag, const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !(number >= 0 && number < 1e15)) {
    throw UsageError(flag + " takes a number, not \"" + text + "\"");
  }
  return number;
}

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const std::string word = values[i];
    const auto number = [&] { return parse_number(word, ++i < count ? values[i] : ""); };
    if (word == "--capacity") {
      arguments.options.capacity = Bytes(static_cast<std::int64_t>(number()));
    } else if (word == "--alignment") {
      arguments.options.alignment = Bytes(static_cast<std::int64_t>(number()));
    } else if (word == "--time-limit") {
      const std::chrono::duration<double> limit(number());
      arguments.options.time_limit = limit < kNoLimit ? std::chrono::duration_cast<std::chrono::milliseconds>(limit)
                                                      : std::chrono::milliseconds(kNoLimit);
    } else if (word == "--no-offsets") {
      arguments.print_offsets = false;
    } else if (word.starts_with("-") || !arguments.file.empty()) {
      throw UsageError("unexpected \"" + word + "\"",
                       "placement [FILE.csv [--capacity N] [--alignment N] [--time-limit SECONDS] [--no-offsets]]");
    } else {
      arguments.file = word;
    }
  }
  return arguments;
}

Result solve(const std::filesystem::path& file, const Options& options) {
  Result result{.buffers = read_csv(file), .placement = {}};
  const auto begin = std::chrono::steady_clock::now();
  result.placement = place(result.buffers, options);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Placement& placement = result.placement;
  const auto fault = validate(result.buffers, placement.offsets, placement.height);
  if (fault) std::fprintf(stderr, "INVALID: %s\n", fault->c_str());
  result.valid = !fault;
  result.fits = result.valid && (!options.capacity || placement.height <= *options.capacity);
  return result;
}

nlohmann::ordered_json to_json(const Arguments& arguments, const Result& result) {
  nlohmann::ordered_json json;
  const auto& [buffers, placement, seconds, valid, fits] = result;
  const Bytes load = live_load(buffers, arguments.options.alignment);
  json["file"] = arguments.file.string();
  json["buffers"] = buffers.size();
  json["capacity"] = nullptr;
  if (arguments.options.capacity) json["capacity"] = arguments.options.capacity->count();
  json["live_load"] = load.count();
  json["bound"] = placement.bound.count();
  json["height"] = placement.height.count();
  const auto over = static_cast<double>((placement.height - load).count());
  json["gap"] = load > Bytes(0) ? over / static_cast<double>(load.count()) : 0;
  json["fits"] = fits;
  json["optimal"] = placement.optimal();
  json["valid"] = valid;
  json["seconds"] = seconds;
  if (!arguments.print_offsets) return json;
  json["offsets"] = nlohmann::json::array();
  for (const Bytes offset : placement.offsets) json["offsets"].push_back(offset.count());
  return json;
}

/// The instances name their capacity: A.1048576.csv.
int solve_instances() {
  std::vector<std::filesystem::path> files;
  const std::filesystem::path folder = std::filesystem::path(CINCH_SOURCE_DIR) / "tests/data/minimalloc";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".csv") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  bool all = true;
  for (const auto& file : files) {
    const std::string capacity = file.stem().extension().string().substr(1);
    const Result result = solve(file, {.capacity = Bytes(std::stoll(capacity)), .time_limit = kDefaultLimit});
    std::printf("%s  %3zu buffers in %s: %s, %.3f s\n", file.stem().stem().c_str(), result.buffers.size(),
                capacity.c_str(), result.fits ? "placed and validated" : "NOT FOUND", result.seconds);
    all = all && result.fits;
  }
  return all ? 0 : kDoesNotFit;
}

int run(int count, char** values) {
  const Arguments arguments = parse(count, values);
  if (arguments.file.empty()) return solve_instances();
  const Result result = solve(arguments.file, arguments.options);
  std::printf("%s\n", to_json(arguments, result).dump().c_str());
  return result.fits ? 0 : kDoesNotFit;
}
}  // namespace
}  // namespace cinch::placement

int main(int count, char** values) {
  try {
    return cinch::placement::run(count, values);
  } catch (const cinch::Error& error) {
    std::fprintf(stderr, "%s\n%s%s", error.what(), error.hint().c_str(), error.hint().empty() ? "" : "\n");
    return cinch::placement::kBadInput;
  }
}
