#include "cinch/inspect/internal/stack_facts.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace cinch::inspect::internal {
namespace {

constexpr std::uint32_t kKnown = 1u << 31;

// Of files.
enum FileBit : std::uint32_t {
  kPython = 1,
  kTorch = 2,            // PyTorch's own Python.
  kOptimizerFile = 4,    // PyTorch's, a library's or the user's own.
  kModuleFile = 8,       // torch/nn/modules/module.py
  kCheckpointFile = 16,  // torch/utils/checkpoint.py
  kAutogradFile = 32,
  kDistributedFile = 64,
  kClipFile = 128,
  kSerializationFile = 256,
  kNnFile = 512
};

// Of functions.
enum FunctionBit : std::uint32_t {
  kStep = 1,
  kForwardCall = 2,
  kBackwardCall = 4,
  kModuleMove = 8,
  kLoad = 16,
  kEngine = 32,
  kAccumulate = 64,
  kReducer = 128,
  kCublas = 256,
  kCudnn = 512,
  kCachedCast = 1024,
  kNccl = 2048,
  kCppOptimizer = 4096,
  kMoveOp = 8192,
  kOp = 16384,
  kCppForward = 32768,
  kInit = 65536
};

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

template <std::size_t N>
bool one_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool in_torch(std::string_view file) {
  return file.starts_with("torch/") || has(file, "/torch/") || has(file, "/torchvision/");
}

std::uint32_t bits_of_file(std::string_view file) {
  if (!file.ends_with(".py")) return 0;
  std::uint32_t bits = kPython;
  const std::string_view base = file.substr(file.rfind('/') + 1);  // npos + 1 is 0.
  if (in_torch(file)) bits |= kTorch;
  if (has(file, "torch/optim/") || has(base, "optim") || has(file, "/optim/") || has(file, "/optimizers/")) {
    bits |= kOptimizerFile;
  }
  if (file.ends_with("torch/nn/modules/module.py")) bits |= kModuleFile;
  if (file.ends_with("torch/utils/checkpoint.py")) bits |= kCheckpointFile;
  if (has(file, "torch/autograd/") || file.ends_with("torch/_tensor.py")) bits |= kAutogradFile;
  if (has(file, "torch/distributed/")) bits |= kDistributedFile;
  if (has(file, "torch/nn/")) bits |= kNnFile;
  if (base == "clip_grad.py" || base == "grad_scaler.py") bits |= kClipFile;
  if (file.ends_with("torch/serialization.py") || has(file, "safetensors/")) bits |= kSerializationFile;
  return bits;
}

std::uint32_t python_bits(std::string_view function) {
  constexpr std::array<std::string_view, 3> forward = {"forward", "_call_impl", "_wrapped_call_impl"};
  constexpr std::array<std::string_view, 3> backward = {"backward", "_engine_run_backward", "_make_grads"};
  constexpr std::array<std::string_view, 8> moves = {"_apply", "to",       "cuda",    "half",
                                                     "float",  "bfloat16", "convert", "to_empty"};
  constexpr std::array<std::string_view, 5> loads = {"from_pretrained", "load_state_dict",
                                                     "_load_state_dict_into_model", "reset_parameters", "load_file"};
  std::uint32_t bits = 0;
  if (one_of(function, forward)) bits |= kForwardCall;
  if (one_of(function, backward)) bits |= kBackwardCall;
  if (one_of(function, moves)) bits |= kModuleMove;
  if (one_of(function, loads)) bits |= kLoad;
  if (function == "__init__") bits |= kInit;
  const bool scheduler = has(function, "zero_grad") || has(function, "state_dict") || function == "__init__";
  if (!scheduler && (has(function, "step") || has(function, "adam") || has(function, "sgd") ||
                     has(function, "_init_group") || has(function, "_fused_") || has(function, "update"))) {
    bits |= kStep;
  }
  return bits;
}

std::uint32_t cpp_bits(std::string_view function) {
  std::uint32_t bits = 0;
  if (has(function, "torch::autograd::Engine::") ||
      (has(function, "torch::autograd::generated::") && has(function, "Backward"))) {
    bits |= kEngine;
  }
  if (has(function, "torch::autograd::AccumulateGrad::")) bits |= kAccumulate;
  if (has(function, "c10d::Reducer::")) bits |= kReducer;
  if (has(function, "getCUDABlasLtWorkspace") || has(function, "getCurrentCUDABlasHandle") ||
      has(function, "getNewWorkspace") || has(function, "CUDABlasWorkspace") || has(function, "getCUDABlasLtHandle")) {
    bits |= kCublas;
  }
  if (has(function, "at::native::Workspace") || (has(function, "cudnn") && has(function, "orkspace"))) bits |= kCudnn;
  if (has(function, "at::autocast::cached_cast")) bits |= kCachedCast;
  if (has(function, "c10d::ProcessGroupNCCL")) bits |= kNccl;
  if (has(function, "torch::optim::")) bits |= kCppOptimizer;
  if (has(function, "torch::nn::") && has(function, "::forward(")) bits |= kCppForward;
  if (function.starts_with("torch::nn::Module::to") || has(function, "torch::nn::Module::to_impl")) {
    bits |= kModuleMove | kCppForward;  // Both together: a C++ module that is moved.
  }
  if (has(function, "at::_ops::") && has(function, "::call(")) {
    bits |= kOp;
    if (has(function, "at::_ops::to_dtype_layout::") || has(function, "at::_ops::to_device::") ||
        has(function, "at::_ops::to_other::")) {
      bits |= kMoveOp;
    }
  }
  return bits;
}

std::uint32_t bits_of_function(std::string_view function) { return python_bits(function) | cpp_bits(function); }

std::uint32_t& at(std::vector<std::uint32_t>& bits, trace::NameId id) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= bits.size()) bits.resize(index + 1);
  return bits[index];
}
}  // namespace

