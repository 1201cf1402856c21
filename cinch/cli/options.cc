#include "cinch/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cinch/core/error.h"
#include "cinch/core/text.h"
#include "cinch/device/device_file.h"
#include "cinch/job/huggingface.h"
#include "cinch/plan/plan.h"
#include "cinch/train/train.h"

namespace cinch::cli {
namespace {

/// Flags as changes to the job, in the order in which they win.
std::vector<std::string> overrides(const Options& options) {
  std::vector<std::string> changes = options.set;
  if (options.batch) changes.push_back(fmt::format("train.batch_size={}", *options.batch));
  if (options.context) changes.push_back(fmt::format("model.context_length={}", *options.context));
  if (options.threads) changes.push_back(fmt::format("train.threads={}", *options.threads));
  return changes;
}

/// A job file, or a folder with a Hugging Face config.json.
job::Job read_job(const std::string& path, const std::vector<std::string>& changes) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return job::from_folder(path, changes);
  return job::load(path, changes);
}
}  // namespace

void add_options(CLI::App& verb, Options& options) {
  verb.add_option("job", options.job, "The job, a TOML file, or a folder with a Hugging Face config.json")
      ->required()
      ->type_name("JOB.toml|DIR");
  verb.add_option("--budget", options.budget, "Memory that may be used: 8GiB, 500MB, 1048576")->type_name("SIZE");
  verb.add_option("--device", options.device,
                  "What to predict for: cpu, a card that cinch devices lists, or a file that describes one")
      ->type_name("NAME|FILE");
  verb.add_option("--set", options.set, "Change a key of the job: train.steps=10. May be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  verb.add_option(
          "--allow", options.allow,
          "A technique that planners use only if they are told to: a lossy one, or on the CPU one that needs the "
          "host's memory. As in the job's memory.allow. May be repeated")
      ->type_name("TECHNIQUE")
      ->allow_extra_args(false);
  verb.add_option("--threads", options.threads, "Threads to compute with; 0: all cores")->type_name("N");
  verb.add_flag("--json", options.json, "One JSON document on standard output and nothing else");
  verb.add_option("--html", options.html, "Write a report with charts")->type_name("FILE");
  verb.add_flag("-q,--quiet", options.quiet, "No progress on standard error");
}

Bytes parse_budget(const std::string& text) {
  Bytes budget;
  try {
    budget = Bytes::parse(text);
  } catch (const Error& error) {
    throw UsageError(std::string("--budget: ") + error.what(), error.hint());
  }
  if (budget.count() == 0)
    throw UsageError("--budget " + text + ": nothing fits into 0 bytes", "Write for example --budget 2GiB.");
  return budget;
}

void check_allowed(const std::vector<std::string>& techniques) {
  std::vector<std::string> known;
  for (const plan::TechniqueInfo& info : plan::techniques()) known.emplace_back(info.key);
  for (const std::string& name : techniques) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = nearest(name, known);
    throw UsageError(
        fmt::format("--allow {}: there is no such technique", name),
        near.empty() ? fmt::format("There are {}.", fmt::join(known, ", ")) : "Did you mean " + near + "?");
  }
}

Bytes Request::limit() const { return budget ? *budget : Bytes(device.memory.count() / 50 * 49); }

void require_cpu(const Request& request) {
  if (request.device.type == device::DeviceType::kCpu) return;
  throw UsageError(
      fmt::format("--device {}: there is no such card here; training runs on this machine's CPU in this version",
                  request.device.name),
      "cinch estimate and cinch plan predict for cards that are not there.");
}

namespace {
/// What the next command has to say to mean this job and device.
std::vector<std::string> repeated(const Request& request, const std::string& device) {
  std::vector<std::string> words;
  if (device != "cpu") words = {"--device", device};
  for (const std::string& key : request.allow) words.insert(words.end(), {"--allow", key});
  for (const std::string& change : request.changes) words.insert(words.end(), {"--set", change});
  return words;
}

void load(Request& request) {
  request.job = read_job(request.path, request.changes);
  request.job.memory.allow.insert(request.allow.begin(), request.allow.end());
}
}  // namespace

Request read(const Options& options) {
  check_allowed(options.allow);
  Request request;
  request.path = options.job;
  if (options.budget) request.budget = parse_budget(*options.budget);
  request.changes = overrides(options);
  request.allow = options.allow;
  load(request);
  if (!request.budget) request.budget = request.job.memory.budget;
  request.device = device::find_or_load(options.device, request.job.train.threads);
  request.environment = {train::libtorch_version(), request.device.name, train::set_threads(request.job.train.threads)};
  request.repeat = repeated(request, options.device);
  return request;
}

Request changed(const Request& request, const std::vector<std::string>& changes) {
  Request other = request;
  for (const std::string& change : changes) {  // Instead of what the user typed for the same key.
    const std::string key = change.substr(0, change.find('=') + 1);
    std::erase_if(other.changes, [&](const std::string& old) { return old.starts_with(key); });
    other.changes.push_back(change);
  }
  load(other);
  const auto device = std::ranges::find(request.repeat, "--device");
  other.repeat = repeated(other, device == request.repeat.end() ? "cpu" : *(device + 1));
  return other;
}
}  // namespace cinch::cli
