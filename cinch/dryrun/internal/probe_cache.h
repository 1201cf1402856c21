#pragma once
// What probes found, on disk: a second process that predicts the same job runs no kernel.

#include <optional>
#include <string>
#include <unordered_map>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "cinch/core/cache_file.h"
#include "cinch/dryrun/internal/kernel_script.h"

namespace cinch::dryrun::internal {

/// In cache_folder(), a file for each LibTorch, processor and version of cinch. What a call is known by, its
/// `signature`, says all else that its script depends on. Not kept:
///  * ops that LibTorch does not bring: who builds them anew has another kernel under the old name. A rule that
///  somebody
///    adds for an op of LibTorch's says whether it is probed, never what its probe finds;
///  * ops of LibTorch's with somebody else's kernel;
///  * scripts that to_bytes() does not bring back the same.
class ProbeCache {
 public:
  /// Opens it; without a folder it knows and keeps nothing.
  ProbeCache();
  std::optional<KernelScript> find(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                   const std::string& signature);
  void keep(const c10::OperatorHandle& op, const std::string& signature, const KernelScript& script);
  /// To be called now and then: it writes only what is new.
  void save() noexcept;

 private:
  bool is_kept(const c10::OperatorHandle& op);

  std::optional<CacheFile> file_;
  std::unordered_map<c10::OperatorName, bool> is_kept_;
};
}  // namespace cinch::dryrun::internal
