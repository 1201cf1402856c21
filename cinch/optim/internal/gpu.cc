#include "cinch/optim/internal/gpu.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "cinch/core/error.h"
#include "cinch/optim/internal/dynamic_map.h"
#include "cinch/optim/internal/kernels_text.h"

namespace cinch::optim::internal {
namespace {

/// A function of `library` by its name. The types are what NVRTC's and the driver's manuals say.
template <class Function>
Function* find(void* library, const char* name) {
  if (auto* address = ::dlsym(library, name)) return reinterpret_cast<Function*>(address);
  throw UnsupportedError("the CUDA libraries that were loaded have no " + std::string(name),
                         "LibTorch's CUDA build and the driver have to fit each other.");
}

// ---- NVRTC --------------------------------------------------------------------------------------------------------

using Program = void*;

struct Nvrtc {
  explicit Nvrtc(void* library)
      : create(find<int(Program*, const char*, const char*, int, const char* const*, const char* const*)>(
            library, "nvrtcCreateProgram")),
        compile(find<int(Program, int, const char* const*)>(library, "nvrtcCompileProgram")),
        destroy(find<int(Program*)>(library, "nvrtcDestroyProgram")),
        log_size(find<int(Program, std::size_t*)>(library, "nvrtcGetProgramLogSize")),
        log(find<int(Program, char*)>(library, "nvrtcGetProgramLog")),
        cubin_size(find<int(Program, std::size_t*)>(library, "nvrtcGetCUBINSize")),
        cubin(find<int(Program, char*)>(library, "nvrtcGetCUBIN")),
        ptx_size(find<int(Program, std::size_t*)>(library, "nvrtcGetPTXSize")),
        ptx(find<int(Program, char*)>(library, "nvrtcGetPTX")),
        count_architectures(find<int(int*)>(library, "nvrtcGetNumSupportedArchs")),
        architectures(find<int(int*)>(library, "nvrtcGetSupportedArchs")) {}

  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(Program, int, const char* const*);
  int (*destroy)(Program*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, std::size_t*);
  int (*cubin)(Program, char*);
  int (*ptx_size)(Program, std::size_t*);
  int (*ptx)(Program, char*);
  int (*count_architectures)(int*);
  int (*architectures)(int*);
};

std::string text_of(Program program, int (*size_of)(Program, std::size_t*), int (*get)(Program, char*)) {
  std::size_t size = 0;
  if (size_of(program, &size) != 0 || size == 0) return "";
  std::string text(size, '\0');
  return get(program, text.data()) == 0 ? text : "";
}

/// "sm_90" for a card of 9.0 that this NVRTC knows; for a newer one the newest it knows, which the driver translates.
std::string architecture_for(const Nvrtc& nvrtc, int capability) {
  int count = 0;
  std::vector<int> known;
  if (nvrtc.count_architectures(&count) == 0 && count > 0) {
    known.resize(static_cast<std::size_t>(count));
    if (nvrtc.architectures(known.data()) != 0) known.clear();
  }
  if (std::find(known.begin(), known.end(), capability) != known.end()) return "sm_" + std::to_string(capability);
  int newest = 0;
  for (const int one : known)
    if (one < capability) newest = std::max(newest, one);
  if (newest != 0) return "compute_" + std::to_string(newest);
  throw UnsupportedError("no kernels for a card of compute capability " + std::to_string(capability / 10) + "." +
                             std::to_string(capability % 10) + ", which LibTorch's NVRTC does not know",
                         "adamw(), adam() and sgd() use LibTorch's kernels.");
}

// ---- the driver ---------------------------------------------------------------------------------------------------

constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76;  // CUdevice_attribute

struct Driver {
  explicit Driver(void* library)
      : device(find<int(int*, int)>(library, "cuDeviceGet")),
        attribute(find<int(int*, int, int)>(library, "cuDeviceGetAttribute")),
        retain(find<int(void**, int)>(library, "cuDevicePrimaryCtxRetain")),
        push(find<int(void*)>(library, "cuCtxPushCurrent_v2")),
        pop(find<int(void**)>(library, "cuCtxPopCurrent_v2")),
        load(find<int(void**, const void*)>(library, "cuModuleLoadData")),
        function(find<int(void**, void*, const char*)>(library, "cuModuleGetFunction")),
        launch(find<int(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**)>(library, "cuLaunchKernel")),
        pin(find<int(void*, std::size_t, unsigned)>(library, "cuMemHostRegister_v2")),
        unpin(find<int(void*)>(library, "cuMemHostUnregister")),
        error(find<int(int, const char**)>(library, "cuGetErrorString")) {}

