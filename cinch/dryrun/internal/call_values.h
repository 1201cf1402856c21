#pragma once
// The values of one boxed call, their tensors replaced one by one.

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <utility>

namespace cinch::dryrun::internal {

/// Tensors may come alone, in lists, in lists of optional ones. Calls `fn(tensor)` for each defined tensor.
template <class Fn>
void for_each_tensor(const c10::IValue& value, const Fn& fn) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) fn(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector())
      if (tensor.defined()) fn(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, fn);
  }
}

/// The same value with `fn(tensor)` in place of every defined tensor.
template <class Fn>
c10::IValue map_tensors(const c10::IValue& value, const Fn& fn) {
  if (value.isTensor()) return value.toTensor().defined() ? c10::IValue(fn(value.toTensor())) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(tensor.defined() ? fn(tensor) : tensor);
    return list;
  }
  if (value.isList()) {
    const auto from = value.toList();
    c10::impl::GenericList list(from.elementType());
    for (const c10::IValue& element : value.toListRef()) list.push_back(map_tensors(element, fn));
    return list;
  }
  return value;
}
}  // namespace cinch::dryrun::internal
