#pragma once
// A stack as a person reads it: the op, and the lines of their own program that asked for it.
//
//   to_string(call_path(snapshot.stacks(), event.stack));   // "einsum, user/model.py:22 forward"

#include <string>
#include <vector>

#include "cinch/trace/stacks.h"

namespace cinch::inspect {

/// What is left of a stack without the allocator, the dispatcher, the interpreter and PyTorch's own Python.
struct CallPath {
  std::string op;                   ///< "einsum"; "BmmBackward0: bmm" in backward; "" where the stack does not tell.
  std::vector<std::string> frames;  ///< The user's, innermost first: "user/model.py:22 forward". May be empty.
  friend auto operator<=>(const CallPath&, const CallPath&) = default;
};

/// Of a program in Python its Python frames outside PyTorch; of one in C++ the functions outside LibTorch.
CallPath call_path(const trace::StackTable& stacks, trace::StackId stack);

/// The op and the first `frames` frames, on one line; "(no stack recorded)" for an empty path.
std::string to_string(const CallPath& path, std::size_t frames = 1);
}  // namespace cinch::inspect
