// What probes found is kept on disk: a second process runs no kernel, and predicts the same.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <torch/library.h>

#include <filesystem>
#include <fstream>

#include "cinch/core/text.h"
#include "cinch/dryrun/dry_run.h"
#include "cinch/dryrun/internal/fake.h"
#include "cinch/dryrun/internal/probe.h"
#include "cinch/dryrun/internal/probe_bytes.h"
#include "cinch/trace/trace.h"

namespace cinch::dryrun {
namespace {
namespace fs = std::filesystem;
using internal::KernelScript;
using Program = std::function<void()>;

/// Kernels that give several results, none, views, scratch, larger arguments, undefined tensors and lists.
void program() {
  const auto x = at::rand({20, 3, 40, 40}).set_requires_grad(true), w = at::rand({8, 3, 5, 5}).set_requires_grad(true);
  at::conv2d(x, w, {}, 2).sum().backward();
  at::conv_transpose2d(x.detach(), at::rand({3, 4, 3, 3}), {}, 2).sum();
  const auto a = at::rand({64, 96}), b = at::fft_rfft(a), c = at::cdist(a, a), d = at::cumprod(a, 1);
  const auto e = at::median(a), f = std::get<0>(at::kthvalue(a, 3)), g = at::histc(a, 10), h = at::renorm(a, 2, 0, 1);
  const auto i = at::linalg_cholesky(at::eye(64)), j = at::linalg_inv(at::eye(64)), k = std::get<0>(at::linalg_qr(a));
  auto out = at::empty({0});
  at::cumsum_out(out, a, 1);
  const auto l = at::cat({a, a.to(at::kBFloat16)}), m = at::mv(a, at::rand({96})), n = at::nonzero(a);
  const auto o = at::rand({128, 96}).index({at::ones({128, 96}, at::kBool)}),
             p = std::get<0>(at::_unique2(at::arange(5000), true, true));
  const auto q = at::argmax(a.t(), 1), r = at::where(a > 0, a, 1.5), s = at::multinomial(at::rand({70, 90}), 5);
}

class ProbeCache : public ::testing::Test {
 protected:
  ProbeCache() {
    std::string pattern = (fs::temp_directory_path() / "cinch-probes-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    if (const char* before = ::getenv("CINCH_CACHE_DIR")) before_ = before;
    at::set_num_threads(2);
    use(folder_ / "cache");
  }
  ~ProbeCache() override {
    use(before_);
    fs::remove_all(folder_);
  }

  static void use(const fs::path& folder) { ::setenv("CINCH_CACHE_DIR", folder.c_str(), 1); }
  struct Run {
    trace::Trace trace;
    std::size_t kernels;
  };
  static Run dry_run(const Program& program) {
    Run run;
    const auto before = internal::kernels_probed();
    {
      const DryRun dry(run.trace, device::find("cpu"));
      program();
    }
    run.kernels = internal::kernels_probed() - before;
    return run;
  }
  static Run in_a_new_process(const Program& program) {
    internal::forget_probes();
    return dry_run(program);
  }
  static void expect_same(const Run& left, const Run& right) {
    const auto first = trace::first_divergence(left.trace, right.trace);
    EXPECT_EQ(first ? first->sentence : "none", "none");
    EXPECT_EQ(trace::Timeline(left.trace).peak().bytes, trace::Timeline(right.trace).peak().bytes);
    EXPECT_GT(trace::Timeline(left.trace).peak().bytes, Bytes());
  }
  /// The only file there is.
  fs::path file() const { return fs::directory_iterator(folder_ / "cache")->path(); }

  fs::path folder_;
  std::string before_;
};

TEST_F(ProbeCache, ASecondProcessRunsNoKernelAndPredictsTheSame) {
  const auto first = in_a_new_process(program), second = in_a_new_process(program);
  EXPECT_GT(first.kernels, 15u);
  EXPECT_EQ(second.kernels, 0u);
  expect_same(first, second);
  use("");
  const auto without = in_a_new_process(program);
  EXPECT_EQ(without.kernels, first.kernels);
  expect_same(without, second);
}

TEST_F(ProbeCache, IsWrittenOnlyWithSomethingNew) {
  in_a_new_process(program);
  const auto written = fs::last_write_time(file()) - std::chrono::hours(1);
  fs::last_write_time(file(), written);
  in_a_new_process(program);
  EXPECT_EQ(fs::last_write_time(file()), written);
  in_a_new_process([] { at::fft_fft(at::rand({70, 110})); });
  EXPECT_GT(fs::last_write_time(file()), written);
  EXPECT_EQ(in_a_new_process(program).kernels, 0u);
}

TEST_F(ProbeCache, IsOfThreadsAndSettings) {
  const auto convolution = [] { at::conv2d(at::rand({20, 3, 40, 40}), at::rand({8, 3, 5, 5})); };
  EXPECT_EQ(in_a_new_process(convolution).kernels, 1u);
  at::set_num_threads(1);
  EXPECT_EQ(in_a_new_process(convolution).kernels, 1u);
  at::globalContext().setUserEnabledMkldnn(false);
  const auto plain = in_a_new_process(convolution);
  EXPECT_EQ(plain.kernels, 1u);
  at::globalContext().setUserEnabledMkldnn(true);
  const auto by_onednn = in_a_new_process(convolution);
  EXPECT_EQ(by_onednn.kernels, 0u);
  EXPECT_NE(trace::Timeline(plain.trace).peak().bytes, trace::Timeline(by_onednn.trace).peak().bytes);
}

TEST_F(ProbeCache, OfOtherEnvironmentsLieInOtherFiles) {
  const auto first = in_a_new_process(program);
  ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // Of this process LibTorch has read it already.
  EXPECT_EQ(in_a_new_process(program).kernels, first.kernels);
  ::unsetenv("ONEDNN_MAX_CPU_ISA");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "cache"), {}), 2);
  EXPECT_EQ(in_a_new_process(program).kernels, 0u);
}

