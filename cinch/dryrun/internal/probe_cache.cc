#include "cinch/dryrun/internal/probe_cache.h"

#include <ATen/Version.h>
#include <link.h>
#include <sys/stat.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "cinch/core/version.h"
#include "cinch/dryrun/internal/probe_bytes.h"

namespace cinch::dryrun::internal {
namespace {

/// Raised whenever the probe of an unchanged kernel would find something else (stand-ins hold other values), or
/// probe_bytes.cc writes something else.
constexpr int kFormat = 1;

/// Of the first core: kernels are chosen, and their blocks cut, by what it can do and how large its caches are.
std::string processor() {
  static constexpr std::string_view kFields[] = {"vendor_id", "cpu family", "model", "model name",
                                                 "stepping",  "cache size", "flags"};
  std::ifstream file("/proc/cpuinfo");
  std::string text;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const auto field = line.substr(0, line.find_first_of("\t:"));
    if (std::find(std::begin(kFields), std::end(kFields), field) != std::end(kFields)) text += line + '\n';
  }
  return text;
}

/// oneDNN's settings: they hold instructions back, and choose its arithmetic.
std::string environment() {
  std::set<std::string> chosen;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (const std::string_view text(*entry); text.starts_with("ONEDNN_") || text.starts_with("DNNL_"))
      chosen.emplace(text);
  std::string text;
  for (const auto& entry : chosen) text += entry + '\n';
  return text;
}

/// LibTorch's file: who builds it anew may have other kernels under the old version.
std::string library() {
  std::string path = "/proc/self/exe";  // If it was linked statically.
  ::dl_iterate_phdr(
      [](dl_phdr_info* loaded, std::size_t, void* found) {
        const std::string_view name(loaded->dlpi_name);
        if (!name.ends_with("/libtorch_cpu.so")) return 0;
        *static_cast<std::string*>(found) = name;
        return 1;
      },
      &path);
  struct stat status {};
  ::stat(path.c_str(), &status);
  return std::to_string(status.st_size) + ' ' + std::to_string(status.st_mtim.tv_sec) + '\n';
}

/// LibTorch's and its libraries' versions, and the instruction set that it chose. Not at::show_config(): that asks for
/// CUDA's version where a dry run claims a card.
std::string title() {
  return "probes " + std::to_string(kFormat) + " of cinch " + kVersion + '\n' + processor() + environment() +
         library() + TORCH_VERSION + '\n' + at::get_cxx_flags() + at::get_mkl_version() + at::get_mkldnn_version() +
         at::get_openmp_version() + at::get_cpu_capability();
}
}  // namespace

ProbeCache::ProbeCache() {
  const auto folder = cache_folder();
  if (!folder || processor().empty()) return;
  file_.emplace(*folder, "probes", title());
}

bool ProbeCache::is_kept(const c10::OperatorHandle& op) {
  const auto [slot, fresh] = is_kept_.try_emplace(op.operator_name(), false);
  if (!fresh || !op.operator_name().name.starts_with("aten::")) return slot->second;
  // It names the file that registered each kernel, and those that were replaced.
  const auto state = op.dumpState();
  const auto begin = state.find("\nCPU: ");
  const auto line =
      begin == std::string::npos ? std::string() : state.substr(begin + 1, state.find('\n', begin + 1) - begin);
  return slot->second = state.find("(inactive)") == std::string::npos &&
                        (line.empty() || line.find("ATen/RegisterCPU") != std::string::npos);
}

std::optional<KernelScript> ProbeCache::find(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                             const std::string& signature) {
  if (!file_ || !is_kept(op)) return std::nullopt;
  const auto* bytes = file_->find(signature);
  if (bytes == nullptr) return std::nullopt;
  auto script = from_bytes(*bytes);
  if (!script || !answers(*script, op, arguments)) return std::nullopt;
  return script;
}

void ProbeCache::keep(const c10::OperatorHandle& op, const std::string& signature, const KernelScript& script) {
  if (!file_ || !is_kept(op)) return;
  if (auto bytes = to_bytes(script)) file_->add(signature, std::move(*bytes));
}

void ProbeCache::save() noexcept {
  if (file_) file_->save();
}
}  // namespace cinch::dryrun::internal
