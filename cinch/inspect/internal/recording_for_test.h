#pragma once
// A small recording, written as PyTorch writes it, for tests: of each allocation its own segment, so that any size and
// order is what an allocator could have done.
//
//   RecordingForTest made;
//   made.before(20_MiB);
//   const auto id = made.alloc(20_MiB, kForward);
//   made.free(id);
//   const auto snapshot = made.snapshot();

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cinch/snapshot/snapshot.h"

namespace cinch::inspect::internal {

struct FrameForTest {
  std::string file, function;
  int line = 1;
};
using StackForTest = std::vector<FrameForTest>;

/// Frames as recorded stacks have them, innermost first.
inline const StackForTest kForward = {{"", "at::_ops::addmm::call(at::Tensor const&)"},
                                      {"user/model.py", "forward", 10},
                                      {"torch/nn/modules/module.py", "_call_impl", 1750},
                                      {"user/train.py", "train", 5}};
inline const StackForTest kLoss = {{"", "at::_ops::log::call(at::Tensor const&)"}, {"user/train.py", "train", 6}};
inline const StackForTest kBackward = {
    {"", "at::_ops::bmm::call(at::Tensor const&)"},
    {"", "torch::autograd::generated::BmmBackward0::apply(std::vector<at::Tensor>&&)"},
    {"", "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)"}};
inline const StackForTest kOptimizer = {{"", "at::_ops::zeros_like::call(at::Tensor const&)"},
                                        {"torch/optim/adamw.py", "_init_group", 80},
                                        {"torch/optim/adamw.py", "step", 100},
                                        {"user/train.py", "train", 8}};
inline const StackForTest kOptimizerTemporary = {{"", "at::_ops::sqrt::call(at::Tensor const&)"},
                                                 {"torch/optim/adamw.py", "_single_tensor_adamw", 300},
                                                 {"torch/optim/adamw.py", "step", 101},
                                                 {"user/train.py", "train", 8}};

class RecordingForTest {
 public:
  /// Of 10 MiB and more, in whole 2 MiB, a block fills its segment.
  std::size_t before(Bytes bytes, const StackForTest& stack = {}) { return add(bytes, stack); }

  std::size_t alloc(Bytes bytes, const StackForTest& stack = {}) {
    const std::size_t id = add(bytes, stack);
    push("segment_alloc", blocks_[id].address, blocks_[id].size, stack);
    push("alloc", blocks_[id].address, bytes, stack);
    return id;
  }
  void free(std::size_t id) {
    Block& block = blocks_[id];
    push("free_requested", block.address, block.requested, {});
    push("free_completed", block.address, block.requested, {});
    block.live = false;
  }
  void annotate(const std::string& name, bool start) {
    annotations_.push_back(
        {{"name", name}, {"stage", start ? "START" : "END"}, {"device", 0}, {"time_us", time_ += kTick}});
  }
  void oom(Bytes asked, Bytes free, const StackForTest& stack = {}) {
    nlohmann::json event = event_of("oom", asked, stack);
    event["device_free"] = free.count();
    trace_.push_back(std::move(event));
  }
  std::size_t events() const { return trace_.size(); }

  std::string json() const {
    nlohmann::json segments = nlohmann::json::array();
    for (const Block& block : blocks_) segments.push_back(segment_of(block));
    return nlohmann::json{{"segments", segments},
                          {"device_traces", nlohmann::json::array({trace_})},
                          {"allocator_settings", {{"PYTORCH_CUDA_ALLOC_CONF", ""}}},
                          {"external_annotations", annotations_}}
        .dump();
  }
  snapshot::Snapshot snapshot() const { return snapshot::Snapshot::parse(json(), "test.json"); }

 private:
  struct Block {
    std::uint64_t address = 0;
    Bytes requested, size;
    bool live = true;
    StackForTest stack;
  };
  static constexpr std::int64_t kTick = 10;

  std::size_t add(Bytes bytes, const StackForTest& stack) {
    constexpr std::int64_t kPage = 2 << 20;
    const Bytes size((bytes.count() + kPage - 1) / kPage * kPage);
    blocks_.push_back({next_, bytes, size, true, stack});
    next_ += static_cast<std::uint64_t>(size.count() + kPage);
    return blocks_.size() - 1;
  }
  static nlohmann::json frames_of(const StackForTest& stack) {
    nlohmann::json frames = nlohmann::json::array();
    for (const auto& [file, function, line] : stack) {
      frames.push_back({{"filename", file}, {"name", function}, {"line", line}});
    }
    return frames;
  }
  nlohmann::json event_of(const std::string& action, Bytes size, const StackForTest& stack) {
    return {{"action", action},
            {"size", size.count()},
            {"stream", 0},
            {"time_us", time_ += kTick},
            {"frames", frames_of(stack)}};
  }
  void push(const std::string& action, std::uint64_t address, Bytes size, const StackForTest& stack) {
    nlohmann::json event = event_of(action, size, stack);
    event["addr"] = address;
    trace_.push_back(std::move(event));
  }
  static nlohmann::json segment_of(const Block& block) {
    const std::int64_t size = block.size.count(), live = block.live ? size : 0;
    const std::int64_t requested = block.live ? block.requested.count() : 0;
    nlohmann::json inner = {{"address", block.address},
                            {"size", size},
                            {"requested_size", requested},
                            {"state", block.live ? "active_allocated" : "inactive"},
                            {"frames", block.live ? frames_of(block.stack) : nlohmann::json::array()}};
    return {{"device", 0},
            {"address", block.address},
            {"total_size", size},
            {"allocated_size", live},
            {"active_size", live},
            {"requested_size", requested},
            {"stream", 0},
            {"segment_type", "large"},
            {"segment_pool_id", {0, 0}},
            {"is_expandable", false},
            {"frames", nlohmann::json::array()},
            {"blocks", nlohmann::json::array({inner})}};
  }

  std::vector<Block> blocks_;
  nlohmann::json trace_ = nlohmann::json::array(), annotations_ = nlohmann::json::array();
  std::uint64_t next_ = 0x7f0000000000;
  std::int64_t time_ = 1'700'000'000'000'000;
};
}  // namespace cinch::inspect::internal