TEST_F(ProbeCache, DamagedIsWrittenAnew) {
  const auto first = in_a_new_process(program);
  const auto whole = read_file(file());
  for (const std::size_t length : {std::size_t{0}, std::size_t{10}, whole.size() / 2, whole.size() - 1}) {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << whole.substr(0, length);
    const auto again = in_a_new_process(program);
    EXPECT_EQ(again.kernels, first.kernels);
    expect_same(first, again);
    EXPECT_EQ(read_file(file()), whole);
  }
}

TEST_F(ProbeCache, WithoutAFolderNothingIsKept) {
  std::ofstream(folder_ / "file") << "where a folder should be";
  for (const auto& folder : {fs::path(), folder_ / "file" / "cache"}) {
    use(folder);
    EXPECT_GT(in_a_new_process(program).kernels, 0u);
    EXPECT_GT(in_a_new_process(program).kernels, 0u);
  }
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
}

at::Tensor twice(const at::Tensor& x) { return x + x; }

TEST_F(ProbeCache, KernelsOfUsersAreNotKept) {
  torch::Library mine(torch::Library::DEF, "probe_cache_test", std::nullopt, __FILE__, __LINE__);
  mine.def("twice(Tensor x) -> Tensor");
  mine.impl("twice", torch::dispatch(c10::DispatchKey::CPU, &twice));
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("probe_cache_test::twice", "")
                      .typed<at::Tensor(const at::Tensor&)>();
  const auto users = [&] { op.call(at::rand({70, 90})); };
  EXPECT_EQ(in_a_new_process(users).kernels, 1u);
  EXPECT_EQ(in_a_new_process(users).kernels, 1u);
}

at::Tensor trace_of(const at::Tensor& x) { return at::native::trace_cpu(x.clone()); }

