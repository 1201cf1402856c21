// Rows: pointwise functions, reductions, indexing.
#include "tests/modules.h"

namespace cinch::tests {
namespace {

void add_unary(Rows& rows) {
  using Function = at::Tensor (*)(const at::Tensor&);
  const std::vector<std::pair<const char*, Function>> functions{{"abs", at::abs},
                                                                {"neg", at::neg},
                                                                {"exp", at::exp},
                                                                {"exp2", at::exp2},
                                                                {"expm1", at::expm1},
                                                                {"log", at::log},
                                                                {"log2", at::log2},
                                                                {"log10", at::log10},
                                                                {"log1p", at::log1p},
                                                                {"sqrt", at::sqrt},
                                                                {"rsqrt", at::rsqrt},
                                                                {"square", at::square},
                                                                {"reciprocal", at::reciprocal},
                                                                {"sin", at::sin},
                                                                {"cos", at::cos},
                                                                {"tan", at::tan},
                                                                {"asin", at::asin},
                                                                {"acos", at::acos},
                                                                {"atan", at::atan},
                                                                {"sinh", at::sinh},
                                                                {"cosh", at::cosh},
                                                                {"tanh", at::tanh},
                                                                {"asinh", at::asinh},
                                                                {"atanh", at::atanh},
                                                                {"erf", at::erf},
                                                                {"erfc", at::erfc},
                                                                {"erfinv", at::erfinv},
                                                                {"lgamma", at::lgamma},
                                                                {"digamma", at::digamma},
                                                                {"sigmoid", at::sigmoid},
                                                                {"sign", at::sign},
                                                                {"floor", at::floor},
                                                                {"ceil", at::ceil},
                                                                {"trunc", at::trunc},
                                                                {"frac", at::frac},
                                                                {"sinc", at::sinc},
                                                                {"i0", at::i0},
                                                                {"relu", at::relu},
                                                                {"isnan", at::isnan},
                                                                {"isfinite", at::isfinite},
                                                                {"isinf", at::isinf},
                                                                {"logical_not", at::logical_not},
                                                                {"deg2rad", at::deg2rad},
                                                                {"signbit", at::signbit}};
  for (const auto& [name, function] : functions)
    rows.push_back(of(name, [f = function](const at::Tensor& x) { return f(x); }));
  rows.push_back(of("round", [](const at::Tensor& x) { return at::round(x); }));
  rows.push_back(of("logit", [](const at::Tensor& x) { return at::logit(x, 1e-3); }));
  rows.push_back(of("nan_to_num", [](const at::Tensor& x) { return at::nan_to_num(x); }));
  rows.push_back(of("pow_scalar", [](const at::Tensor& x) { return x.pow(3.0); }));
  rows.push_back(of("pow_of_scalar", [](const at::Tensor& x) { return at::pow(2.0, x); }));
  rows.push_back(of("clamp", [](const at::Tensor& x) { return x.clamp(0.2, 0.8); }));
  rows.push_back(of("clamp_min", [](const at::Tensor& x) { return x.clamp_min(0.2); }));
  rows.push_back(of("clamp_max", [](const at::Tensor& x) { return x.clamp_max(0.2); }));
  rows.push_back(of("tril", [](const at::Tensor& x) { return x.tril(); }));
  rows.push_back(of("triu", [](const at::Tensor& x) { return x.triu(1); }));
  rows.push_back(of(
      "exp_transposed", [](const at::Tensor& x) { return at::exp(x); }, transposed({60, 80})));
  rows.push_back(of("exp_gaps", [](const at::Tensor& x) { return at::exp(x.slice(1, 0, 80, 2)); }));
  rows.push_back(of("exp_expanded", [](const at::Tensor& x) { return at::exp(x.unsqueeze(0).expand({3, 60, 80})); }));
  rows.push_back(of(
      "sqrt_of_long", [](const at::Tensor& x) { return at::sqrt(x); }, indices({60, 80}, 9)));
  rows.push_back(of("in_place_chain", [](const at::Tensor& input) {
    const at::NoGradGuard no_grad;
    const auto x = input.detach();
    auto y = x * 2;
    y.exp_()
        .add_(1)
        .log_()
        .mul_(3)
        .sqrt_()
        .neg_()
        .abs_()
        .clamp_(0, 2)
        .clamp_min_(0.1)
        .clamp_max_(1.9)
        .reciprocal_()
        .pow_(2)
        .sub_(1)
        .div_(2);
    return y.fill_diagonal_(0).zero_().add_(x);
  }));
  rows.push_back(of("out_arguments", [](const at::Tensor& input) {
    const at::NoGradGuard no_grad;
    const auto x = input.detach();
    auto y = at::empty({60, 80});
    at::exp_out(y, x);
    at::add_out(y, x, x);
    at::mul_out(y, x, x);
    at::sub_out(y, x, x);
    at::div_out(y, x, x);
    at::sigmoid_out(y, x);
    auto z = at::empty({60, 60});
    at::mm_out(z, x, x.t());
    auto s = at::empty({80});
    at::sum_out(s, x, {0});
    at::mean_out(s, x, {0});
    auto c = at::empty({120, 80});
    at::cat_out(c, {x, x}, 0);
    return c;
  }));
}

void add_binary(Rows& rows) {
  using Function = at::Tensor (*)(const at::Tensor&, const at::Tensor&);
  const std::vector<std::pair<const char*, Function>> functions{{"mul", at::mul},
                                                                {"minimum", at::minimum},
                                                                {"maximum", at::maximum},
                                                                {"fmin", at::fmin},
                                                                {"fmax", at::fmax},
                                                                {"atan2", at::atan2},
                                                                {"hypot", at::hypot},
                                                                {"fmod", at::fmod},
                                                                {"remainder", at::remainder},
                                                                {"logaddexp", at::logaddexp},
                                                                {"copysign", at::copysign},
                                                                {"xlogy", at::xlogy},
                                                                {"eq", at::eq},
                                                                {"ne", at::ne},
                                                                {"lt", at::lt},
                                                                {"le", at::le},
                                                                {"gt", at::gt},
                                                                {"ge", at::ge},
                                                                {"logical_and", at::logical_and},
                                                                {"logical_or", at::logical_or},
                                                                {"logical_xor", at::logical_xor}};
  for (const auto& [name, function] : functions)
    rows.push_back(of_two(name, [f = function](const at::Tensor& a, const at::Tensor& b) { return f(a, b); }));
  const auto pow = [](const at::Tensor& a, const at::Tensor& b) { return at::pow(a, b); };
  rows.push_back(of_two("pow", pow));
  rows.push_back(of_two("add", [](const at::Tensor& a, const at::Tensor& b) { return at::add(a, b, 2); }));
  rows.push_back(of_two("sub", [](const at::Tensor& a, const at::Tensor& b) { return a - b; }));
  rows.push_back(of_two("div", [](const at::Tensor& a, const at::Tensor& b) { return a / b; }));
  rows.push_back(of_two("div_floor", [](const at::Tensor& a, const at::Tensor& b) { return at::div(a, b, "floor"); }));
  rows.push_back(of_two("lerp", [](const at::Tensor& a, const at::Tensor& b) { return at::lerp(a, b, 0.3); }));
  rows.push_back(of_two("lerp_tensor", [](const at::Tensor& a, const at::Tensor& b) { return at::lerp(a, b, a); }));
  rows.push_back(of_two("addcmul", [](const at::Tensor& a, const at::Tensor& b) { return at::addcmul(a, a, b, 0.3); }));
  rows.push_back(
      of_two("addcdiv", [](const at::Tensor& a, const at::Tensor& b) { return at::addcdiv(a, a, b + 1, 0.3); }));
  rows.push_back(of_two("where", [](const at::Tensor& a, const at::Tensor& b) { return at::where(a > b, a, b); }));
  rows.push_back(
      of_two("where_scalar", [](const at::Tensor& a, const at::Tensor& b) { return at::where(a > b, a, 1.0); }));
  rows.push_back(of_two(
      "where_types", [](const at::Tensor& a, const at::Tensor& b) { return at::where(a > b, a, b); }, kMatrix,
      random({60, 80}, at::kDouble)));
  rows.push_back(of_two(
      "bitwise",
      [](const at::Tensor& a, const at::Tensor& b) {
        return (a & b) | (a ^ b) | ~b | at::bitwise_left_shift(a, 1) | at::bitwise_right_shift(a, 2);
      },
      indices({60, 80}, 9), indices({60, 80}, 9)));
  rows.push_back(of_two("bitwise_bool",
                        [](const at::Tensor& a, const at::Tensor& b) { return ((a > 0.5) & (b > 0.5)) | ~(a > b); }));
  // Broadcasting and types.
  const auto sum_of = [](const at::Tensor& a, const at::Tensor& b) { return a * b + a - b; };
  rows.push_back(of_two("broadcast_row", sum_of, kMatrix, random({80})));
  rows.push_back(of_two("broadcast_column", sum_of, random({60, 1}), random({1, 80})));
  rows.push_back(of_two("broadcast_outer", sum_of, random({40, 1, 30}), random({20, 1})));
  rows.push_back(of_two("transposed_left", sum_of, transposed({60, 80}), kMatrix));
  rows.push_back(of_two("transposed_both", sum_of, transposed({60, 80}), transposed({60, 80})));
  rows.push_back(of_two("channels_last_right", sum_of, random({4, 8, 14, 14}), channels_last({4, 8, 14, 14})));
  rows.push_back(of_two("channels_last_bias", sum_of, channels_last({4, 8, 14, 14}), random({8, 1, 1})));
  rows.push_back(of_two("float_and_double", sum_of, kMatrix, random({60, 80}, at::kDouble)));
  rows.push_back(of_two("float_and_bfloat16", sum_of, kMatrix, random({60, 80}, at::kBFloat16)));
  rows.push_back(of_two("float_and_long", sum_of, kMatrix, indices({60, 80}, 9)));
  rows.push_back(of_two(
      "long_and_long", [](const at::Tensor& a, const at::Tensor& b) { return a / b; }, indices({60, 80}, 9),
      indices({60, 80}, 9)));
  rows.push_back(of_two("bool_times_float", [](const at::Tensor& a, const at::Tensor& b) { return (a > 0.5) * b; }));
  rows.push_back(of_two(
      "in_place_types",
      [](const at::Tensor& a, const at::Tensor& b) {
        auto y = a * 2;
        y.add_(b).mul_(b).sub_(b).div_(b + 1);
        return y.addcmul_(a, a, 0.1).addcdiv_(a, a + 1, 0.1).lerp_(a, 0.2);
      },
      kMatrix, random({60, 80}, at::kBFloat16)));
  rows.push_back(of("scalars", [](const at::Tensor& x) { return 1 - at::rsub((x + 1) * 2 / 3 - 4, 5); }));
  rows.push_back(of(
      "scalars_of_long", [](const at::Tensor& x) { return (x + 1) * 2.5 - x / 2; }, indices({60, 80}, 9)));
  rows.push_back(of("comparisons", [](const at::Tensor& x) {
    return (x == 1).to(at::kFloat) + (x != 1) + (x < 1) + (x <= 1) + (x > 1) + (x >= 1);
  }));
}

void add_reductions(Rows& rows) {
  using Function = std::function<at::Tensor(const at::Tensor&)>;
  const std::vector<std::pair<const char*, Function>> functions{
      {"sum", [](const at::Tensor& x) { return x.sum(); }},
      {"sum_rows", [](const at::Tensor& x) { return x.sum(0); }},
      {"sum_columns_kept", [](const at::Tensor& x) { return x.sum({-1}, true); }},
      {"sum_double", [](const at::Tensor& x) { return x.sum(at::kDouble); }},
      {"nansum", [](const at::Tensor& x) { return x.nansum(); }},
      {"mean", [](const at::Tensor& x) { return x.mean(); }},
      {"mean_columns", [](const at::Tensor& x) { return x.mean(-1); }},
      {"var", [](const at::Tensor& x) { return x.var(); }},
      {"var_columns", [](const at::Tensor& x) { return x.var(1, false); }},
      {"std", [](const at::Tensor& x) { return x.std(); }},
      {"std_rows", [](const at::Tensor& x) { return x.std(0, true, true); }},
      {"var_mean", [](const at::Tensor& x) { return first_of(at::var_mean(x, 1)); }},
      {"std_mean", [](const at::Tensor& x) { return first_of(at::std_mean(x, 1)); }},
      {"prod", [](const at::Tensor& x) { return x.prod(); }},
      {"prod_columns", [](const at::Tensor& x) { return x.prod(1); }},
      {"amax", [](const at::Tensor& x) { return x.amax(1); }},
      {"amin",
       [](const at::Tensor& x) {
         return x.amin(std::vector<std::int64_t>{0, 1});
       }},
      {"aminmax", [](const at::Tensor& x) { return first_of(at::aminmax(x.detach(), 1)); }},
      {"max", [](const at::Tensor& x) { return x.max(); }},
      {"max_columns", [](const at::Tensor& x) { return first_of(x.max(1)); }},
      {"min", [](const at::Tensor& x) { return x.min(); }},
      {"min_rows", [](const at::Tensor& x) { return first_of(x.min(0)); }},
      {"median", [](const at::Tensor& x) { return x.median(); }},
      {"median_columns", [](const at::Tensor& x) { return first_of(x.median(1)); }},
      {"mode", [](const at::Tensor& x) { return first_of(x.mode(1)); }},
      {"kthvalue", [](const at::Tensor& x) { return first_of(x.kthvalue(3, 1)); }},
      {"quantile", [](const at::Tensor& x) { return x.quantile(0.3, 1); }},
      {"logsumexp", [](const at::Tensor& x) { return x.logsumexp(1); }},
      {"logsumexp_all",
       [](const at::Tensor& x) {
         return x.logsumexp(std::vector<std::int64_t>{0, 1});
       }},
      {"norm", [](const at::Tensor& x) { return x.norm(); }},
      {"norm_1_columns", [](const at::Tensor& x) { return x.norm(1, 1); }},
      {"vector_norm", [](const at::Tensor& x) { return at::linalg_vector_norm(x, 3); }},
      {"vector_norm_inf", [](const at::Tensor& x) { return at::linalg_vector_norm(x, INFINITY, at::IntArrayRef{1}); }},
      {"argmax", [](const at::Tensor& x) { return x.argmax(1); }},
      {"argmax_all", [](const at::Tensor& x) { return x.argmax(); }},
      {"argmin", [](const at::Tensor& x) { return x.argmin(0); }},
      {"all", [](const at::Tensor& x) { return (x > 0).all(); }},
      {"all_columns", [](const at::Tensor& x) { return (x > 0).all(1); }},
      {"any", [](const at::Tensor& x) { return (x > 0).any(); }},
      {"any_columns", [](const at::Tensor& x) { return (x > 0).any(1); }},
      {"count_nonzero", [](const at::Tensor& x) { return x.count_nonzero(std::optional<std::int64_t>(1)); }},
      {"cumsum", [](const at::Tensor& x) { return x.cumsum(1); }},
      {"cumprod", [](const at::Tensor& x) { return (x + 1).cumprod(1); }},
      {"cummax", [](const at::Tensor& x) { return first_of(x.cummax(1)); }},
      {"logcumsumexp", [](const at::Tensor& x) { return x.logcumsumexp(1); }},
      {"diff", [](const at::Tensor& x) { return x.diff(); }},
      {"histc", [](const at::Tensor& x) { return x.detach().histc(50); }},
      {"trapezoid", [](const at::Tensor& x) { return at::trapezoid(x); }},
      {"accuracy", [](const at::Tensor& x) { return (x.argmax(1) == 3).to(at::kFloat).mean(); }}};
  for (const auto& [name, function] : functions) {
    rows.push_back(of("reduce_" + std::string(name), function));
    rows.push_back(of("reduce_large_transposed_" + std::string(name), function, transposed({200, 220})));
  }
  rows.push_back(of(
      "reduce_sum_large", [](const at::Tensor& x) { return x.sum() + x.mean() + x.amax() + x.norm() + x.var(); },
      random({300, 400})));
  rows.push_back(of(
      "reduce_sum_bfloat16", [](const at::Tensor& x) { return x.sum() + x.sum(0).mean() + x.mean(1).sum(); },
      random({300, 400}, at::kBFloat16)));
  rows.push_back(of(
      "reduce_sum_half_to_float", [](const at::Tensor& x) { return x.sum(at::kFloat) + x.mean(at::kFloat); },
      random({300, 400}, at::kHalf)));
  rows.push_back(of("reduce_sum_of_bools", [](const at::Tensor& x) { return (x > 0.5).sum(1); }));
  rows.push_back(of(
      "reduce_channels_last",
      [](const at::Tensor& x) {
        return x.sum(at::IntArrayRef{2, 3}) + x.mean(at::IntArrayRef{2, 3}) + x.amax({2, 3});
      },
      channels_last({4, 8, 30, 30})));
  rows.push_back(of(
      "reduce_bias_gradient",
      [](const at::Tensor& x) {
        return at::zeros({4, 8, 30, 30}) + x;
      },
      random({8, 1, 1})));
}

void add_indexing(Rows& rows) {
  const auto index = indices({40}, 60), index2 = indices({50, 80}, 60);
  rows.push_back(of_two(
      "index_select", [](const at::Tensor& x, const at::Tensor& i) { return x.index_select(0, i); }, kMatrix, index));
  rows.push_back(of_two(
      "index_select_columns", [](const at::Tensor& x, const at::Tensor& i) { return x.index_select(1, i); }, kMatrix,
      index));
  rows.push_back(of_two(
      "index_select_transposed", [](const at::Tensor& x, const at::Tensor& i) { return x.index_select(1, i); },
      transposed({70, 60}), index));
  rows.push_back(of_two(
      "gather", [](const at::Tensor& x, const at::Tensor& i) { return x.gather(0, i); }, kMatrix, index2));
  rows.push_back(of_two(
      "take", [](const at::Tensor& x, const at::Tensor& i) { return x.take(i); }, kMatrix, index2));
  rows.push_back(of_two(
      "take_along_dim", [](const at::Tensor& x, const at::Tensor& i) { return x.take_along_dim(i, 0); }, kMatrix,
      index2));
  rows.push_back(of_two(
      "scatter", [](const at::Tensor& x, const at::Tensor& i) { return x.scatter(0, i, x.narrow(0, 0, 50)); }, kMatrix,
      index2));
  rows.push_back(of_two(
      "scatter_value", [](const at::Tensor& x, const at::Tensor& i) { return x.scatter(0, i, 1.5); }, kMatrix, index2));
  rows.push_back(of_two(
      "scatter_add", [](const at::Tensor& x, const at::Tensor& i) { return x.scatter_add(0, i, x.narrow(0, 0, 50)); },
      kMatrix, index2));
  rows.push_back(of_two(
      "scatter_reduce",
      [](const at::Tensor& x, const at::Tensor& i) { return x.scatter_reduce(0, i, x.narrow(0, 0, 50), "amax"); },
      kMatrix, index2));
  rows.push_back(of_two(
      "scatter_in_place",
      [](const at::Tensor& x, const at::Tensor& i) {
        auto y = x * 2;
        return y.scatter_(0, i, x.narrow(0, 0, 50)).scatter_add_(0, i, x.narrow(0, 0, 50));
      },
      kMatrix, index2));
  rows.push_back(of_two(
      "index", [](const at::Tensor& x, const at::Tensor& i) { return x.index({i}); }, kMatrix, index));
  rows.push_back(of_two(
      "index_columns",
      [](const at::Tensor& x, const at::Tensor& i) {
        return x.index({at::indexing::Slice(), i});
      },
      kMatrix, index));
  rows.push_back(of_two(
      "index_pairs",
      [](const at::Tensor& x, const at::Tensor& i) {
        return x.index({i, i.unsqueeze(1)});
      },
      kMatrix, index));
  rows.push_back(of_two(
      "index_put", [](const at::Tensor& x, const at::Tensor& i) { return x.index_put({i}, x.narrow(0, 0, 40)); },
      kMatrix, index));
  rows.push_back(of_two(
      "index_put_accumulate",
      [](const at::Tensor& x, const at::Tensor& i) { return x.index_put({i}, x.narrow(0, 0, 40), true); }, kMatrix,
      index));
  rows.push_back(of_two(
      "index_put_scalar",
      [](const at::Tensor& x, const at::Tensor& i) {
        auto y = x * 2;
        y.index_put_({i}, 1.5);
        return y;
      },
      kMatrix, index));
  rows.push_back(of_two(
      "index_add", [](const at::Tensor& x, const at::Tensor& i) { return x.index_add(0, i, x.narrow(0, 0, 40)); },
      kMatrix, index));
  rows.push_back(of_two(
      "index_copy", [](const at::Tensor& x, const at::Tensor& i) { return x.index_copy(0, i, x.narrow(0, 0, 40)); },
      kMatrix, index));
  rows.push_back(of_two(
      "index_fill", [](const at::Tensor& x, const at::Tensor& i) { return x.index_fill(0, i, 2.0); }, kMatrix, index));
  rows.push_back(of_two(
      "index_reduce",
      [](const at::Tensor& x, const at::Tensor& i) {
        return x.detach().index_reduce(0, i, x.narrow(0, 0, 40).detach(), "mean");
      },
      kMatrix, index));
  rows.push_back(of("masked_fill", [](const at::Tensor& x) { return x.masked_fill(x > 0.5, -1.0); }));
  rows.push_back(of("masked_fill_broadcast",
                    [](const at::Tensor& x) { return x.masked_fill(x.detach().select(0, 0) > 0.5, -1.0); }));
  rows.push_back(of(
      "masked_fill_causal",
      [](const at::Tensor& x) {
        return x.masked_fill(at::ones({80, 80}, at::kBool).triu(1), -INFINITY).softmax(-1);
      },
      random({4, 80, 80})));
  rows.push_back(of("masked_fill_in_place", [](const at::Tensor& x) { return (x * 2).masked_fill_(x > 0.5, -1.0); }));
  rows.push_back(of("masked_scatter", [](const at::Tensor& x) { return x.masked_scatter(x > 0.5, x * 2); }));
  rows.push_back(of("bucketize", [](const at::Tensor& x) { return at::bucketize(x, at::linspace(0, 1, 20)); }));
  rows.push_back(of("searchsorted", [](const at::Tensor& x) { return at::searchsorted(at::linspace(0, 1, 3000), x); }));
  rows.push_back(of(
      "isin", [](const at::Tensor& x) { return at::isin(x, at::arange(5)); }, indices({60, 80}, 9)));
}
}  // namespace

void add_function_rows(Rows& rows) {
  add_unary(rows);
  add_binary(rows);
  add_reductions(rows);
  add_indexing(rows);
}
}  // namespace cinch::tests
