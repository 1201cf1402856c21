#pragma once
// The table of modules and functions whose memory is predicted: a row is a name and what trains. modules_test.cc runs
// each row dry and real.

#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

namespace cinch::tests {

/// What a row trains: leaves, and a function of them and of a batch made anew in each step.
struct Learner {
  std::vector<at::Tensor> parameters;
  std::function<at::Tensor()>
      forward;  ///< Any floating or complex result; one without a gradient is not backpropagated.
};

struct Row {
  std::string name;  ///< Letters, digits, "_".
  std::function<Learner()> make;
};
using Rows = std::vector<Row>;
using MakeInput = std::function<at::Tensor()>;
using Inputs = std::vector<at::Tensor>;

// One a file, modules_*.cc.
void add_layer_rows(Rows& rows);       ///< Linear, convolutions, norms, pooling, padding, resizing, embeddings.
void add_activation_rows(Rows& rows);  ///< Activations, dropout.
void add_loss_rows(Rows& rows);
void add_sequence_rows(Rows& rows);  ///< Recurrent layers, attention, transformers.
void add_function_rows(Rows& rows);  ///< Pointwise functions, reductions, indexing.
void add_shape_rows(Rows& rows);     ///< Sorting, joining, views, copies.
void add_numeric_rows(Rows& rows);   ///< Matrix products, linear algebra, FFT, types, random, optimizers' ops.

inline MakeInput random(std::vector<std::int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  return [=] { return at::rand(sizes, dtype); };
}
inline MakeInput indices(std::vector<std::int64_t> sizes, std::int64_t below) {
  return [=] { return at::randint(below, sizes, at::kLong); };
}
inline MakeInput channels_last(std::vector<std::int64_t> sizes) {
  return [=] {
    return at::rand(sizes).contiguous(sizes.size() == 4 ? at::MemoryFormat::ChannelsLast
                                                        : at::MemoryFormat::ChannelsLast3d);
  };
}
/// The last two dimensions swapped in memory.
inline MakeInput transposed(std::vector<std::int64_t> sizes) {
  std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return [=] { return at::rand(sizes).transpose(-2, -1); };
}

inline at::Tensor first_of(const at::Tensor& tensor) { return tensor; }
template <class... Rest>
at::Tensor first_of(const std::tuple<at::Tensor, Rest...>& results) {
  return std::get<0>(results);
}

/// A module and its batch; the gradient of the batch is taken too. Without parameters the batch itself is learned.
template <class MakeNet>
Row module_row(std::string name, MakeNet make_net, MakeInput input) {
  return {std::move(name), [=] {
            auto net = make_net();
            auto parameters = net->parameters();
            if (parameters.empty()) {
              const auto leaf = input().detach().requires_grad_();
              return Learner{{leaf}, [net, leaf]() mutable { return first_of(net->forward(leaf)); }};
            }
            return Learner{std::move(parameters), [net, input]() mutable {
                             auto x = input().detach();
                             if (at::isFloatingType(x.scalar_type())) x.requires_grad_();
                             return first_of(net->forward(x));
                           }};
          }};
}

/// A function of inputs, all of which are learned, if they can be.
template <class Function>
Row function_row(std::string name, Function function, std::vector<MakeInput> inputs) {
  return {std::move(name), [=] {
            Inputs all, leaves;
            for (const auto& input : inputs) {
              all.push_back(input().detach());
              if (all.back().is_floating_point() || all.back().is_complex())
                leaves.push_back(all.back().requires_grad_());
            }
            return Learner{leaves, [function, all] { return first_of(function(all)); }};
          }};
}

inline const MakeInput kMatrix = random({60, 80});

template <class Function>
Row of(std::string name, Function function, MakeInput input = kMatrix) {
  return function_row(std::move(name), [function](const Inputs& in) { return first_of(function(in[0])); },
                      {std::move(input)});
}
template <class Function>
Row of_two(std::string name, Function function, MakeInput left = kMatrix, MakeInput right = kMatrix) {
  return function_row(std::move(name), [function](const Inputs& in) { return first_of(function(in[0], in[1])); },
                      {std::move(left), std::move(right)});
}
}  // namespace cinch::tests
