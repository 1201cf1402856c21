// Little endian:
//
//   steps: u32 count, each i64: N > 0 allocates N bytes, -N frees the allocation of that number
//   outputs: u32 count, each u8 kind, then: tensor: place, layout; tensors: u32 count, each u8 whether it is defined,
//     place, layout; int, double, bool: 8 bytes
//   relaid: u32 count, each u32 argument, u32 allocation, layout; by ascending argument
//
//   place: u8 kind, u32 index      layout: u8 dtype, u8 wrapped number, i64 offset, u8 dims, i64 sizes, i64 strides
//   index of an allocation of 0 bytes: 0xffffffff
#include "cinch/dryrun/internal/probe_bytes.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <unordered_map>

#include "cinch/core/error.h"
#include "cinch/dryrun/internal/call_values.h"
#include "cinch/dryrun/internal/fake.h"

namespace cinch::dryrun::internal {
namespace {
static_assert(std::endian::native == std::endian::little);
using Place = KernelScript::Place;
enum class Kind : std::uint8_t { kNone, kUndefined, kTensor, kTensors, kInt, kDouble, kBool };
constexpr std::uint32_t kNoAllocation = 0xffffffff;
constexpr std::size_t kMostDims = 64;  // As LibTorch has it.

/// The bytes from the first of its storage to its last, 0 if it has no element; nothing if that is no size.
std::optional<std::int64_t> reach(at::IntArrayRef sizes, at::IntArrayRef strides, std::int64_t offset,
                                  at::ScalarType type) {
  std::int64_t elements = 1, last = offset, bytes = 0;
  bool wrong = offset < 0, empty = false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    wrong = wrong || sizes[d] < 0 || strides[d] < 0;
    empty = empty || sizes[d] == 0;
    const std::int64_t size = std::max<std::int64_t>(sizes[d], 1);  // LibTorch multiplies them all, empty or not.
    std::int64_t way = 0;
    wrong = wrong || __builtin_mul_overflow(elements, size, &elements) ||
            __builtin_mul_overflow(size, strides[d], &way) || __builtin_add_overflow(last, way - strides[d], &last);
  }
  const auto item = static_cast<std::int64_t>(c10::elementSize(type));
  wrong = wrong || __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, item, &bytes) ||
          __builtin_mul_overflow(elements, item, &elements);
  if (wrong) return std::nullopt;
  return empty ? 0 : bytes;
}
std::int64_t reach(const at::Tensor& layout) {
  return *reach(layout.sizes(), layout.strides(), layout.storage_offset(), layout.scalar_type());
}

class Writer {
 public:
  template <class Number>
  void number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void count(std::size_t value) { number(static_cast<std::uint32_t>(value)); }
  void kind(Kind kind) { number(kind); }
  void layout(const at::Tensor& tensor) {
    number(tensor.scalar_type());
    number(static_cast<std::uint8_t>(tensor.unsafeGetTensorImpl()->is_wrapped_number()));
    number(tensor.storage_offset());
    number(static_cast<std::uint8_t>(tensor.dim()));
    for (const auto size : tensor.sizes()) number(size);
    for (const auto stride : tensor.strides()) number(stride);
  }
  void tensor(const Place& place, const at::Tensor& tensor) {
    number(place.kind);
    count(place.index);  // kNothing becomes kNoAllocation.
    layout(tensor);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Whether it was written: of a kind that is read back.
bool write(Writer& writer, const c10::IValue& value, std::vector<Place>::const_iterator& place) {
  if (value.isNone()) {
    writer.kind(Kind::kNone);
  } else if (value.isTensor() && !value.toTensor().defined()) {
    writer.kind(Kind::kUndefined);
  } else if (value.isTensor()) {
    writer.kind(Kind::kTensor);
    writer.tensor(*place++, value.toTensor());
  } else if (value.isTensorList()) {
    const auto tensors = value.toTensorVector();
    writer.kind(Kind::kTensors);
    writer.count(tensors.size());
    for (const auto& tensor : tensors) {
      writer.number(static_cast<std::uint8_t>(tensor.defined()));
      if (tensor.defined()) writer.tensor(*place++, tensor);
    }
  } else if (value.isInt()) {
    writer.kind(Kind::kInt);
    writer.number(value.toInt());
  } else if (value.isDouble()) {
    writer.kind(Kind::kDouble);
    writer.number(value.toDouble());
  } else if (value.isBool()) {
    writer.kind(Kind::kBool);
    writer.number(static_cast<std::int64_t>(value.toBool()));
  } else {
    return false;
  }
  return true;
}

at::Tensor make_layout(at::IntArrayRef sizes, at::IntArrayRef strides, std::int64_t offset, at::ScalarType type,
                       bool wrapped) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      make_meta_storage(0), c10::DispatchKeySet(c10::DispatchKey::Meta), c10::scalarTypeToTypeMeta(type));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, offset);
  if (wrapped) impl->set_wrapped_number(true);
  return tensor;
}

