// CUDA's kernels without CUDA: their source as C++, a thread of the system for each of a card's, against the CPU's
// kernels; and NVRTC's word that it compiles, where NVRTC is.
#include <dlfcn.h>

#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

#include <ATen/ATen.h>
#include <c10/util/Half.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/dynamic_map.h"
#include "cinch/optim/internal/gpu.h"
#include "cinch/optim/internal/ops.h"

namespace cinch::optim::internal {
namespace emulated {
// Blocks run one after the other, so that what threads of a block share is static.
struct Index {
  unsigned x = 0;
};
thread_local Index threadIdx;
Index blockIdx, blockDim, gridDim;
std::barrier<>* all_threads = nullptr;
std::vector<float> exchanged;

#define __device__
#define __global__
#define __shared__ static
// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.
void __syncthreads() { all_threads->arrive_and_wait(); }
float __shfl_xor_sync(unsigned /*mask*/, float own, int lane) {
  exchanged[threadIdx.x] = own;
  __syncthreads();
  const float other = exchanged[threadIdx.x ^ static_cast<unsigned>(lane)];
  __syncthreads();
  return other;
}
float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
// NOLINTEND(bugprone-reserved-identifier)
float half_to_float(unsigned short bits) { return c10::Half(bits, c10::Half::from_bits()); }
unsigned short float_to_half(float x) { return c10::Half(x).x; }

std::vector<unsigned> bits_of(const std::array<float, 256>& numbers) {
  std::vector<unsigned> bits;
  for (const float number : numbers) bits.push_back(std::bit_cast<unsigned>(number));
  return bits;
}
const std::vector<unsigned> kValues1 = bits_of(DynamicMap::of_first_moment().values());
const std::vector<unsigned> kValues2 = bits_of(DynamicMap::of_second_moment().values());
const unsigned* const kRanks1 = DynamicMap::of_first_moment().ranks();
const unsigned* const kRanks2 = DynamicMap::of_second_moment().ranks();
const unsigned kZero1 = DynamicMap::of_first_moment().zero();
constexpr unsigned kFirstBucket = DynamicMap::kFirstBucket, kLastBucket = DynamicMap::kLastBucket;

#include "cinch/optim/internal/kernels.cuh"

template <class Kernel>
void launch(unsigned blocks, unsigned threads, const Kernel& kernel) {
  gridDim.x = blocks;
  blockDim.x = threads;
  exchanged.assign(threads, 0);
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    std::barrier<> barrier(threads);
    all_threads = &barrier;
    std::vector<std::jthread> running;
    for (unsigned t = 0; t < threads; ++t) {
      running.emplace_back([t, &kernel] {
        threadIdx.x = t;
        kernel();
      });
    }
  }
}
}  // namespace emulated

namespace {
using List = std::vector<at::Tensor>;

template <class Number>
Number* data(const at::Tensor& tensor) {
  return static_cast<Number*>(tensor.mutable_data_ptr());
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) { return tensor.contiguous().view(at::kByte); };
  return at::equal(bytes(a), bytes(b));
}

/// Magnitudes from 1e-12 to 1.
at::Tensor gradient(std::int64_t count, int step, at::ScalarType dtype) {
  const auto i = at::arange(count, at::kDouble);
  return (at::sin(i * (0.7 * (step + 1)) + step) * at::pow(10.0, at::remainder(i * 5 + step, 13) - 12)).to(dtype);
}

constexpr AdamW8bitArguments kArguments{
    .learning_rate = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .eps = 1e-8, .block_size = 256};

struct EightBitRun {
  at::Tensor parameter, codes1, scales1, codes2, scales2;
  EightBitRun(std::int64_t count, std::int64_t block_size, at::ScalarType dtype)
      : parameter(at::cos(at::arange(count, at::kDouble)).to(dtype)),
        codes1(at::full({count}, DynamicMap::of_first_moment().zero(), at::kByte)),
        scales1(at::zeros({(count + block_size - 1) / block_size})),
        codes2(at::zeros({count}, at::kByte)),
        scales2(at::zeros_like(scales1)) {}

