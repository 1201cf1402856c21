#include "cinch/device/internal/cards.h"

#include <array>
#include <cmath>
#include <vector>

namespace cinch::device::internal {
namespace {

// Dispatch, allocation and launch of one op from C++; a queue that is never empty hides it.
constexpr std::chrono::duration<double> kLaunch{5e-6};

// One direction of a link of 16 lanes, at the rate of its standard.
constexpr double kPcie3 = 15.75e9, kPcie4 = 31.5e9, kPcie5 = 63.0e9;

// Memory: what the driver reports as total (torch.cuda.get_device_properties, "total capacity of"), less than the name
// says: ECC and the driver keep some. It differs by up to 1 % from driver to driver; of several reports the lower
// counts.
//
// Context: what the driver and the kernels loaded so far take, outside the allocator. An estimate, measured on none of
// these cards by us. It rests on reports: 287 MB for one tensor with kernels loaded lazily, as is the rule since CUDA
// 11.7 (pytorch/pytorch#86509), some 300 MB (#107667), about 400 MB (#109888), 426 MiB on an RTX 6000 Ada
// (LibTorch 2.10 for CUDA 13, unslothai/unsloth-zoo#1053). The kernels of a training step come on top, and cards with
// more processors take more: so 350 to 600 MiB, good to some 100 MiB, which the headroom of 2 % covers. Before 11.7,
// with all kernels loaded, it was over 1 GB (#107667).
//
// Rates: the maker's data sheets and white papers, dense, 10^12 a second; 16-bit products that are added up in 32 bits,
// as LibTorch asks for. Sheets of Ampere and later print twice as much in the same line, with a footnote: of matrices
// half of which are zeros (L40S 733, H100 1,979, B200 4,500). GeForce's white papers print as much again for sums in 16
// bits. TF32 is off in LibTorch. A rate of 0: no units for it.
// Compute capability: developer.nvidia.com/cuda-gpus.
struct Row {
  const char* name;
  double memory_gib;
  int context_mib;
  int compute_capability;
  double float32, bfloat16, float16;
  double memory_gb_per_second;
  double host_bytes_per_second;
};

constexpr std::array kRows{
    // Rates of the SXM2 module, V100 data sheet; the PCIe card has 14 and 112.
    // 15.78 GiB: kchengiva/Shift-GCN#34
    Row{"v100-16gb", 15.78, 350, 70, 15.7, 0, 125, 900, kPcie3},
    // 31.74 GiB: liucongg/ChatGLM-Finetuning#73
    Row{"v100-32gb", 31.74, 350, 70, 15.7, 0, 125, 900, kPcie3},
    // Rates: T4 data sheet.
    // 14.74 GiB: Colab's and Kaggle's of 2025; 14.76 by older drivers, Morizeyao/GPT2-Chinese#215
    Row{"t4-16gb", 14.74, 350, 75, 8.1, 0, 65, 320, kPcie3},
    // Rates: GA102 white paper.
    // 23.70 GiB: GaoLii/DSP#10, xiaoxiangAQ/GAS-Net#7; 23.69 by newer drivers
    Row{"rtx3090-24gb", 23.69, 470, 86, 35.6, 71, 71, 936, kPcie4},
    // Rates of the SXM4 module, A100 data sheet; the 80 GB PCIe card moves 1,935 GB/s.
    // 42,298,834,944 B: bottlerocket-os/bottlerocket#3873
    Row{"a100-40gb", 42298834944.0 / (1 << 30), 470, 80, 19.5, 312, 312, 1555, kPcie4},
    // 79.14 GiB: lianqi1008/Control-GIC#6
    Row{"a100-80gb", 79.14, 470, 80, 19.5, 312, 312, 2039, kPcie4},
    // Rates: A10G data sheet. It is not the A10, which has 31.2 and 125.
    // 22.20 GiB: XavierXiao/Dreambooth-Stable-Diffusion#18, an AWS g5; 22.19 by newer drivers
    Row{"a10g-24gb", 22.19, 470, 86, 35, 70, 70, 600, kPcie4},
    // Rates: Ada white paper.
    // 23.64 GiB: ali-vilab/VGen#104, 3DTopia/Phidias-Diffusion#8; 23.65, tloen/llama-int8#7
    Row{"rtx4090-24gb", 23.64, 470, 89, 82.6, 165.2, 165.2, 1008, kPcie4},
    // Rates: L4 data sheet.
    // 22.17 GiB, of the 23,034 MiB that nvidia-smi shows (modal-labs/modal-client#2797); newer drivers 22.03
    Row{"l4-24gb", 22.03, 470, 89, 30.3, 121, 121, 300, kPcie4},
    // Rates: L40S data sheet.
    // 44.53 GiB: Wan-Video/Wan2.1#205; 44.40 by newer drivers, on the L40 of the same size: QwenLM/Qwen3-VL#2097
    Row{"l40s-48gb", 44.40, 470, 89, 91.6, 362, 362, 864, kPcie4},
    // Rates of the SXM5 module, Hopper white paper.
    // 79.11 GiB: vllm-project/vllm#27508
    Row{"h100-80gb", 79.11, 560, 90, 66.9, 989.4, 989.4, 3350, kPcie5},
    // Rates: H200 data sheet, the H100's but for memory.
    // 139.80 and 139.81 GiB in many reports of 8 × H200
    Row{"h200-141gb", 139.80, 560, 90, 66.9, 989.4, 989.4, 4800, kPcie5},
    // Rates: RTX Blackwell white paper.
    // 33,677,180,928 B: aikitoria/open-gpu-kernel-modules#1
    Row{"rtx5090-32gb", 33677180928.0 / (1 << 30), 500, 120, 104.8, 209.5, 209.5, 1792, kPcie5},
    // Rates of HGX B200, Blackwell data sheet (7.7 TB/s).
    // 178.35 GiB and 7.67 TB/s: pytorch/ao#4002
    Row{"b200-180gb", 178.35, 600, 100, 75, 2250, 2250, 7670, kPcie5}};

DeviceSpec spec_of(const Row& row) {
  DeviceSpec spec;
  spec.name = row.name;
  spec.type = DeviceType::kCuda;
  spec.memory = Bytes(std::llround(row.memory_gib * (1 << 30)));
  spec.context = Bytes(std::int64_t{row.context_mib} << 20);
  spec.compute_capability = row.compute_capability;
  spec.cublas_workspace = default_cublas_workspace(row.compute_capability);
  spec.peak_rates = {{DType::kFloat32, row.float32 * 1e12}};
  if (row.bfloat16 > 0) spec.peak_rates.push_back({DType::kBFloat16, row.bfloat16 * 1e12});
  if (row.float16 > 0) spec.peak_rates.push_back({DType::kFloat16, row.float16 * 1e12});
  spec.bytes_per_second = row.memory_gb_per_second * 1e9;
  spec.host_bytes_per_second = row.host_bytes_per_second;
  spec.launch = kLaunch;
  return spec;
}
}  // namespace

// aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize: ":4096:2:16:8", and 32 MiB from Hopper on.
// cuBLASLt shares it.
Bytes default_cublas_workspace(int compute_capability) {
  return Bytes(compute_capability >= 90 ? 32 << 20 : (2 * 4096 + 8 * 16) * 1024);
}

std::span<const DeviceSpec> cards() {
  static const std::vector<DeviceSpec> all = [] {
    std::vector<DeviceSpec> specs;
    specs.reserve(std::size(kRows));
    for (const Row& row : kRows) specs.push_back(spec_of(row));
    return specs;
  }();
  return all;
}
}  // namespace cinch::device::internal
