// Rows: sorting, joining, views, copies.
#include "tests/modules.h"

namespace cinch::tests {
namespace {

void add_sorting(Rows& rows) {
  for (const auto& [name, input] : {std::pair{"", kMatrix}, std::pair{"_transposed", transposed({60, 80})}}) {
    rows.push_back(of(
        "sort" + std::string(name), [](const at::Tensor& x) { return x.sort(1); }, input));
    rows.push_back(of(
        "sort_rows_descending" + std::string(name), [](const at::Tensor& x) { return x.sort(0, true); }, input));
    rows.push_back(of(
        "argsort" + std::string(name), [](const at::Tensor& x) { return x.argsort(std::int64_t{1}, false); }, input));
    rows.push_back(of(
        "topk" + std::string(name), [](const at::Tensor& x) { return x.topk(40, 1); }, input));
    rows.push_back(of(
        "msort" + std::string(name), [](const at::Tensor& x) { return x.msort(); }, input));
  }
  rows.push_back(of("sort_stable", [](const at::Tensor& x) { return x.sort(true, 1, false); }));
  rows.push_back(of(
      "sort_vector", [](const at::Tensor& x) { return x.sort(); }, random({5000})));
}

void add_shapes(Rows& rows) {
  rows.push_back(of("cat", [](const at::Tensor& x) { return at::cat({x, x * 2, x}, 1); }));
  rows.push_back(of(
      "cat_transposed",
      [](const at::Tensor& x) {
        return at::cat({x, x}, 0);
      },
      transposed({60, 80})));
  rows.push_back(of(
      "cat_channels_last",
      [](const at::Tensor& x) {
        return at::cat({x, x}, 1);
      },
      channels_last({4, 8, 14, 14})));
  rows.push_back(of("cat_types", [](const at::Tensor& x) { return at::cat({x, x.to(at::kDouble)}, 1); }));
  rows.push_back(of("stack", [](const at::Tensor& x) { return at::stack({x, x * 2}, 1); }));
  rows.push_back(of("split", [](const at::Tensor& x) {
    auto parts = x.split(20, 1);
    return parts[0] * parts[1] + parts[3];
  }));
  rows.push_back(of("chunk", [](const at::Tensor& x) {
    auto parts = x.chunk(3, 0);
    return parts[0] * parts[2];
  }));
  rows.push_back(of("split_sizes", [](const at::Tensor& x) {
    auto parts = x.split_with_sizes({30, 50}, 1);
    return parts[0].sum() + parts[1].square().sum();
  }));
  rows.push_back(of("tensor_split", [](const at::Tensor& x) { return x.tensor_split(3, 1)[1] * 2; }));
  rows.push_back(of("unbind", [](const at::Tensor& x) {
    auto parts = x.view({3, 20, 80}).unbind(0);
    return parts[0] * parts[1] * parts[2];
  }));
  rows.push_back(of("roll", [](const at::Tensor& x) { return x.roll({3, 5}, {0, 1}); }));
  rows.push_back(of("roll_flat", [](const at::Tensor& x) { return x.roll(7); }));
  rows.push_back(of("flip", [](const at::Tensor& x) { return x.flip({0, 1}); }));
  rows.push_back(of("rot90", [](const at::Tensor& x) { return x.rot90(); }));
  rows.push_back(of("repeat", [](const at::Tensor& x) { return x.repeat({2, 3}); }));
  rows.push_back(of("tile", [](const at::Tensor& x) { return x.tile({2, 1}); }));
  rows.push_back(of("repeat_interleave", [](const at::Tensor& x) { return x.repeat_interleave(3, 1); }));
  rows.push_back(of("expand", [](const at::Tensor& x) { return x.unsqueeze(0).expand({4, 60, 80}) * 2; }));
  rows.push_back(of(
      "permute_contiguous",
      [](const at::Tensor& x) {
        return x.permute({2, 0, 1}).contiguous() * 2;
      },
      random({20, 30, 10})));
  rows.push_back(of(
      "transpose_reshape",
      [](const at::Tensor& x) {
        return x.transpose(1, 2).reshape({20, -1}).square();
      },
      random({20, 30, 10})));
  rows.push_back(of("view_narrow_select", [](const at::Tensor& x) {
    return x.view({30, 2, 80}).narrow(0, 3, 20).select(1, 1) * 2;
  }));
  rows.push_back(of(
      "movedim_flatten", [](const at::Tensor& x) { return x.movedim(0, 2).flatten(0, 1) * 2; }, random({20, 30, 10})));
  rows.push_back(of("diagonal", [](const at::Tensor& x) { return x.diagonal() * 2; }));
  rows.push_back(of(
      "diag_embed", [](const at::Tensor& x) { return at::diag_embed(x); }, random({4, 60})));
  rows.push_back(of(
      "diag", [](const at::Tensor& x) { return at::diag(x); }, random({80})));
  rows.push_back(of("unfold_dimension", [](const at::Tensor& x) { return x.unfold(1, 10, 5) * 2; }));
  rows.push_back(of("as_strided", [](const at::Tensor& x) { return x.as_strided({50, 50}, {80, 1}) * 2; }));
  rows.push_back(of("slice_steps", [](const at::Tensor& x) { return x.slice(0, 1, 59, 3) * 2; }));
  rows.push_back(of("select_scatter", [](const at::Tensor& x) { return x.select_scatter(x.select(0, 3) * 2, 0, 5); }));
  rows.push_back(
      of("slice_scatter", [](const at::Tensor& x) { return x.slice_scatter(x.narrow(0, 0, 20) * 2, 0, 10, 30); }));
  rows.push_back(of("write_into_slice", [](const at::Tensor& x) {
    auto y = at::zeros({120, 80});
    y.narrow(0, 0, 60).copy_(x);
    y.narrow(0, 60, 60).add_(x);
    return y;
  }));
  rows.push_back(of(
      "clone_formats",
      [](const at::Tensor& x) {
        return x.clone(at::MemoryFormat::ChannelsLast) + x.contiguous(at::MemoryFormat::ChannelsLast).clone() + x;
      },
      random({4, 8, 14, 14})));
  rows.push_back(of("detach_and_lift", [](const at::Tensor& x) {
    return (x + at::lift(x * 3).detach_() + at::lift_fresh(x.detach())).t_().t_();
  }));
  rows.push_back(of("detach_and_copy", [](const at::Tensor& x) {
    auto y = at::empty_like(x);
    y.copy_(x);
    return y + x.detach().clone();
  }));
  rows.push_back(of("copy_transposed", [](const at::Tensor& x) {
    auto y = at::empty({80, 60});
    y.copy_(x.t());
    return y;
  }));
  rows.push_back(of("resize_as", [](const at::Tensor& x) {
    const auto y = at::empty({80, 60}).resize_({60, 80}).zero_();
    return x + y;
  }));
  rows.push_back(of(
      "meshgrid",
      [](const at::Tensor& x) {
        auto grids = at::meshgrid({x, x}, "ij");
        return grids[0] * grids[1];
      },
      random({60})));
  rows.push_back(of(
      "cartesian",
      [](const at::Tensor& x) {
        return at::cartesian_prod({x, x});
      },
      random({60})));
  rows.push_back(of("cdist", [](const at::Tensor& x) { return at::cdist(x, x * 2); }));
  rows.push_back(of("cdist_1", [](const at::Tensor& x) { return at::cdist(x, x * 2, 1.0); }));
  rows.push_back(of(
      "pdist", [](const at::Tensor& x) { return at::pdist(x); }, random({80, 20})));
}
}  // namespace

void add_shape_rows(Rows& rows) {
  add_sorting(rows);
  add_shapes(rows);
}
}  // namespace cinch::tests