/// Thrown and caught in this file.
struct Damaged {};
void require(bool condition) {
  if (!condition) throw Damaged();
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  KernelScript script() {
    steps();
    for (auto n = count(1); n > 0; --n) script_.outputs.push_back(value());
    for (auto n = count(16); n > 0; --n) relaid();
    require(left_.empty());
    return std::move(script_);
  }

 private:
  struct Allocation {
    std::int64_t bytes;
    bool live = true;
  };

  template <class Number>
  Number number() {
    Number value;
    require(left_.size() >= sizeof value);
    std::memcpy(&value, left_.data(), sizeof value);
    left_.remove_prefix(sizeof value);
    return value;
  }
  template <class Number>
  bool flag() {
    const auto value = number<Number>();
    require(value == 0 || value == 1);
    return value == 1;
  }
  /// Of things that take `least` bytes each: they are there.
  std::size_t count(std::size_t least) {
    const auto value = number<std::uint32_t>();
    require(value <= left_.size() / least);
    return value;
  }

  void steps() {
    std::int64_t total = 0;
    for (auto n = count(8); n > 0; --n) {
      const auto step = number<std::int64_t>();
      if (step > 0) {
        require(!__builtin_add_overflow(total, step, &total));
        script_.steps.push_back({true, allocations_.size(), Bytes(step)});
        allocations_.push_back({step});
      } else {
        const auto freed = 0 - static_cast<std::uint64_t>(step);  // Of the least number too.
        require(freed < allocations_.size() && allocations_[freed].live);
        allocations_[freed].live = false;
        script_.steps.push_back({false, freed, Bytes(allocations_[freed].bytes)});
      }
    }
  }

  c10::IValue value() {
    switch (number<Kind>()) {
      case Kind::kNone:
        return {};
      case Kind::kUndefined:
        return at::Tensor();
      case Kind::kTensor:
        return tensor();
      case Kind::kTensors: {
        c10::List<at::Tensor> tensors;
        for (auto n = count(1); n > 0; --n) tensors.push_back(flag<std::uint8_t>() ? tensor() : at::Tensor());
        return tensors;
      }
      case Kind::kInt:
        return number<std::int64_t>();
      case Kind::kDouble:
        return number<double>();
      case Kind::kBool:
        return flag<std::int64_t>();
    }
    throw Damaged();
  }

  at::Tensor tensor() {
    const auto kind = number<Place::Kind>();
    require(kind <= Place::Kind::kAllocation);
    const auto index = number<std::uint32_t>();
    auto tensor = layout();
    if (kind != Place::Kind::kAllocation) {
      script_.places.push_back({kind, index});
    } else if (index == kNoAllocation) {
      require(reach(tensor) == 0);
      script_.places.push_back({kind, KernelScript::kNothing});
    } else {
      require(index < allocations_.size() && allocations_[index].live && reach(tensor) <= allocations_[index].bytes);
      script_.places.push_back({kind, index});
      taken_.insert(index);
    }
    return tensor;
  }

  void relaid() {
    KernelScript::Relaid relaid{number<std::uint32_t>(), {}, number<std::uint32_t>()};
    relaid.layout = layout();
    require(script_.relaid.empty() || script_.relaid.back().argument < relaid.argument);
    if (relaid.allocation == kNoAllocation) {
      relaid.allocation = KernelScript::kNothing;
    } else {  // It becomes one argument's, and nothing else's.
      require(relaid.allocation < allocations_.size() && allocations_[relaid.allocation].live &&
              taken_.insert(relaid.allocation).second);
    }
    script_.relaid.push_back(std::move(relaid));
  }

  at::Tensor layout() {
    const auto type = number<at::ScalarType>();
    dtype_of(type);  // Throws for those that cinch has no name for.
    const bool wrapped = flag<std::uint8_t>();
    const auto offset = number<std::int64_t>();
    const std::size_t dims = number<std::uint8_t>();
    require(dims <= kMostDims && (!wrapped || dims == 0));
    std::vector<std::int64_t> sizes(dims), strides(dims);
    for (auto& size : sizes) size = number<std::int64_t>();
    for (auto& stride : strides) stride = number<std::int64_t>();
    require(reach(sizes, strides, offset, type).has_value());
    return make_layout(sizes, strides, offset, type, wrapped);
  }

  std::string_view left_;
  KernelScript script_;
  std::vector<Allocation> allocations_;
  std::set<std::size_t> taken_;  ///< Allocations in which outputs or arguments lie.
};

