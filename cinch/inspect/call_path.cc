#include "cinch/inspect/call_path.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace cinch::inspect {
namespace {

constexpr std::size_t kFrames = 8;
constexpr std::size_t kFunctionLength = 120;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool is_python(std::string_view file) { return file.ends_with(".py") || file.starts_with("<frozen"); }

/// PyTorch's Python and what lies between it and a program.
bool library_file(std::string_view file) {
  constexpr std::array<std::string_view, 9> plumbing = {
      "contextlib.py", "runpy.py",      "threading.py",
      "functools.py",  "_bootstrap.py", "concurrent/futures/thread.py",
      "inspect.py",    "dispatcher.py", "logging/__init__.py"};
  if (file.starts_with("torch/") || has(file, "/torch/") || file.starts_with("<")) return true;
  return std::any_of(plumbing.begin(), plumbing.end(), [&](std::string_view end) { return file.ends_with(end); });
}

/// LibTorch, the standard library, the interpreter, the start of a process: all but the program.
bool library_function(std::string_view function) {
  constexpr std::array<std::string_view, 11> begins = {
      "at::", "c10::", "c10d::", "torch::", "std::", "caffe2::", "Py", "_Py", "py", "_start", "__"};
  if (function.empty() || function == "main" || function == "cfunction_call" || function == "start_thread") return true;
  if (std::any_of(begins.begin(), begins.end(), [&](std::string_view begin) { return function.starts_with(begin); })) {
    return true;
  }
  const std::string_view head = function.substr(0, function.find('('));
  return has(head, " at::") || has(head, " c10::") || has(head, " torch::") || has(head, " std::") ||
         has(function, "(anonymous namespace)::wrapper_") || has(function, "execute_native_thread_routine") ||
         has(function, "pthread") || has(function, "clone3") || has(function, "run_mod") || has(function, "run_eval");
}

/// "bmm" of "at::_ops::bmm::call(at::Tensor const&, …)"; "" of others.
std::string_view op_of(std::string_view function) {
  constexpr std::string_view begin = "at::_ops::";
  if (!function.starts_with(begin)) return "";
  function.remove_prefix(begin.size());
  const std::size_t end = function.find("::call(");
  return end == std::string_view::npos ? "" : function.substr(0, end);
}

/// "BmmBackward0" of "torch::autograd::generated::BmmBackward0::apply(…)", also of a program's own node.
std::string_view node_of(std::string_view function) {
  const std::size_t end = function.find("::apply(");
  if (end == std::string_view::npos) return "";
  const std::string_view name = function.substr(0, end);
  const std::string_view last = name.substr(name.rfind(':') == std::string_view::npos ? 0 : name.rfind(':') + 1);
  const bool node = has(name, "torch::autograd::generated::") || has(last, "Backward") || last == "AccumulateGrad";
  return node ? last : "";
}

std::string frame_text(std::string_view file, std::uint32_t line, std::string_view function) {
  std::string text(file);
  text += ":" + std::to_string(line);
  if (!function.empty()) text += " " + std::string(function);
  return text;
}

std::string function_text(std::string_view file, std::uint32_t line, std::string_view function) {
  std::string text(function.substr(0, kFunctionLength));
  if (function.size() > kFunctionLength) text += "…";
  if (line > 0 && !file.empty()) text += " " + std::string(file) + ":" + std::to_string(line);
  return text;
}
}  // namespace

CallPath call_path(const trace::StackTable& stacks, trace::StackId stack) {
  const trace::NameTable& names = stacks.names();
  CallPath path;
  std::string op, node;
  std::vector<std::string> functions;
  bool python = false;
  for (const trace::Frame& frame : stacks[stack]) {
    const std::string_view file = names[frame.file], function = names[frame.function];
    if (is_python(file)) {
      python = true;
      if (!library_file(file) && path.frames.size() < kFrames) {
        path.frames.push_back(frame_text(file, frame.line, function));
      }
      continue;
    }
    if (const std::string_view found = node_of(function); node.empty() && !found.empty()) node = found;
    if (const std::string_view found = op_of(function); node.empty() && !python && !found.empty()) op = found;
    if (!library_function(function) && functions.size() < kFrames) {
      functions.push_back(function_text(file, frame.line, function));
    }
  }
  if (!python) path.frames = std::move(functions);
  path.op = node.empty() ? op : op.empty() ? node : node + ": " + op;
  return path;
}

std::string to_string(const CallPath& path, std::size_t frames) {
  std::string text = path.op;
  for (std::size_t i = 0; i < std::min(frames, path.frames.size()); ++i) {
    if (!text.empty()) text += i == 0 ? ", " : " < ";
    text += path.frames[i];
  }
  return text.empty() ? "(no stack recorded)" : text;
}
}  // namespace cinch::inspect
