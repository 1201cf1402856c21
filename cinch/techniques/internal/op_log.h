#pragma once
// The ops that a region calls, in order, and checksums of what they give: to name the first that differs in its second
// run.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

namespace cinch::techniques::internal {

/// Of one region. Sees what the region calls itself, not what its ops call inside.
class OpLog {
 public:
  /// `values`: compares them too, but not those of `updated`, which differ from run to run.
  OpLog(bool values, at::ArrayRef<at::Tensor> updated);
  void begin_second_run();
  /// "op 7 was aten::exp, now aten::sin"; nothing while the second run does as the first.
  const std::optional<std::string>& difference() const { return difference_; }

  void on_call(const at::RecordFunction& call);
  void on_return(const at::RecordFunction& call);

 private:
  struct Call {
    std::string name;
    std::optional<std::uint64_t> checksum;  ///< None where there is nothing to compare: views, uninitialised memory.
  };
  std::uint64_t checksum(const std::vector<c10::IValue>& outputs) const;

  const bool values_;
  std::unordered_set<const void*> updated_;  ///< Storages.
  std::vector<Call> calls_;
  bool forward_ = true;
  std::size_t count_ = 0;  ///< Calls of the second run.
  int depth_ = 0;
  std::optional<std::string> difference_;
};

/// While it lives, `log` sees the ops of this thread; nullptr: whoever saw them before goes on.
class [[nodiscard]] OpLogScope {
 public:
  explicit OpLogScope(OpLog* log);
  ~OpLogScope();
  OpLogScope(const OpLogScope&) = delete;
  OpLogScope& operator=(const OpLogScope&) = delete;

 private:
  OpLog* before_ = nullptr;
  at::CallbackHandle callback_ = at::INVALID_CALLBACK_HANDLE;
  std::optional<at::RecordFunctionGuard> enabled_;
};
}  // namespace cinch::techniques::internal
