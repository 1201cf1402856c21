#pragma once
// Activation offloading from CUDA devices: pinned host memory, a stream of its own. A library of its own,
// cinch::techniques_cuda, since what is linked with it needs libtorch_cuda when it starts.

namespace cinch::techniques {

/// From now on Offload (cinch/techniques/offload.h) takes tensors of CUDA devices. Copies run on a side stream of each
/// device, which waits for the stream that computes and is waited for by it; the host waits for neither.
void enable_cuda_offload();
}  // namespace cinch::techniques
