#pragma once
// A snapshot's values, written in one of two notations.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "cinch/core/atomic_file.h"
#include "cinch/trace/stacks.h"

namespace cinch::snapshot::internal {

/// Values in order; within a dict, `key` before each. Everything is written on; nothing is kept but texts and stacks.
class Emitter {
 public:
  virtual ~Emitter() = default;
  virtual void begin_dict() = 0;
  virtual void end_dict() = 0;
  virtual void begin_list() = 0;
  virtual void end_list() = 0;
  virtual void key(std::string_view name) = 0;
  virtual void text(std::string_view value) = 0;
  virtual void number(std::int64_t value) = 0;
  virtual void real(double value) = 0;
  virtual void truth(bool value) = 0;
  virtual void pair(std::int64_t first, std::int64_t second) = 0;
  /// The list of frames of one of the table's stacks.
  virtual void stack(trace::StackId id) = 0;
  /// Once, after the only value of the document.
  virtual void finish() = 0;

  void entry(std::string_view name, std::int64_t value) {
    key(name);
    number(value);
  }
  void entry(std::string_view name, std::string_view value) {
    key(name);
    text(value);
  }
};

/// Protocol 2 with the opcodes that PyTorch's MemoryViz.js reads. File and stacks must outlive the emitter.
std::unique_ptr<Emitter> pickle_emitter(AtomicFile& file, const trace::StackTable& stacks);
std::unique_ptr<Emitter> json_emitter(AtomicFile& file, const trace::StackTable& stacks);
/// With quotes; what is no UTF-8 is replaced.
std::string json_text(std::string_view text);
}  // namespace cinch::snapshot::internal
