#include "cinch/techniques/leak_check.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <torch/csrc/autograd/variable.h>

#include "cinch/core/error.h"
#include "cinch/techniques/internal/describe.h"
#include "cinch/techniques/internal/saved_by_node.h"
#include "cinch/techniques/internal/tensor_watch.h"

namespace cinch::techniques {
namespace {
using internal::MadeStorage;
using internal::NodePointer;
using internal::TensorWatch;
using torch::autograd::Node;

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

NodePointer graph_of(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta == nullptr ? NodePointer() : meta->grad_fn_;
}

bool has_hooks(const at::Tensor& tensor) {
  if (const auto node = graph_of(tensor)) return !node->tensor_pre_hooks().empty() || !node->pre_hooks().empty();
  return torch::autograd::impl::get_autograd_meta(tensor) != nullptr && !torch::autograd::impl::hooks(tensor).empty();
}
}  // namespace

struct LeakCheck::State {
  TensorWatch watch;
  std::unordered_map<const at::TensorImpl*, std::pair<WeakTensor, std::string>> names;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> expected;

  std::string called(const at::Tensor& tensor) const {
    const auto* impl = tensor.unsafeGetTensorImpl();
    const auto found = names.find(impl);
    if (found != names.end()) return found->second.second;
    const auto shape = internal::describe(tensor.scalar_type(), tensor.sizes());
    if (const auto* made = watch.find(storage_of(tensor))) return "the " + shape + " of " + made->op;
    const auto op = watch.last_op(impl);
    return "a " + shape + " from before the check" + (op.empty() ? "" : ", last returned by " + op);
  }
};

namespace {

/// All that is alive, who saved what, and who has whom as a gradient: a picture of one moment. Keeps all of it alive.
class Picture {
 public:
  explicit Picture(const LeakCheck::State& state) : state_(state), tensors_(state.watch.tensors()) {
    const auto seen = tensors_.size();
    for (std::size_t i = 0; i < seen; ++i) add_gradient(i);
    // Later tensors first: a node belongs to the last result that leads to it.
    std::vector<std::pair<std::uint64_t, std::size_t>> roots;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (const auto node = graph_of(tensors_[i])) roots.emplace_back(node->sequence_nr(), i);
    }
    std::sort(roots.rbegin(), roots.rend());
    for (const auto& [number, root] : roots) walk(graph_of(tensors_[root]), root);
    for (const auto& tensor : tensors_) by_storage_[storage_of(tensor)].push_back(tensor);
    count_ours();
  }

  std::vector<Holder> holders(const c10::StorageImpl* storage) const {
    std::vector<Holder> result;
    std::set<std::string> said;
    const auto say = [&](Holder::Kind kind, const std::string& text) {
      if (said.insert(text).second) result.push_back({kind, text});
    };
    std::unordered_map<const at::TensorImpl*, std::size_t> explained;  // handles
    if (const auto found = saved_.find(storage); found != saved_.end()) {
      for (const auto& save : found->second) {
        ++explained[save.tensor];
        const bool cycle = is_cycle(save, storage);
        say(cycle ? Holder::Kind::kCycle : Holder::Kind::kGraph, describe(save, cycle));
      }
    }
    for (const auto& [gradient, leaf] : gradients_) {
      if (storage_of(gradient) != storage) continue;
      ++explained[gradient.unsafeGetTensorImpl()];
      say(Holder::Kind::kGradient, "the gradient of " + state_.called(leaf));
    }
    if (const auto found = by_storage_.find(storage); found != by_storage_.end()) {
      for (const auto& tensor : found->second) say_handles(tensor, explained[tensor.unsafeGetTensorImpl()], say);
    }
    if (result.empty()) {
      say(Holder::Kind::kUnknown, unread_ == 0
                                      ? "held by memory handles that belong to no tensor seen here"
                                      : "perhaps saved by one of " + std::to_string(unread_) +
                                            " nodes of live graphs that cannot be read (tensors changed in place "
                                            "since, or kept by a policy)");
    }
    return result;
  }

 private:
  struct Save {
    NodePointer node;
    const at::TensorImpl* tensor;  ///< The handle that is kept; of an op's output, another one than the program's.
    std::size_t root;
  };

  /// Gradients may have been made by no op: stolen from a graph, or set by hand.
  void add_gradient(std::size_t i) {
    const auto tensor = tensors_[i];
    if (!tensor.is_leaf() || !tensor.grad().defined()) return;
    const auto& gradient = tensor.grad();
    gradients_.emplace_back(gradient, tensor);
    const auto same = [&](const at::Tensor& other) { return other.is_same(gradient); };
    if (std::none_of(tensors_.begin(), tensors_.end(), same)) tensors_.push_back(gradient);
  }

  void count_ours() {
    const auto count = [&](const at::Tensor& tensor) { ++ours_[tensor.unsafeGetTensorImpl()]; };
    for (const auto& tensor : tensors_) count(tensor), count(tensor);  // and in by_storage_
    for (const auto& tensor : kept_) count(tensor);
    for (const auto& [gradient, leaf] : gradients_) count(gradient), count(leaf);
  }

  void walk(const NodePointer& from, std::size_t root) {
    std::vector<NodePointer> open{from};
    while (!open.empty()) {
      const auto node = std::move(open.back());
      open.pop_back();
      if (!visited_.insert(node.get()).second) continue;
      auto saved = internal::saved_by(node);
      if (!saved.whole) ++unread_;
      for (auto& tensor : saved.tensors) {
        if (!tensor.defined()) continue;
        saved_[storage_of(tensor)].push_back({node, tensor.unsafeGetTensorImpl(), root});
        kept_.push_back(std::move(tensor));
      }
      for (const auto& edge : node->next_edges())
        if (edge.function) open.push_back(edge.function);
    }
  }