TEST_F(ProbeCache, AReplacedKernelIsAskedItself) {
  const auto trace_of_a_matrix = [] { at::trace(at::rand({70, 90})); };
  const auto librarys = in_a_new_process(trace_of_a_matrix);
  EXPECT_EQ(librarys.kernels, 1u);
  {
    torch::Library mine(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    mine.impl("trace", &trace_of);
    const auto replaced = in_a_new_process(trace_of_a_matrix);
    EXPECT_EQ(replaced.kernels, 1u);
    EXPECT_EQ(in_a_new_process(trace_of_a_matrix).kernels, 1u);
    EXPECT_GT(trace::Timeline(replaced.trace).peak().bytes, trace::Timeline(librarys.trace).peak().bytes);
  }
  const auto again = in_a_new_process(trace_of_a_matrix);
  EXPECT_EQ(again.kernels, 0u);
  expect_same(librarys, again);
}

TEST_F(ProbeCache, WhatValuesDecideIsNotKept) {
  const auto rows = [](std::vector<std::int64_t> chosen) {
    return [=] { at::rand({8, 3000}).index({at::tensor(chosen).to(at::kBool)}); };
  };
  const auto three = in_a_new_process(rows({1, 0, 1, 1, 0, 0, 0, 0})),
             five = in_a_new_process(rows({1, 0, 1, 1, 0, 1, 1, 0}));
  EXPECT_EQ(three.kernels, 1u);
  EXPECT_EQ(five.kernels, 1u);
  EXPECT_LT(trace::Timeline(three.trace).peak().bytes, trace::Timeline(five.trace).peak().bytes);
}

// --- the bytes of one script ---

at::Tensor layout(at::IntArrayRef sizes) { return at::empty(sizes, at::TensorOptions(at::kFloat).device(at::kMeta)); }

/// One of everything.
KernelScript script() {
  using Kind = KernelScript::Place::Kind;
  KernelScript script;
  script.steps = {{true, 0, Bytes(400)}, {true, 1, Bytes(1000)}, {false, 1, Bytes(1000)}, {true, 2, Bytes(800)}};
  script.outputs = {
      layout({10, 10}), at::Tensor(), c10::IValue(), c10::List<at::Tensor>({layout({0}), at::Tensor(), layout({5})}),
      std::int64_t{-7}, 0.25,         true};
  script.places = {{Kind::kAllocation, 0}, {Kind::kAllocation, KernelScript::kNothing}, {Kind::kViewOfArgument, 3}};
  script.relaid = {{1, layout({2, 100}), 2}, {4, layout({3}).t(), KernelScript::kNothing}};
  return script;
}

TEST(ProbeBytes, ComeBackTheSame) {
  const auto bytes = internal::to_bytes(script());
  ASSERT_TRUE(bytes.has_value());
  const auto back = internal::from_bytes(*bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(internal::to_bytes(*back), bytes);
  const auto all = script();
  ASSERT_EQ(back->steps.size(), all.steps.size());
  for (std::size_t i = 0; i < all.steps.size(); ++i) {
    EXPECT_EQ(back->steps[i].allocates, all.steps[i].allocates);
    EXPECT_EQ(back->steps[i].index, all.steps[i].index);
    EXPECT_EQ(back->steps[i].bytes, all.steps[i].bytes);
  }
  ASSERT_EQ(back->outputs.size(), all.outputs.size());
  EXPECT_EQ(back->outputs[0].toTensor().sizes(), at::IntArrayRef({10, 10}));
  EXPECT_FALSE(back->outputs[1].toTensor().defined());
  EXPECT_TRUE(back->outputs[2].isNone());
  EXPECT_EQ(back->outputs[3].toTensorVector()[2].sizes(), at::IntArrayRef({5}));
  EXPECT_EQ(back->outputs[4].toInt(), -7);
  EXPECT_EQ(back->outputs[5].toDouble(), 0.25);
  EXPECT_TRUE(back->outputs[6].toBool());
  ASSERT_EQ(back->places.size(), all.places.size());
  for (std::size_t i = 0; i < all.places.size(); ++i) {
    EXPECT_EQ(back->places[i].kind, all.places[i].kind);
    EXPECT_EQ(back->places[i].index, all.places[i].index);
  }
  ASSERT_EQ(back->relaid.size(), 2u);
  EXPECT_EQ(back->relaid[0].allocation, 2u);
  EXPECT_EQ(back->relaid[0].layout.strides(), at::IntArrayRef({100, 1}));
  EXPECT_EQ(back->relaid[1].allocation, KernelScript::kNothing);
}

TEST(ProbeBytes, CutOffAreRefused) {
  const auto bytes = internal::to_bytes(script()).value();
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(internal::from_bytes(bytes.substr(0, length)).has_value()) << length;
  EXPECT_FALSE(internal::from_bytes(bytes + '\0').has_value());
}

TEST(ProbeBytes, ChangedAreRefusedOrAnotherScript) {
  const auto bytes = internal::to_bytes(script()).value();
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (const char change : {'\x01', '\x40', '\x80', '\xff'}) {
      auto changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ change);
      const auto other = internal::from_bytes(changed);
      if (other) {
        EXPECT_EQ(internal::to_bytes(*other), changed) << i;
      }
    }
}

TEST(ProbeBytes, ScriptsThatNobodyCouldPlayAreRefused) {
  const auto expect_refused = [](const std::function<void(KernelScript&)>& change) {
    auto wrong = script();
    change(wrong);
    EXPECT_FALSE(internal::to_bytes(wrong).has_value());
  };
  expect_refused([](auto& s) { s.places[0].index = 1; });                       // Freed inside.
  expect_refused([](auto& s) { s.places[0].index = 3; });                       // Never made.
  expect_refused([](auto& s) { s.places[0].index = 2; });                       // An argument's.
  expect_refused([](auto& s) { s.places[0].index = KernelScript::kNothing; });  // Elements without bytes.
  expect_refused([](auto& s) { s.steps[0].bytes = Bytes(399); });               // A tensor past its memory.
  expect_refused([](auto& s) { s.steps[2].index = 9; });                        // Frees what is not there.
  expect_refused([](auto& s) { s.steps.push_back(s.steps[2]); });               // Frees twice.
  expect_refused([](auto& s) { s.relaid[0].allocation = 1; });
  expect_refused([](auto& s) { std::swap(s.relaid[0], s.relaid[1]); });
  expect_refused([](auto& s) { s.outputs[4] = std::string("text"); });
}

TEST(ProbeBytes, AreOfACallThatCouldDoThat) {
  using Kind = KernelScript::Place::Kind;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::cumsum", "out");
  const auto x = at::rand({10, 10}), out = at::rand({5});
  const torch::jit::Stack arguments{x, std::int64_t{0}, c10::IValue(), out};
  KernelScript grows;
  grows.steps = {{true, 0, Bytes(400)}};
  grows.outputs = {layout({10, 10})};
  grows.places = {{Kind::kArgument, 1}};
  grows.relaid = {{1, layout({10, 10}), 0}};
  const auto expect = [&](bool answers, const std::function<void(KernelScript&)>& change) {
    auto changed = grows;
    change(changed);
    EXPECT_EQ(internal::answers(changed, op, arguments), answers);
  };
  expect(true, [](auto&) {});
  expect(true, [](auto& s) { s.places[0].kind = Kind::kViewOfArgument; });
  expect(false, [](auto& s) { s.places[0].index = 2; });
  expect(false, [](auto& s) { s.outputs.emplace_back(1); });
  expect(false, [](auto& s) { s.outputs[0] = 1; });
  expect(false, [](auto& s) { s.relaid[0].argument = 0; });  // It is only read.
  expect(false, [](auto& s) { s.relaid[0].argument = 2; });
  expect(false, [](auto& s) { s.relaid[0].allocation = KernelScript::kNothing; });  // Too small for that layout.
  expect(false, [](auto& s) { s.relaid[0].layout = layout({10, 10}).to(at::kInt); });
  expect(false, [](auto& s) {
    s.places[0].kind = Kind::kViewOfArgument;
    s.outputs[0] = layout({10, 11});
  });
}
}  // namespace
}  // namespace cinch::dryrun
