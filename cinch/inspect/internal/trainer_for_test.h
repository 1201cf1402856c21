#pragma once
// A training program in miniature, for tests of leaks: it makes the events that an allocator would record.
//
//   Trainer trainer({.steps = 40, .list = true});
//   find_leaks(trainer.play(), {.boundaries = trainer.optimizer_steps()});

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cinch/trace/event.h"
#include "cinch/trace/sink.h"

namespace cinch::inspect::internal {

struct TrainerOptions {
  std::size_t steps = 40, layers = 4, micro_batches = 1;
  std::uint32_t seed = 1;
  bool varying_lengths = false;  ///< Batches of random size.
  bool one_stack = false;        ///< The same stack for all layers, as a loop over layers has in Python.
  bool stacks = true;            ///< Were recorded.
  bool step_numbers = false;     ///< Event::step is set.
  std::size_t evaluate_every = 0, evaluation_batches = 6;
  bool short_last_batch = false;
  bool warm_up = true;  ///< Autotuning and workspaces in the first two steps; optimizer state always.

  // Healthy habits that look like leaks to who does not look twice.
  bool ping_pong = false;           ///< Two buffers, written in turn and made anew.
  std::size_t queue = 0;            ///< The last so many batches are kept.
  std::size_t growing_until = 0;    ///< A cache that gets larger up to this step.
  std::size_t collected_every = 0;  ///< Reference cycles, found by a garbage collector every so many steps.

  // Leaks.
  bool graph = false;            ///< The loss is kept with its graph: total += loss.
  bool list = false;             ///< Tensors appended to a list.
  bool cache = false;            ///< A cache that is replaced by a larger one.
  bool hook = false;             ///< A forward hook keeps its layer's output.
  bool evaluation_list = false;  ///< Results of each evaluation batch kept.
  std::size_t leak_from = 0;     ///< The leaks begin after this step.
};

class Trainer {
 public:
  static constexpr std::int64_t kActivation = 3 << 20, kListed = 40 << 10, kCacheStep = 256 << 10, kResult = 5120,
                                kLoss = 512;

  explicit Trainer(const TrainerOptions& options) : options_(options), random_(options.seed) {
    for (std::size_t i = 0; i < options_.layers; ++i) parameters_.push_back(alloc("init", 4 << 20, i));
    for (std::size_t step = 1; step <= options_.steps; ++step) train(step);
    finish_evaluation();
  }

  std::function<void(trace::Sink&)> play() const {
    return [this](trace::Sink& sink) {
      trace::NameTable names;
      sink.on_begin({}, names);
      for (const trace::Event& event : events_) sink.on_event(event);
    };
  }
  /// Positions of the first event of each.
  const std::vector<std::size_t>& optimizer_steps() const { return optimizer_steps_; }
  /// What a leaking step adds.
  Bytes graph_bytes() const { return Bytes(static_cast<std::int64_t>(options_.layers) * 2 * kActivation + kLoss); }

 private:
  using Id = trace::AllocationId;

  trace::StackId stack_of(const std::string& where, std::size_t layer) {
    if (!options_.stacks) return {};
    const auto key = std::pair(where, options_.one_stack ? 0 : layer);
    return stacks_.emplace(key, trace::StackId{static_cast<std::uint32_t>(stacks_.size() + 1)}).first->second;
  }
  Id alloc(const std::string& where, std::int64_t bytes, std::size_t layer = 0) {
    const Id id{next_++};
    events_.push_back({.action = trace::Action::kAlloc,
                       .step = number_,
                       .allocation = id,
                       .stack = stack_of(where, layer),
                       .bytes = Bytes(bytes)});
    sizes_[id] = bytes;
    return id;
  }
  void free(Id id) {
    events_.push_back(
        {.action = trace::Action::kFreeCompleted, .step = number_, .allocation = id, .bytes = Bytes(sizes_.at(id))});
    sizes_.erase(id);
  }
  void free(std::optional<Id>& id) {
    if (id) free(*id);
    id.reset();
  }
  void temporary(const std::string& where, std::int64_t bytes, std::size_t layer = 0) {
    free(alloc(where, bytes, layer));
  }

  std::int64_t batch(std::size_t step) {
    if (options_.short_last_batch && step == options_.steps) return kActivation / 3;
    if (!options_.varying_lengths) return kActivation;
    return (std::uniform_int_distribution<std::int64_t>(8, 64)(random_) * kActivation / 64 + 511) / 512 * 512;
  }

  void train(std::size_t step) {
    number_ = options_.step_numbers ? static_cast<std::uint32_t>(step) : 0;
    for (std::size_t i = 0; i < options_.micro_batches; ++i) micro_batch(step, batch(step));
    optimizer(step);
    habits(step);
    if (options_.evaluate_every > 0 && step % options_.evaluate_every == 0) evaluate(step);
  }