  void step_on_cpu(const at::Tensor& gradient, const at::Tensor& steps, const AdamW8bitArguments& arguments) const {
    adamw_8bit({parameter}, {gradient}, {{codes1}, {scales1}, {codes2}, {scales2}}, {steps}, arguments);
  }

  /// Fewer blocks than the card would take, so that each goes around its loop.
  template <class Number, class Kernel>
  void step_emulated(Kernel kernel, const at::Tensor& gradient, const at::Tensor& steps,
                     const AdamW8bitArguments& a) const {
    const auto step = adamw_step(steps, a.learning_rate, a.beta1, a.beta2, a.weight_decay, a.eps);
    const auto same = std::bit_cast<emulated::Step>(step);
    const auto size = static_cast<unsigned>(a.block_size);
    emulated::launch(2, std::max(size / 4, 32u), [&] {
      kernel(data<Number>(parameter), data<const Number>(gradient), data<unsigned char>(codes1), data<float>(scales1),
             data<unsigned char>(codes2), data<float>(scales2), parameter.numel(), static_cast<int>(size), same);
    });
  }
};

template <class Number, class Kernel>
void expect_same_adamw(Kernel kernel, at::ScalarType dtype, std::int64_t count, std::int64_t block_size) {
  auto arguments = kArguments;
  arguments.block_size = block_size;
  const EightBitRun cpu(count, block_size, dtype), card(count, block_size, dtype);
  for (int step = 1; step <= 4; ++step) {
    auto g = gradient(count, step, dtype);
    if (step == 2) g[count / 2] = std::numeric_limits<double>::infinity();
    if (step == 3) g[count - 1] = std::nan("");
    if (step == 4) g.narrow(0, 0, std::min(count, block_size)).zero_();
    const auto steps = at::full({}, step, at::kFloat);
    cpu.step_on_cpu(g, steps, arguments);
    card.step_emulated<Number>(kernel, g, steps, arguments);
    EXPECT_TRUE(same_bits(cpu.parameter, card.parameter)) << count << " in " << block_size << ", step " << step;
    EXPECT_TRUE(at::equal(cpu.codes1, card.codes1)) << count << " in " << block_size << ", step " << step;
    EXPECT_TRUE(at::equal(cpu.codes2, card.codes2)) << count << " in " << block_size << ", step " << step;
    EXPECT_TRUE(same_bits(cpu.scales1, card.scales1)) << count << " in " << block_size << ", step " << step;
    EXPECT_TRUE(same_bits(cpu.scales2, card.scales2)) << count << " in " << block_size << ", step " << step;
  }
  EXPECT_TRUE(at::isfinite(cpu.parameter).all().item<bool>());
  EXPECT_GT(cpu.codes2.ne(0).sum().item<std::int64_t>(), count / 2);
}

TEST(CudaKernels, AdamWIn8BitsStepsAsTheCpuToTheBit) {
  expect_same_adamw<float>(&emulated::adamw_8bit_float, at::kFloat, 1300, 256);
  expect_same_adamw<float>(&emulated::adamw_8bit_float, at::kFloat, 201, 64);
  expect_same_adamw<float>(&emulated::adamw_8bit_float, at::kFloat, 128, 128);
  expect_same_adamw<float>(&emulated::adamw_8bit_float, at::kFloat, 2100, 2048);
  expect_same_adamw<emulated::Bfloat16>(&emulated::adamw_8bit_bfloat16, at::kBFloat16, 700, 256);
  expect_same_adamw<emulated::Half>(&emulated::adamw_8bit_half, at::kHalf, 700, 256);
}