std::uint32_t StackReader::file_bits(trace::NameId file) {
  std::uint32_t& bits = at(file_bits_, file);
  if (bits == 0) bits = kKnown | bits_of_file(stacks_.names()[file]);
  return bits;
}

std::uint32_t StackReader::function_bits(trace::NameId function) {
  std::uint32_t& bits = at(function_bits_, function);
  if (bits == 0) bits = kKnown | bits_of_function(stacks_.names()[function]);
  return bits;
}

bool StackReader::says_something(trace::StackId stack) const {
  const auto says = [&](const trace::Frame& frame) {
    const std::string_view file = stacks_.names()[frame.file], function = stacks_.names()[frame.function];
    return (!file.empty() && file != "??") || (!function.empty() && function != "??");
  };
  const auto frames = stacks_[stack];
  return std::any_of(frames.begin(), frames.end(), says);
}

const StackFacts& StackReader::operator[](trace::StackId stack) {
  Entry& entry = facts_[static_cast<std::size_t>(stack)];
  if (!entry.known) entry = {true, read(stack)};
  return entry.facts;
}

StackFacts StackReader::read(trace::StackId stack) {
  const auto frames = stacks_[stack];
  StackFacts facts;
  if (frames.empty()) return facts;
  bool forward = false, backward = false, optimizer = false, moved = false, made = false, loaded = false;
  bool module_frame = false, checkpoint = false, python_met = false;
  for (const trace::Frame& frame : frames) {
    const std::uint32_t file = file_bits(frame.file), function = function_bits(frame.function);
    if ((file & kPython) != 0) {
      const bool module_file = (file & kModuleFile) != 0;
      forward = forward || (function & kForwardCall) != 0;
      backward = backward || (function & kBackwardCall) != 0;
      optimizer = optimizer || ((file & kOptimizerFile) != 0 && (function & kStep) != 0) || (file & kClipFile) != 0;
      moved = moved || (module_file && (function & kModuleMove) != 0);
      made = made || ((function & kInit) != 0 && ((file & kTorch) == 0 || (file & kNnFile) != 0));
      loaded = loaded || (function & kLoad) != 0 || (file & kSerializationFile) != 0;
      module_frame = module_frame || module_file;
      checkpoint = checkpoint || (file & kCheckpointFile) != 0;
      facts.communication = facts.communication || (file & kDistributedFile) != 0;
      python_met = true;
      continue;
    }
    backward = backward || (function & kEngine) != 0;
    optimizer = optimizer || (function & kCppOptimizer) != 0;
    if ((function & kCppForward) != 0) ((function & kModuleMove) != 0 ? moved : forward) = true;
    facts.accumulates = facts.accumulates || (function & kAccumulate) != 0;
    facts.bucket = facts.bucket || (function & kReducer) != 0;
    facts.autocast = facts.autocast || (function & kCachedCast) != 0;
    facts.cublas_workspace = facts.cublas_workspace || (function & kCublas) != 0;
    facts.cudnn_workspace = facts.cudnn_workspace || (function & kCudnn) != 0;
    facts.communication = facts.communication || (function & kNccl) != 0;
    if (!python_met && (function & kOp) != 0) facts.moves = (function & kMoveOp) != 0;  // The outermost one counts.
  }
  facts.in_backward = backward;
  facts.recompute = backward && (checkpoint || (forward && module_frame));
  if (optimizer) {
    facts.origin = Origin::kOptimizer;
  } else if (backward) {
    facts.origin = Origin::kBackward;
  } else if (moved || (loaded && !forward) || (made && !forward)) {
    facts.origin = Origin::kLoading;
  } else if (forward) {
    facts.origin = Origin::kForward;
  } else {
    facts.origin = Origin::kUnhinted;
  }
  return facts;
}
}  // namespace cinch::inspect::internal