  /// Whether what holds the graph is the tensor itself, or its gradient.
  bool is_cycle(const Save& save, const c10::StorageImpl* storage) const {
    const auto& root = tensors_[save.root];
    if (root.unsafeGetTensorImpl() == save.tensor) return true;
    return std::any_of(gradients_.begin(), gradients_.end(), [&](const auto& pair) {
      return pair.first.is_same(root) && storage_of(pair.second) == storage;
    });
  }

  std::string describe(const Save& save, bool cycle) const {
    const auto& root = tensors_[save.root];
    const auto gradient =
        std::find_if(gradients_.begin(), gradients_.end(), [&](const auto& pair) { return pair.first.is_same(root); });
    const auto root_name =
        gradient != gradients_.end() ? "the gradient of " + state_.called(gradient->second) : state_.called(root);
    std::string text = "saved by " + save.node->name() + " for the backward pass of " + root_name;
    if (cycle) text += ", which it holds itself: a cycle (take gradients by autograd::grad, or reset them)";
    return text;
  }

  template <class Say>
  void say_handles(const at::Tensor& tensor, std::size_t explained, const Say& say) const {
    const auto* impl = tensor.unsafeGetTensorImpl();
    const auto ours = ours_.at(impl);
    const auto all = static_cast<std::size_t>(tensor.use_count());
    if (all <= ours + explained) return;
    const auto handles = all - ours - explained;
    std::string text = state_.called(tensor) + " is held by " + std::to_string(handles) +
                       (handles == 1 ? " handle" : " handles") + " of the program";
    if (has_hooks(tensor)) text += "; it has a hook, and one that captures the tensor itself keeps it for good";
    say(Holder::Kind::kProgram, text);
  }

  const LeakCheck::State& state_;
  std::vector<at::Tensor> tensors_, kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients_;  ///< And the leaf.
  std::unordered_map<const c10::StorageImpl*, std::vector<Save>> saved_;
  std::unordered_map<const c10::StorageImpl*, std::vector<at::Tensor>> by_storage_;
  std::unordered_set<const Node*> visited_;
  std::unordered_map<const at::TensorImpl*, std::size_t> ours_;  ///< Handles of this picture's.
  std::size_t unread_ = 0;
};

Leak leak_of(const MadeStorage& made, Bytes bytes) {
  return {.bytes = bytes,
          .sizes = made.sizes,
          .dtype = made.dtype,
          .op = made.op,
          .module = made.module,
          .node = made.node,
          .phase = made.phase,
          .step = made.step,
          .holders = {}};
}
}  // namespace

std::string Leak::text() const {
  std::ostringstream out;
  out << to_string(bytes) << ' ' << internal::describe(dtype, sizes) << ", made by " << op;
  if (!module.empty()) out << " in " << module;
  if (!node.empty()) out << " within " << node;
  if (step > 0) out << " (step " << step << ", " << trace::name_of(phase) << ')';
  for (std::size_t i = 0; i < holders.size(); ++i) out << (i == 0 ? ": " : "; ") << holders[i].text;
  return out.str();
}

LeakCheck::LeakCheck() : state_(std::make_unique<State>()) {}
LeakCheck::~LeakCheck() = default;

void LeakCheck::name(const at::Tensor& tensor, const std::string& name) {
  state_->names.insert_or_assign(tensor.unsafeGetTensorImpl(), std::pair(WeakTensor(tensor.getIntrusivePtr()), name));
}

void LeakCheck::expect(const at::Tensor& tensor) {
  state_->expected.emplace_back(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(tensor.storage().unsafeGetStorageImpl()));
}

std::vector<Leak> LeakCheck::leaks() const {
  std::vector<Leak> result;
  const Picture picture(*state_);
  for (const auto& made : state_->watch.alive()) {
    const auto storage = made.storage.lock();
    const bool expected = std::any_of(state_->expected.begin(), state_->expected.end(),
                                      [&](const auto& weak) { return weak.lock() == storage; });
    if (expected) continue;
    result.push_back(leak_of(made, Bytes(static_cast<std::int64_t>(storage->nbytes()))));
    result.back().holders = picture.holders(storage.get());
  }
  return result;
}

void LeakCheck::check() const {
  auto all = leaks();
  if (all.empty()) return;
  std::stable_sort(all.begin(), all.end(), [](const Leak& a, const Leak& b) { return a.bytes > b.bytes; });
  Bytes total;
  for (const auto& leak : all) total += leak.bytes;
  std::ostringstream text;
  text << all.size() << (all.size() == 1 ? " tensor" : " tensors") << " (" << to_string(total) << ") should be gone:";
  constexpr std::size_t kNamed = 5;
  for (std::size_t i = 0; i < std::min(all.size(), kNamed); ++i) text << "\n  " << all[i].text();
  if (all.size() > kNamed) text << "\n  and " << all.size() - kNamed << " more";
  throw Error(text.str(), "Keep numbers (item()) or detach() in place of results; drop graphs that are not needed.");
}

std::vector<Holder> LeakCheck::holders(const at::Tensor& tensor) const {
  return Picture(*state_).holders(storage_of(tensor));
}
}  // namespace cinch::techniques