bool is_of_type(const c10::IValue& value, const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return value.isTensor();
    case c10::TypeKind::ListType:
      return value.isTensorList() && type.containedType(0)->kind() == c10::TypeKind::TensorType;
    case c10::TypeKind::OptionalType:
      return value.isNone() || is_of_type(value, *type.containedType(0));
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return value.isInt();
    case c10::TypeKind::FloatType:
      return value.isDouble();
    case c10::TypeKind::BoolType:
      return value.isBool();
    default:
      return false;
  }
}

/// The tensors of a call as scripts number them, and the bytes of their storages when it returns.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, const torch::jit::Stack& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto* alias = op.schema().arguments()[i].alias_info();
      for_each_tensor(values[i], [&](const at::Tensor& tensor) {
        tensors_.push_back({tensor, alias != nullptr && alias->isWrite()});
        bytes_[storage_of(tensor)] = static_cast<std::int64_t>(tensor.storage().nbytes());
      });
    }
  }
  /// Whether the call may do that to its arguments.
  bool relay(const KernelScript& script) {
    std::vector<std::int64_t> allocated;
    for (const auto& step : script.steps)
      if (step.allocates) allocated.push_back(step.bytes.count());
    for (const auto& relaid : script.relaid) {
      if (relaid.argument >= tensors_.size() || !tensors_[relaid.argument].is_written) return false;
      if (relaid.allocation != KernelScript::kNothing)
        bytes_[storage_of(tensors_[relaid.argument].tensor)] = allocated[relaid.allocation];
    }
    return std::all_of(script.relaid.begin(), script.relaid.end(), [&](const KernelScript::Relaid& relaid) {
      return relaid.layout.scalar_type() == tensors_[relaid.argument].tensor.scalar_type() &&
             holds(relaid.argument, relaid.layout);
    });
  }
  std::size_t size() const { return tensors_.size(); }
  /// Whether a tensor of this layout lies inside the storage of this one.
  bool holds(std::size_t index, const at::Tensor& layout) const {
    return reach(layout) <= bytes_.at(storage_of(tensors_[index].tensor));
  }

 private:
  static const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }
  struct Tensor {
    at::Tensor tensor;
    bool is_written;
  };
  std::vector<Tensor> tensors_;
  std::unordered_map<const c10::StorageImpl*, std::int64_t> bytes_;
};
}  // namespace

std::optional<std::string> to_bytes(const KernelScript& script) {
  Writer writer;
  writer.count(script.steps.size());
  for (const auto& step : script.steps)
    writer.number(step.allocates ? step.bytes.count() : -static_cast<std::int64_t>(step.index));
  writer.count(script.outputs.size());
  auto place = script.places.begin();
  for (const auto& value : script.outputs)
    if (!write(writer, value, place)) return std::nullopt;
  writer.count(script.relaid.size());
  for (const auto& relaid : script.relaid) {
    writer.count(relaid.argument);
    writer.count(relaid.allocation);
    writer.layout(relaid.layout);
  }
  auto bytes = writer.take();
  if (!from_bytes(bytes)) return std::nullopt;
  return bytes;
}

std::optional<KernelScript> from_bytes(std::string_view bytes) {
  try {
    return Reader(bytes).script();
  } catch (const Damaged&) {
    return std::nullopt;
  } catch (const UnsupportedError&) {  // A type of tensor.
    return std::nullopt;
  }
}

bool answers(const KernelScript& script, const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  const auto& returns = op.schema().returns();
  Arguments seen(op, arguments);
  if (script.outputs.size() != returns.size() || !seen.relay(script)) return false;
  bool fits = true;
  auto place = script.places.begin();
  for (std::size_t i = 0; i < returns.size(); ++i) {
    fits = fits && is_of_type(script.outputs[i], *returns[i].type());
    for_each_tensor(script.outputs[i], [&](const at::Tensor& layout) {
      const auto [kind, index] = *place++;
      if (kind == Place::Kind::kAllocation) return;
      fits = fits && index < seen.size() && (kind == Place::Kind::kArgument || seen.holds(index, layout));
    });
  }
  return fits;
}
}  // namespace cinch::dryrun::internal