  int (*device)(int*, int);
  int (*attribute)(int*, int, int);
  int (*retain)(void**, int);
  int (*push)(void*);
  int (*pop)(void**);
  int (*load)(void**, const void*);
  int (*function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*pin)(void*, std::size_t, unsigned);
  int (*unpin)(void*);
  int (*error)(int, const char**);

  void check(int result, const std::string& what) const {
    if (result == 0) return;
    const char* words = nullptr;
    throw Error("CUDA could not " + what + ": " +
                (error(result, &words) == 0 && words != nullptr ? words : "error " + std::to_string(result)));
  }
};

/// The library of LibTorch's that brings both, from LibTorch's own folder.
void* open_library() {
  static void* library = [] {
    std::filesystem::path name = "libcaffe2_nvrtc.so";
    link_map* c10 = nullptr;
    if (void* loaded = ::dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD); loaded != nullptr) {
      if (::dlinfo(loaded, RTLD_DI_LINKMAP, &c10) == 0) name = std::filesystem::path(c10->l_name).parent_path() / name;
      ::dlclose(loaded);
    }
    void* found = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (found != nullptr) return found;
    const char* reason = ::dlerror();
    throw UnsupportedError(
        "LibTorch's libcaffe2_nvrtc.so, through which kernels for CUDA are compiled, cannot be "
        "loaded: " +
            std::string(reason != nullptr ? reason : "no reason given"),
        "It is part of LibTorch's CUDA builds, and needs libnvrtc (pip: nvidia-cuda-nvrtc) and the driver.");
  }();
  return library;
}

const Nvrtc& nvrtc() {
  static const Nvrtc all(open_library());
  return all;
}
const Driver& driver() {
  static const Driver all(open_library());
  return all;
}

/// One device, for good: its context is the one that LibTorch uses too.
struct Card {
  void* context = nullptr;
  int capability = 0, multiprocessors = 0;
  void* module = nullptr;
  std::map<std::string, void*, std::less<>> functions;
};

class Current {
 public:
  explicit Current(const Card& card) { driver().check(driver().push(card.context), "make its context current"); }
  ~Current() {
    void* ignored = nullptr;
    driver().pop(&ignored);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

std::mutex& cards_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

/// With the mutex held.
Card& card_of(c10::Device device) {
  static auto* cards = new std::map<int, Card>;
  const int index = std::max<int>(device.index(), 0);
  if (const auto known = cards->find(index); known != cards->end()) return known->second;
  Card card;
  int handle = 0, major = 0, minor = 0;
  driver().check(driver().device(&handle, index), "find the device");
  driver().check(driver().attribute(&major, kMajor, handle), "say its compute capability");
  driver().check(driver().attribute(&minor, kMinor, handle), "say its compute capability");
  driver().check(driver().attribute(&card.multiprocessors, kMultiprocessors, handle), "count multiprocessors");
  driver().check(driver().retain(&card.context, handle), "give its context");
  card.capability = major * 10 + minor;
  return cards->emplace(index, std::move(card)).first->second;
}

/// With the mutex held and the card's context current.
void* function_of(Card& card, const char* kernel) {
  if (card.module == nullptr) {
    const auto compiled = compile(open_library(), kernel_source(), architecture_for(nvrtc(), card.capability));
    if (compiled.binary.empty()) throw Error("NVRTC refused cinch's kernels: " + compiled.log);
    driver().check(driver().load(&card.module, compiled.binary.data()), "load kernels");
  }
  auto [slot, fresh] = card.functions.try_emplace(kernel, nullptr);
  if (fresh) driver().check(driver().function(&slot->second, card.module, kernel), "find the kernel " + slot->first);
  return slot->second;
}

template <class Numbers>
void append_table(std::string& to, std::string_view name, const Numbers* numbers, std::size_t count) {
  to += "__device__ const unsigned " + std::string(name) + "[] = {";
  for (std::size_t i = 0; i < count; ++i) to += std::to_string(std::bit_cast<std::uint32_t>(numbers[i])) + "u,";
  to += "};\n";
}

constexpr std::string_view kConversions = R"(
__device__ inline float half_to_float(unsigned short x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
}
__device__ inline unsigned short float_to_half(float x) {
  unsigned short y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
}
)";
}  // namespace

std::string kernel_source() {
  const auto &map1 = DynamicMap::of_first_moment(), &map2 = DynamicMap::of_second_moment();
  constexpr std::size_t kBuckets = DynamicMap::kLastBucket - DynamicMap::kFirstBucket + 1;
  std::string source;
  append_table(source, "kValues1", map1.values().data(), map1.values().size());
  append_table(source, "kValues2", map2.values().data(), map2.values().size());
  append_table(source, "kRanks1", map1.ranks(), kBuckets);
  append_table(source, "kRanks2", map2.ranks(), kBuckets);
  source += "constexpr unsigned kZero1 = " + std::to_string(map1.zero()) +
            ", kFirstBucket = " + std::to_string(DynamicMap::kFirstBucket) +
            ", kLastBucket = " + std::to_string(DynamicMap::kLastBucket) + ";\n";
  return source.append(kConversions).append(kKernelsText);
}

Compiled compile(void* library, const std::string& source, const std::string& architecture) {
  const Nvrtc api(library);
  Program program = nullptr;
  if (api.create(&program, source.c_str(), "kernels.cuh", 0, nullptr, nullptr) != 0) return {"", "no program"};
  const std::string target = "--gpu-architecture=" + architecture;
  const char* const options[] = {target.c_str(), "--std=c++17", "--fmad=false"};
  const bool done = api.compile(program, std::size(options), options) == 0;
  Compiled result;
  result.log = text_of(program, api.log_size, api.log);
  if (done && architecture.starts_with("sm_")) result.binary = text_of(program, api.cubin_size, api.cubin);
  if (done && !architecture.starts_with("sm_")) result.binary = text_of(program, api.ptx_size, api.ptx);
  api.destroy(&program);
  return result;
}

void launch(const Launch& what, c10::Device device) {
  void* stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
  const std::lock_guard lock(cards_mutex());
  Card& card = card_of(device);
  const Current current(card);
  void* function = function_of(card, what.kernel);
  driver().check(driver().launch(function, what.blocks, 1, 1, what.threads, 1, 1, /*shared bytes=*/0, stream,
                                 const_cast<void**>(what.arguments.data()), nullptr),
                 "launch " + std::string(what.kernel));
}

int multiprocessors(c10::Device device) {
  const std::lock_guard lock(cards_mutex());
  return card_of(device).multiprocessors;
}

int compute_capability(c10::Device device) {
  const std::lock_guard lock(cards_mutex());
  return card_of(device).capability;
}

Pinned::Pinned(void* memory, std::size_t bytes, c10::Device device) : memory_(memory), device_(device) {
  constexpr unsigned kPortable = 1;
  const std::lock_guard lock(cards_mutex());
  const Current current(card_of(device));
  driver().check(driver().pin(memory, bytes, kPortable), "pin " + std::to_string(bytes) + " bytes of host memory");
}

Pinned::~Pinned() {
  try {
    const std::lock_guard lock(cards_mutex());
    const Current current(card_of(device_));
    driver().unpin(memory_);
  } catch (const std::exception&) {  // The driver is gone, and the pinning with it.
  }
}
}  // namespace cinch::optim::internal