template <class Number, class Wide, class Kernel>
void expect_same_lion(Kernel kernel, at::ScalarType dtype) {
  constexpr std::int64_t kCount = 777;
  const LionArguments a{.learning_rate = 0.003, .beta1 = 0.9, .beta2 = 0.97, .weight_decay = 0.2};
  const emulated::Rates<Wide> rates{
      static_cast<Wide>(a.learning_rate), static_cast<Wide>(1 - a.learning_rate * a.weight_decay),
      static_cast<Wide>(a.beta1),         static_cast<Wide>(1 - a.beta1),
      static_cast<Wide>(a.beta2),         static_cast<Wide>(1 - a.beta2)};
  const auto cpu = at::cos(at::arange(kCount, at::kDouble)).to(dtype), card = cpu.clone();
  const auto cpu_momentum = at::zeros({kCount}, dtype), momentum = at::zeros({kCount}, dtype);
  for (int step = 0; step < 4; ++step) {
    auto g = gradient(kCount, step, dtype);
    if (step == 0) g[3] = 0;
    lion({cpu}, {g}, {cpu_momentum}, a);
    emulated::launch(2, 64,
                     [&] { kernel(data<Number>(card), data<const Number>(g), data<Number>(momentum), kCount, rates); });
    EXPECT_TRUE(same_bits(cpu, card)) << dtype << ", step " << step;
    EXPECT_TRUE(same_bits(cpu_momentum, momentum)) << dtype << ", step " << step;
  }
}

TEST(CudaKernels, LionStepsAsTheCpuToTheBit) {
  expect_same_lion<float, float>(&emulated::lion_float, at::kFloat);
  expect_same_lion<double, double>(&emulated::lion_double, at::kDouble);
  expect_same_lion<emulated::Bfloat16, float>(&emulated::lion_bfloat16, at::kBFloat16);
  expect_same_lion<emulated::Half, float>(&emulated::lion_half, at::kHalf);
}

/// What the text before the kernels says is what DynamicMap has.
TEST(CudaKernels, HaveTheCpusMaps) {
  const auto source = kernel_source();
  const auto numbers_of = [&source](const std::string& table) {
    std::vector<std::uint32_t> numbers;
    auto at = source.find(table + "[] = {");
    EXPECT_NE(at, std::string::npos) << table;
    for (at = source.find('{', at) + 1; source[at] != '}'; at = source.find(',', at) + 1)
      numbers.push_back(static_cast<std::uint32_t>(std::stoul(source.substr(at, 12))));
    return numbers;
  };
  EXPECT_EQ(numbers_of("kValues1"), emulated::kValues1);
  EXPECT_EQ(numbers_of("kValues2"), emulated::kValues2);
  const std::size_t buckets = DynamicMap::kLastBucket - DynamicMap::kFirstBucket + 1;
  EXPECT_EQ(numbers_of("kRanks1"), std::vector<std::uint32_t>(emulated::kRanks1, emulated::kRanks1 + buckets));
  EXPECT_EQ(numbers_of("kRanks2"), std::vector<std::uint32_t>(emulated::kRanks2, emulated::kRanks2 + buckets));
  EXPECT_THAT(source, testing::HasSubstr("kZero1 = 127,"));
}

/// Needs NVRTC, not a GPU.
TEST(CudaKernels, CompileForEveryCardSinceTuring) {
  void* library = nullptr;
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12"})
    if (library == nullptr) library = ::dlopen(name, RTLD_NOW);
  if (library == nullptr) GTEST_SKIP() << "no NVRTC on this machine (pip: nvidia-cuda-nvrtc)";
  for (const char* architecture : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "compute_90"}) {
    const auto compiled = compile(library, kernel_source(), architecture);
    EXPECT_EQ(compiled.log.find_first_not_of('\0'), std::string::npos) << architecture << ": " << compiled.log;
    const bool ptx = std::string(architecture).starts_with("compute");
    EXPECT_NE(compiled.binary.find(ptx ? ".entry adamw_8bit_bfloat16" : "\177ELF"), std::string::npos) << architecture;
  }
  const auto wrong = compile(library, kernel_source() + "\nthis is no C++", "sm_80");
  EXPECT_EQ(wrong.binary, "");
  EXPECT_THAT(wrong.log, testing::HasSubstr("kernels.cuh"));
}

