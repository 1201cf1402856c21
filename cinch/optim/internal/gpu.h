#pragma once
// CUDA without its headers or compiler: kernels are compiled at run time by NVRTC, for the card that is there, and
// launched through the driver. Both come with LibTorch's CUDA builds, which load them themselves for kernels of this
// kind (libcaffe2_nvrtc.so). So nothing of CUDA is needed where cinch is built or installed, there is no list of
// architectures that a new card falls out of, and one library serves machines with and without a GPU. It costs about
// half a second once in a process.

#include <cstddef>
#include <span>
#include <string>

#include <c10/core/Device.h>

namespace cinch::optim::internal {

/// One launch, on the computing stream of `device`. `arguments`: a pointer to each, as the kernel declares them.
/// Compiles all of kernels.cuh at the first call for a card. Throws UnsupportedError where LibTorch's libraries or the
/// driver are missing, Error with the compiler's or driver's words.
struct Launch {
  const char* kernel;  ///< Its name, extern "C".
  unsigned blocks = 1, threads = 1;
  std::span<void* const> arguments = {};
};
void launch(const Launch& what, c10::Device device);

int multiprocessors(c10::Device device);
int compute_capability(c10::Device device);  ///< 90 for 9.0.

/// Host memory that the card may copy from and to while the host goes on. Throws Error if the system refuses.
class Pinned {
 public:
  Pinned(void* memory, std::size_t bytes, c10::Device device);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  void* memory_;
  c10::Device device_;
};

/// What is compiled: the maps, then kernels.cuh.
std::string kernel_source();

struct Compiled {
  std::string binary, log;  ///< Without a binary the log says why.
};
/// By the NVRTC in `library` (dlopen's handle), for "sm_90": a cubin, or for "compute_90": PTX. Needs no GPU.
Compiled compile(void* library, const std::string& source, const std::string& architecture);
}  // namespace cinch::optim::internal
