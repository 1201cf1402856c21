// Rows: matrix products, linear algebra, FFT, types, autocast, random numbers, ops of optimizers.
#include <ATen/autocast_mode.h>
#include <torch/nn/utils/clip_grad.h>

#include "tests/modules.h"

namespace cinch::tests {
namespace {

void add_products(Rows& rows) {
  const auto product = [](const at::Tensor& a, const at::Tensor& b) { return at::matmul(a, b); };
  rows.push_back(of_two("matmul", product, kMatrix, random({80, 70})));
  rows.push_back(of_two("matmul_transposed", product, kMatrix, transposed({80, 70})));
  rows.push_back(of_two(
      "matmul_gaps", [](const at::Tensor& a, const at::Tensor& b) { return at::matmul(a.slice(1, 0, 80, 2), b); },
      kMatrix, random({40, 70})));
  rows.push_back(of_two("matmul_vector", product, kMatrix, random({80})));
  rows.push_back(of_two("matmul_vector_left", product, random({60}), kMatrix));
  rows.push_back(of_two("matmul_vectors", product, random({3000}), random({3000})));
  rows.push_back(of_two("matmul_batched", product, random({5, 30, 40}), random({5, 40, 35})));
  rows.push_back(of_two("matmul_batched_transposed", product, random({5, 30, 40}), transposed({5, 40, 35})));
  rows.push_back(of_two("matmul_broadcast", product, random({5, 3, 30, 40}), random({3, 40, 35})));
  rows.push_back(of_two("matmul_broadcast_folded", product, random({5, 3, 30, 40}), random({40, 35})));
  rows.push_back(of_two("matmul_broadcast_left", product, random({30, 40}), random({5, 40, 35})));
  rows.push_back(of_two("matmul_bfloat16", product, random({60, 80}, at::kBFloat16), random({80, 90}, at::kBFloat16)));
  rows.push_back(of_two("matmul_half", product, random({60, 80}, at::kHalf), random({80, 90}, at::kHalf)));
  rows.push_back(of_two("matmul_double", product, random({60, 80}, at::kDouble), random({80, 90}, at::kDouble)));
  rows.push_back(
      of_two("matmul_complex", product, random({60, 80}, at::kComplexFloat), random({80, 90}, at::kComplexFloat)));
  rows.push_back(of_two(
      "bmm", [](const at::Tensor& a, const at::Tensor& b) { return at::bmm(a, b); }, random({5, 30, 40}),
      random({5, 40, 35})));
  rows.push_back(of_two(
      "bmm_permuted",
      [](const at::Tensor& a, const at::Tensor& b) {
        return at::bmm(a.transpose(0, 1), b.permute({2, 0, 1}));
      },
      random({30, 5, 40}), random({40, 35, 5})));
  rows.push_back(of_two(
      "bmm_bfloat16", [](const at::Tensor& a, const at::Tensor& b) { return at::bmm(a, b); },
      random({5, 30, 40}, at::kBFloat16), random({5, 40, 35}, at::kBFloat16)));
  rows.push_back(function_row("baddbmm", [](const Inputs& in) { return at::baddbmm(in[0], in[1], in[2], 0.5, 2); },
                              {random({5, 30, 35}), random({5, 30, 40}), random({5, 40, 35})}));
  rows.push_back(function_row("baddbmm_in_place", [](const Inputs& in) { return (in[0] * 2).baddbmm_(in[1], in[2]); },
                              {random({5, 30, 35}), random({5, 30, 40}), random({5, 40, 35})}));
  rows.push_back(function_row("addmm", [](const Inputs& in) { return at::addmm(in[0], in[1], in[2], 0.5, 2); },
                              {random({60, 70}), kMatrix, random({80, 70})}));
  rows.push_back(function_row("addmm_in_place", [](const Inputs& in) { return (in[0] * 2).addmm_(in[1], in[2]); },
                              {random({60, 70}), kMatrix, random({80, 70})}));
  rows.push_back(function_row("addmv", [](const Inputs& in) { return at::addmv(in[0], in[1], in[2]); },
                              {random({60}), kMatrix, random({80})}));
  rows.push_back(function_row("addmv_in_place", [](const Inputs& in) { return (in[0] * 2).addmv_(in[1], in[2]); },
                              {random({60}), kMatrix, random({80})}));
  rows.push_back(function_row("addbmm", [](const Inputs& in) { return at::addbmm(in[0], in[1], in[2]); },
                              {random({60, 50}), random({5, 60, 40}), random({5, 40, 50})}));
  rows.push_back(function_row("addr", [](const Inputs& in) { return at::addr(in[0], in[1], in[2]); },
                              {kMatrix, random({60}), random({80})}));
  rows.push_back(of_two(
      "outer", [](const at::Tensor& a, const at::Tensor& b) { return at::outer(a, b); }, random({60}), random({80})));
  rows.push_back(of_two(
      "tensordot",
      [](const at::Tensor& a, const at::Tensor& b) {
        return at::tensordot(a, b, {1, 2}, {0, 1});
      },
      random({30, 8, 10}), random({8, 10, 90})));
  rows.push_back(of_two(
      "einsum_attention",
      [](const at::Tensor& a, const at::Tensor& b) {
        return at::einsum("bihd,bjhd->bhij", {a, b});
      },
      random({2, 30, 4, 16}), random({2, 40, 4, 16})));
  rows.push_back(of_two("einsum_sum", [](const at::Tensor& a, const at::Tensor& b) {
    return at::einsum("ij,kj->ik", {a, b});
  }));
  rows.push_back(of_two(
      "einsum_diagonal",
      [](const at::Tensor& a, const at::Tensor& b) {
        return at::einsum("bii,bj->bij", {a, b});
      },
      random({5, 40, 40}), random({5, 60})));
  rows.push_back(of("chain_matmul", [](const at::Tensor& x) { return at::linalg_multi_dot({x, x.t(), x}); }));
  rows.push_back(of(
      "kron", [](const at::Tensor& x) { return at::kron(x, x); }, random({8, 9})));
  rows.push_back(of_two(
      "cross", [](const at::Tensor& a, const at::Tensor& b) { return at::linalg_cross(a, b); }, random({1000, 3}),
      random({1000, 3})));
  rows.push_back(of(
      "matrix_power", [](const at::Tensor& x) { return at::linalg_matrix_power(x, 5); }, random({50, 50})));
  rows.push_back(of(
      "matrix_exp", [](const at::Tensor& x) { return at::linalg_matrix_exp(x); }, random({50, 50})));
}

void add_linear_algebra(Rows& rows) {
  const auto regular = [] { return at::rand({50, 50}) + at::eye(50) * 100; };
  const auto batch = [] { return at::rand({4, 30, 30}) + at::eye(30) * 100; };
  const auto symmetric = [](const at::Tensor& x) { return x + x.mT(); };
  for (const auto& [name, input] :
       {std::pair<const char*, MakeInput>{"", regular}, std::pair<const char*, MakeInput>{"_batched", batch}}) {
    const std::string tail = name;
    rows.push_back(of(
        "solve" + tail, [](const at::Tensor& x) { return at::linalg_solve(x, x.detach() * 2); }, input));
    rows.push_back(of(
        "solve_triangular" + tail, [](const at::Tensor& x) { return at::linalg_solve_triangular(x, x * 2, true); },
        input));
    rows.push_back(of(
        "inv" + tail, [](const at::Tensor& x) { return at::linalg_inv(x); }, input));
    rows.push_back(of(
        "det" + tail, [](const at::Tensor& x) { return at::linalg_det(x * 0.01); }, input));
    rows.push_back(of(
        "slogdet" + tail, [](const at::Tensor& x) { return std::get<1>(at::linalg_slogdet(x)); }, input));
    rows.push_back(of(
        "cholesky" + tail, [=](const at::Tensor& x) { return at::linalg_cholesky(symmetric(x)); }, input));
    rows.push_back(of(
        "cholesky_solve" + tail,
        [=](const at::Tensor& x) { return at::cholesky_solve(x, at::linalg_cholesky(symmetric(x))); }, input));
    rows.push_back(of(
        "qr" + tail, [](const at::Tensor& x) { return at::linalg_qr(x); }, input));
    rows.push_back(of(
        "lu_factor" + tail, [](const at::Tensor& x) { return at::linalg_lu_factor(x); }, input));
    rows.push_back(of(
        "svdvals" + tail, [](const at::Tensor& x) { return at::linalg_svdvals(x); }, input));
    rows.push_back(of(
        "svd" + tail, [](const at::Tensor& x) { return std::get<1>(at::linalg_svd(x, false)); }, input));
    rows.push_back(of(
        "eigh" + tail, [=](const at::Tensor& x) { return at::linalg_eigh(symmetric(x)); }, input));
    rows.push_back(of(
        "eigvalsh" + tail, [=](const at::Tensor& x) { return at::linalg_eigvalsh(symmetric(x)); }, input));
    rows.push_back(of(
        "pinv" + tail, [](const at::Tensor& x) { return at::linalg_pinv(x); }, input));
    rows.push_back(of(
        "matrix_norm" + tail, [](const at::Tensor& x) { return at::linalg_matrix_norm(x); }, input));
    rows.push_back(of(
        "matrix_norm_nuclear" + tail, [](const at::Tensor& x) { return at::linalg_matrix_norm(x, "nuc"); }, input));
    rows.push_back(of(
        "trace" + tail, [](const at::Tensor& x) { return x.diagonal(0, -2, -1).sum(-1); }, input));
  }
  rows.push_back(of(
      "lstsq", [](const at::Tensor& x) { return at::linalg_lstsq(x, x.detach() * 2); }, regular));
}

void add_fft(Rows& rows) {
  const auto wave = random({40, 128});
  rows.push_back(of(
      "fft", [](const at::Tensor& x) { return at::fft_fft(x); }, random({40, 128}, at::kComplexFloat)));
  rows.push_back(of(
      "fft_of_real", [](const at::Tensor& x) { return at::fft_fft(x); }, wave));
  rows.push_back(of(
      "ifft", [](const at::Tensor& x) { return at::fft_ifft(x, 100); }, random({40, 128}, at::kComplexFloat)));
  rows.push_back(of(
      "rfft", [](const at::Tensor& x) { return at::fft_rfft(x); }, wave));
  rows.push_back(of(
      "irfft", [](const at::Tensor& x) { return at::fft_irfft(x); }, random({40, 65}, at::kComplexFloat)));
  rows.push_back(of(
      "rfft_irfft", [](const at::Tensor& x) { return at::fft_irfft(at::fft_rfft(x) * 2); }, wave));
  rows.push_back(of(
      "fft2", [](const at::Tensor& x) { return at::fft_fft2(x); }, random({4, 30, 32}, at::kComplexFloat)));
  rows.push_back(of(
      "rfft2", [](const at::Tensor& x) { return at::fft_rfft2(x); }, random({4, 30, 32})));
  rows.push_back(of(
      "irfft2", [](const at::Tensor& x) { return at::fft_irfft2(x); }, random({4, 30, 17}, at::kComplexFloat)));
  rows.push_back(of(
      "rfftn", [](const at::Tensor& x) { return at::fft_rfftn(x); }, random({12, 14, 16})));
  rows.push_back(of(
      "hfft", [](const at::Tensor& x) { return at::fft_hfft(x); }, random({40, 65}, at::kComplexFloat)));
  rows.push_back(of(
      "fftshift", [](const at::Tensor& x) { return at::fft_fftshift(x); }, wave));
  rows.push_back(of(
      "stft",
      [](const at::Tensor& x) {
        return at::stft(x, 64, 16, 64, at::hann_window(64), false, "reflect", false, true, true);
      },
      random({4, 1000})));
  rows.push_back(of(
      "complex_parts", [](const at::Tensor& x) { return at::real(x) * at::imag(x) + at::abs(x) + at::angle(x); },
      random({60, 80}, at::kComplexFloat)));
  rows.push_back(of_two("complex_made",
                        [](const at::Tensor& a, const at::Tensor& b) { return at::complex(a, b) * at::polar(a, b); }));
  rows.push_back(of("view_as_complex", [](const at::Tensor& x) {
    return at::view_as_complex(x.view({60, 40, 2})).conj() * 2;
  }));
  rows.push_back(of(
      "conj_resolved", [](const at::Tensor& x) { return x.conj().resolve_conj().mul(x.conj()); },
      random({60, 80}, at::kComplexFloat)));
}

/// Under autocast to `dtype`, its cache included.
template <class Function>
auto autocast(at::ScalarType dtype, Function function) {
  return [=](const Inputs& in) {
    const bool enabled = at::autocast::is_autocast_enabled(at::kCPU);
    const auto before = at::autocast::get_autocast_dtype(at::kCPU);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::increment_nesting();
    const auto result = function(in);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(at::kCPU, before);
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    return result;
  };
}

void add_types(Rows& rows) {
  for (const auto& [name, dtype] : {std::pair{"bfloat16", at::kBFloat16}, std::pair{"half", at::kHalf},
                                    std::pair{"double", at::kDouble}, std::pair{"complex", at::kComplexFloat}}) {
    const std::string head = std::string(name) + "_";
    const auto x = random({80, 90}, dtype);
    rows.push_back(of(
        head + "arithmetic", [](const at::Tensor& x) { return (x + x) * x - x / 2 + x.exp(); }, x));
    rows.push_back(of(
        head + "sums", [](const at::Tensor& x) { return x.sum() + x.mean() + x.sum(1).mean(); }, x));
    rows.push_back(of(
        head + "cat",
        [](const at::Tensor& x) {
          return at::cat({x, x}, 0).t().contiguous();
        },
        x));
    if (dtype == at::kComplexFloat) continue;
    rows.push_back(of(
        head + "softmax", [](const at::Tensor& x) { return at::softmax(x, 1) + at::log_softmax(x, 0); }, x));
    rows.push_back(of(
        head + "activations",
        [](const at::Tensor& x) { return at::gelu(x) + at::silu(x) + at::relu(x) + at::tanh(x) + at::sigmoid(x); }, x));
    rows.push_back(of(
        head + "layer_norm",
        [=, dtype = dtype](const at::Tensor& x) {
          return at::layer_norm(x, {90}, at::ones({90}, dtype), at::zeros({90}, dtype));
        },
        x));
    rows.push_back(of(
        head + "cast", [](const at::Tensor& x) { return x.to(at::kFloat) + x.to(at::kDouble) + x.to(at::kBFloat16); },
        x));
    rows.push_back(of(
        head + "pooling", [](const at::Tensor& x) { return at::max_pool2d(x, 2) + at::avg_pool2d(x, 2); },
        random({4, 8, 24, 24}, dtype)));
  }
  for (const auto& [name, dtype] :
       {std::pair{"autocast_bfloat16", at::kBFloat16}, std::pair{"autocast_half", at::kHalf}}) {
    const std::string tail = "_" + std::string(name);
    rows.push_back(function_row("linear" + tail,
                                autocast(dtype, [](const Inputs& in) { return at::linear(in[0], in[1], in[2]); }),
                                {kMatrix, random({90, 80}), random({90})}));
    rows.push_back(function_row(
        "twice" + tail,
        autocast(dtype, [](const Inputs& in) { return at::linear(at::gelu(at::linear(in[0], in[1])), in[1]); }),
        {random({60, 80}), random({80, 80})}));
    rows.push_back(function_row("conv2d" + tail,
                                autocast(dtype, [](const Inputs& in) { return at::conv2d(in[0], in[1], in[2]); }),
                                {random({4, 8, 24, 24}), random({16, 8, 3, 3}), random({16})}));
    rows.push_back(function_row("norms" + tail,
                                autocast(dtype,
                                         [](const Inputs& in) {
                                           return at::softmax(
                                               at::layer_norm(at::matmul(in[0], in[1]), {70}, in[2], in[3]), 1);
                                         }),
                                {kMatrix, random({80, 70}), random({70}), random({70})}));
    rows.push_back(function_row(
        "loss" + tail,
        autocast(dtype, [](const Inputs& in) { return at::cross_entropy_loss(at::matmul(in[0], in[1]), in[2]); }),
        {kMatrix, random({80, 70}), indices({60}, 70)}));
    rows.push_back(function_row("attention" + tail,
                                autocast(dtype,
                                         [](const Inputs& in) {
                                           return at::scaled_dot_product_attention(in[0], in[0], in[0], std::nullopt, 0,
                                                                                   true);
                                         }),
                                {random({2, 4, 50, 16})}));
  }
}

void add_random(Rows& rows) {
  const auto made = [&](const char* name, auto make) {
    rows.push_back(of(name, [make](const at::Tensor& x) { return x * make(x); }));
  };
  made("rand", [](const at::Tensor&) { return at::rand({60, 80}); });
  made("randn", [](const at::Tensor&) { return at::randn({60, 80}); });
  made("rand_like",
       [](const at::Tensor& x) { return at::rand_like(x) + at::randn_like(x) + at::randint_like(x.detach(), 9); });
  made("randint", [](const at::Tensor&) { return at::randint(3, 9, {60, 80}); });
  made("randperm", [](const at::Tensor&) { return at::randperm(4800).view({60, 80}); });
  made("bernoulli", [](const at::Tensor& x) { return at::bernoulli(x.detach()); });
  made("bernoulli_of_number",
       [](const at::Tensor& x) { return at::empty_like(x).bernoulli_(0.3) + at::bernoulli(x.detach(), 0.3); });
  made("normal", [](const at::Tensor& x) {
    return at::normal(x.detach(), 1.0) + at::normal(0.0, x.detach().abs()) + at::normal(x.detach(), x.detach().abs()) +
           at::normal(0, 1, {60, 80});
  });
  made("poisson", [](const at::Tensor& x) { return at::poisson(x.detach()); });
  made("distributions_in_place", [](const at::Tensor&) {
    return at::empty({60, 80})
        .uniform_()
        .exponential_()
        .normal_()
        .log_normal_()
        .cauchy_()
        .geometric_(0.5)
        .random_(3, 9)
        .random_(5)
        .random_();
  });
  made("gamma", [](const at::Tensor& x) { return at::_standard_gamma(x + 1); });
  made("dirichlet", [](const at::Tensor& x) { return at::_sample_dirichlet((x + 1).detach()); });
  rows.push_back(of("multinomial", [](const at::Tensor& x) { return at::multinomial(x.detach(), 40); }));
  rows.push_back(
      of("multinomial_replacing", [](const at::Tensor& x) { return at::multinomial(x.detach(), 50, true); }));
  rows.push_back(of(
      "multinomial_one", [](const at::Tensor& x) { return at::multinomial(x.detach(), 1); }, random({2000, 30})));
  made("factories", [](const at::Tensor& x) {
    return at::zeros({60, 80}) + at::ones({60, 80}) + at::full({60, 80}, 2) + at::arange(80) + at::linspace(0, 1, 80) +
           at::logspace(0, 1, 80) + at::eye(60, 80) + at::zeros_like(x) + at::ones_like(x) + at::full_like(x, 3) +
           at::empty_like(x) + x.new_zeros({60, 80}) + x.new_ones({60, 80}) + x.new_full({60, 80}, 2) +
           x.new_empty({60, 80}) + at::scalar_tensor(3) + at::empty_strided({60, 80}, {1, 60}) +
           x.new_empty_strided({60, 80}, {1, 60}) + at::arange(0, 8000, 100, at::kLong);
  });
  rows.push_back(of(
      "large_factories",
      [](const at::Tensor& x) {
        return x * at::arange(5000) + at::linspace(0, 1, 5000) + at::eye(5000, 1).t() +
               at::tril_indices(100, 99).flatten().narrow(0, 0, 5000) + at::hann_window(5000);
      },
      random({1, 5000})));
}

void add_optimizer_ops(Rows& rows) {
  const std::vector<MakeInput> three{random({60, 80}), random({90, 70}), random({40})};
  rows.push_back(function_row(
      "foreach",
      [](const Inputs& in) {
        const at::NoGradGuard no_grad;
        std::vector<at::Tensor> x, y;
        for (const auto& tensor : in) x.push_back(tensor.detach().clone()), y.push_back(tensor.detach() + 1);
        at::_foreach_add_(x, 1.0);
        at::_foreach_add_(x, y, 0.5);
        at::_foreach_mul_(x, 2.0);
        at::_foreach_mul_(x, y);
        at::_foreach_div_(x, y);
        at::_foreach_sub_(x, y);
        at::_foreach_addcmul_(x, y, y, 0.1);
        at::_foreach_addcdiv_(x, y, y, 0.1);
        at::_foreach_lerp_(x, y, 0.3);
        at::_foreach_copy_(y, x);
        const auto roots = at::_foreach_sqrt(at::_foreach_abs(x));
        const auto scaled = at::_foreach_div(at::_foreach_mul(at::_foreach_add(roots, 1e-8), y), y);
        const auto norms = at::_foreach_norm(scaled);
        at::_foreach_clamp_min_(x, 0.0);
        at::_foreach_neg_(x);
        at::_foreach_zero_(x);
        return at::stack(norms);
      },
      three));
  rows.push_back(function_row(
      "amp_scaler",
      [](const Inputs& in) {
        const at::NoGradGuard no_grad;
        std::vector<at::Tensor> gradients;
        for (const auto& tensor : in) gradients.push_back(tensor.detach().clone());
        auto found = at::zeros({}), scale = at::full({}, 1024.0), growth = at::zeros({}, at::kInt);
        const auto inverse = at::reciprocal(scale);
        at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse);
        at::_amp_update_scale_(scale, growth, found, 2.0, 0.5, 100);
        return gradients[0];
      },
      three));
  const auto with_gradients = [](const Inputs& in) {
    auto all = in;
    for (auto& tensor : all) tensor.mutable_grad() = at::rand_like(tensor.detach());
    return all;
  };
  rows.push_back(function_row(
      "clip_grad_norm",
      [=](const Inputs& in) {
        const auto all = with_gradients(in);
        torch::nn::utils::clip_grad_norm_(all, 1.0);
        return in[0] * 2;
      },
      three));
  rows.push_back(function_row(
      "clip_grad_norm_inf",
      [=](const Inputs& in) {
        const auto all = with_gradients(in);
        torch::nn::utils::clip_grad_norm_(all, 1.0, INFINITY);
        return in[0] * 2;
      },
      three));
  rows.push_back(function_row(
      "clip_grad_value",
      [=](const Inputs& in) {
        const auto all = with_gradients(in);
        torch::nn::utils::clip_grad_value_(all, 0.5);
        return in[0] * 2;
      },
      three));
  rows.push_back(function_row(
      "fused_steps",
      [](const Inputs& in) {
        const at::NoGradGuard no_grad;
        std::vector<at::Tensor> x, g, m, v, steps;
        for (const auto& tensor : in) {
          x.push_back(tensor.detach().clone());
          g.push_back(tensor.detach() * 2);
          m.push_back(at::zeros_like(x.back()));
          v.push_back(at::zeros_like(x.back()));
          steps.push_back(at::ones({}));
        }
        at::_fused_adam_(x, g, m, v, {}, steps, 0.1, 0.9, 0.99, 0.0, 1e-8, false, false);
        at::_fused_adamw_(x, g, m, v, {}, steps, 0.1, 0.9, 0.99, 0.0, 1e-8, false, false);
        at::_fused_sgd_(x, g, m, 0.0, 0.9, 0.1, 0.0, false, false, false);
        at::_fused_adagrad_(x, g, v, steps, 0.1, 0.0, 0.0, 1e-8, false);
        return x[0];
      },
      three));
}
}  // namespace

void add_numeric_rows(Rows& rows) {
  add_products(rows);
  add_linear_algebra(rows);
  add_fft(rows);
  add_types(rows);
  add_random(rows);
  add_optimizer_ops(rows);
}
}  // namespace cinch::tests