/// Where LibTorch's CUDA libraries cannot be loaded the error says what is missing.
TEST(CudaKernels, AskForLibTorchsLibraries) {
  try {
    multiprocessors(at::Device(at::kCUDA, 0));
    GTEST_SKIP() << "there is a GPU";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::AnyOf(testing::HasSubstr("libcaffe2_nvrtc.so"), testing::HasSubstr("CUDA")));
  }
}

// ---- Adafactor of LibTorch's ops ------------------------------------------------------------------------------------

struct AdafactorRun {
  at::Tensor parameter, row, column;
  AdafactorRun(at::IntArrayRef sizes, at::ScalarType dtype) {
    const auto wide = at::promote_types(dtype, at::kFloat);
    std::int64_t count = 1;
    for (const auto size : sizes) count *= size;
    parameter = (at::cos(at::arange(count, at::kDouble)) * 0.1).view(sizes).to(dtype);
    if (sizes.size() < 2) {
      row = at::zeros(sizes, wide);
      return;
    }
    auto rows = sizes.vec(), columns = sizes.vec();
    rows.pop_back();
    columns.erase(columns.end() - 2);
    row = at::zeros(rows, wide);
    column = at::zeros(columns, wide);
  }
  List columns() const { return column.defined() ? List{column} : List{}; }
};

double distance(const at::Tensor& a, const at::Tensor& b) {
  const auto wide = b.to(at::kDouble);
  return ((a.to(at::kDouble) - wide).norm() / wide.norm()).item<double>();
}

void expect_same_adafactor(const std::vector<std::int64_t>& sizes, at::ScalarType dtype, const AdafactorArguments& a,
                           double bound) {
  const AdafactorRun loops(sizes, dtype), ops(sizes, dtype);
  const auto scratch = at::empty({4096}, loops.row.options());
  for (int step = 1; step <= 4; ++step) {
    const auto g = gradient(loops.parameter.numel(), step, dtype).view(sizes);
    const auto steps = at::full({}, step, at::kFloat);
    adafactor({loops.parameter}, {g}, {loops.row}, loops.columns(), {steps}, scratch, a);
    adafactor_of_ops({ops.parameter}, {g}, {ops.row}, ops.columns(), {steps},
                     scratch.narrow(0, 0, adafactor_scratch(ops.parameter)), a);
  }
  EXPECT_LE(distance(ops.parameter, loops.parameter), bound) << sizes;
  EXPECT_LE(distance(ops.row, loops.row), std::min(bound, 1e-6)) << sizes;
  if (loops.column.defined()) {
    EXPECT_LE(distance(ops.column, loops.column), std::min(bound, 1e-6)) << sizes;
  }
  EXPECT_GT(distance(loops.parameter, AdafactorRun(sizes, dtype).parameter), 1e-3) << "it moved";
}

TEST(AdafactorOfOps, StepsAsTheCpusLoops) {
  const AdafactorArguments plain{.learning_rate = 0.01,
                                 .weight_decay = 0.1,
                                 .eps_square = 1e-30,
                                 .eps_scale = 1e-3,
                                 .clip_threshold = 1,
                                 .decay_rate = -0.8,
                                 .scale_parameter = false,
                                 .relative_step = false};
  auto relative = plain;
  relative.scale_parameter = relative.relative_step = true;
  auto scaled = plain;
  scaled.scale_parameter = true;
  scaled.learning_rate = 0.1;
  scaled.weight_decay = 0;
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{30, 41}, {3, 20, 10}, {57}, {1, 9}, {9, 1}}) {
    expect_same_adafactor(sizes, at::kFloat, plain, 1e-6);
    expect_same_adafactor(sizes, at::kDouble, plain, 1e-14);
    expect_same_adafactor(sizes, at::kFloat, scaled, 1e-6);
  }
  auto faster = relative;
  faster.eps_scale = 0.5;
  expect_same_adafactor({30, 41}, at::kFloat, faster, 1e-6);
  expect_same_adafactor({30, 41}, at::kBFloat16, plain, 4e-3);
  expect_same_adafactor({57}, at::kBFloat16, plain, 4e-3);
}
}  // namespace
}  // namespace cinch::optim::internal