  void micro_batch(std::size_t step, std::int64_t bytes) {
    const bool leaking = step > options_.leak_from;
    free(input_);
    input_ = alloc("data", bytes / 2);
    if (options_.warm_up && step <= 2) {
      for (int algorithm = 0; algorithm < 3; ++algorithm) temporary("autotune", 8 << 20);
      workspaces_.push_back(alloc("workspace", 32 << 20));  // One of the main thread, one of autograd's.
    }
    std::vector<Id> saved;
    for (std::size_t i = 0; i < options_.layers; ++i) {
      saved.push_back(alloc("linear", bytes, i));
      temporary("scratch", bytes / 4, i);
      saved.push_back(alloc("activation", bytes, i));
      if (options_.hook && leaking && i == 1) alloc("hook", bytes);
    }
    const Id logits = alloc("head", bytes * 2);
    free(loss_);
    loss_ = alloc("loss", kLoss);
    if (options_.list && leaking) alloc("append", kListed);
    backward(bytes, saved, leaking);
    free(logits);
    if (options_.graph && leaking) loss_.reset();  // Whoever holds it now is not this program.
  }

  void backward(std::int64_t bytes, const std::vector<Id>& saved, bool leaking) {
    std::optional<Id> flowing = alloc("loss backward", bytes * 2);
    for (std::size_t i = options_.layers; i-- > 0;) {
      const Id next = alloc("backward", bytes, i);
      free(flowing);
      flowing = next;
      if (gradients_.size() < options_.layers) {
        gradients_.push_back(alloc("gradient", 4 << 20, i));
      } else {
        temporary("gradient", 4 << 20, i);
      }
      for (const std::size_t which : {2 * i + 1, 2 * i}) {
        if (!(options_.graph && leaking)) free(saved[which]);
      }
    }
    free(flowing);
  }

  void optimizer(std::size_t step) {
    optimizer_steps_.push_back(events_.size());
    for (std::size_t i = 0; i < options_.layers; ++i) {
      if (step == 1) states_.push_back(alloc("state", 8 << 20, i));
      temporary("update", 4 << 20, i);
    }
    for (const Id gradient : gradients_) free(gradient);
    gradients_.clear();
  }

  void habits(std::size_t step) {
    if (options_.ping_pong) {
      free(buffers_[step % 2]);
      buffers_[step % 2] = alloc("ping pong", 1 << 20);
    }
    if (options_.queue > 0) {
      kept_.push_back(alloc("queue", 700 << 10));
      if (kept_.size() > options_.queue) {
        free(kept_.front());
        kept_.pop_front();
      }
    }
    if (options_.collected_every > 0) {
      cycles_.push_back(alloc("cycle", 900 << 10));
      if (step % options_.collected_every == 0) {
        for (const Id cycle : cycles_) free(cycle);
        cycles_.clear();
      }
    }
    if (step <= options_.growing_until || (options_.cache && step > options_.leak_from)) {
      const Id larger = alloc("cache", (cached_ += kCacheStep));
      free(cache_);
      cache_ = larger;
    }
  }

  void evaluate(std::size_t step) {
    finish_evaluation();
    for (std::size_t i = 0; i < options_.evaluation_batches; ++i) {
      std::optional<Id> flowing = alloc("evaluation data", kActivation);
      for (std::size_t layer = 0; layer < options_.layers; ++layer) {
        const Id next = alloc("evaluation linear", kActivation, layer);
        free(flowing);
        flowing = next;
      }
      free(flowing);
      outputs_.push_back(alloc("evaluation output", 300 << 10));
      if (options_.evaluation_list && step > options_.leak_from) alloc("evaluation result", kResult);
    }
  }
  /// The outputs of an evaluation live until the next one.
  void finish_evaluation() {
    for (const Id output : outputs_) free(output);
    outputs_.clear();
  }

  TrainerOptions options_;
  std::mt19937 random_;
  std::vector<trace::Event> events_;
  std::vector<std::size_t> optimizer_steps_;
  std::map<std::pair<std::string, std::size_t>, trace::StackId> stacks_;
  std::map<Id, std::int64_t> sizes_;
  std::uint32_t next_ = 0, number_ = 0;
  std::vector<Id> parameters_, gradients_, states_, workspaces_, outputs_, cycles_;
  std::deque<Id> kept_;
  std::optional<Id> input_, loss_, cache_, buffers_[2];
  std::int64_t cached_ = 0;
};
}  // namespace cinch::inspect::internal
