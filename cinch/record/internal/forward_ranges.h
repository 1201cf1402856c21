#pragma once
// Which module made an autograd node: found by the node's sequence number, which rises with every node a thread makes.

#include <cstdint>
#include <string>

namespace cinch::record::internal {

/// From now on nodes of this thread are made by `path` (nullptr: by no module).
void note_forward_module(const std::string* path);
/// The module that made node `sequence` of `thread` (Node::thread_id()); nullptr if unknown. From any thread: on a GPU
/// backward runs on one of its own.
const std::string* forward_module(std::uint64_t thread, std::uint64_t sequence) noexcept;
}  // namespace cinch::record::internal
