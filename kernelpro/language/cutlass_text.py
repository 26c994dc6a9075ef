"""CUDA C++ text that kernels through CUTLASS start with: headers, epilogue, launch, exchange."""

INCLUDES = """\
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/detail.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#pragma nv_diag_suppress 177  // not every kernel uses all of the functions below
"""

SHARED = r"""
// --- what kernels through CUTLASS share ---

using cute::Int;
using cute::Layout;
using cute::Shape;
using cute::Stride;

// CUTLASS asks every epilogue these questions. Here the answers are the same for all: it works from
// registers, without shared memory or a workspace, and CUTLASS itself reads and writes no matrix
// (C and D of its interface). Pointers are the tensors that it reads and writes.
template <class Pointers> struct PlainEpilogue {
  using DispatchPolicy = cutlass::gemm::EpilogueDefault;
  using EpilogueSchedule = DispatchPolicy;
  using ElementAccumulator = float;
  using ElementC = float;
  using ElementD = float;
  using StrideC = Stride<int64_t, Int<1>, int64_t>;
  using StrideD = StrideC;
  using GmemTiledCopyC = void;
  using GmemTiledCopyD = void;
  struct SharedStorage {};
  using Arguments = Pointers;
  using Params = Pointers;

  template <class Problem>
  static Params to_underlying_arguments(const Problem&, const Arguments& given, void*) {
    return given;
  }
  template <class Problem>
  static size_t get_workspace_size(const Problem&, const Arguments&) { return 0; }
  template <class Problem>
  static cutlass::Status initialize_workspace(const Problem&, const Arguments&, void*, cudaStream_t,
                                              cutlass::CudaHostAdapter* = nullptr) {
    return cutlass::Status::kSuccess;
  }
  template <class Problem>
  static bool can_implement(const Problem&, const Arguments&) { return true; }

  Params params;
  CUTLASS_HOST_DEVICE PlainEpilogue(const Params& given) : params(given) {}
};

static void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

// Multiprocessors of the current device, over which a kernel's blocks are spread.
static cutlass::KernelHardwareInfo hardware() {
  static int known[64] = {};
  cutlass::KernelHardwareInfo found;
  check(cudaGetDevice(&found.device_id), "the current device");
  int& count = known[found.device_id % 64];
  if (count == 0) {
    check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, found.device_id),
          "its multiprocessors");
  }
  found.sm_count = count;
  return found;
}

// Describes the operands to the GPU, clears the workspace, and starts a kernel on a stream.
template <class Kernel>
static void start(const void* entry, const typename Kernel::Arguments& given, int64_t workspace,
                  int64_t stream) {
  const auto on = reinterpret_cast<cudaStream_t>(stream);
  const auto space = reinterpret_cast<void*>(workspace);
  for (const void* operand : {(const void*)given.mainloop.ptr_A, (const void*)given.mainloop.ptr_B})
    if (reinterpret_cast<uintptr_t>(operand) % 16 != 0)
      throw std::invalid_argument("operands must begin at multiples of 16 bytes");
  if (!Kernel::can_implement(given))
    throw std::invalid_argument("CUTLASS refuses this product; it was made for other sizes");
  if (Kernel::initialize_workspace(given, space, on) != cutlass::Status::kSuccess)
    throw std::runtime_error("CUTLASS could not clear its workspace");
  auto params = Kernel::to_underlying_arguments(given, space);
  check(cudaFuncSetAttribute(entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             Kernel::SharedStorageSize),
        "a block's shared memory");
  using Cluster = typename Kernel::DispatchPolicy::ClusterShape;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {unsigned(cute::size<0>(Cluster{})), unsigned(cute::size<1>(Cluster{})),
                            1};
  cudaLaunchConfig_t config = {};
  config.gridDim = Kernel::get_grid_shape(params);
  config.blockDim = Kernel::get_block_shape();
  config.dynamicSmemBytes = Kernel::SharedStorageSize;
  config.stream = on;
  config.attrs = &cluster;
  config.numAttrs = cute::size(Cluster{}) > 1 ? 1 : 0;
  void* arguments[] = {&params};
  check(cudaLaunchKernelExC(&config, entry, arguments), "the launch");
}
"""

EXCHANGE = r"""
// Exchanges pairs between V / 2 lanes side by side: before, lane l has pair l of each of V / 2
// eights; after it, all pairs of eight l.
INLINE void exchange(float (&pairs)[V], int lane) {
#pragma unroll
  for (int far = 1; far < V / 2; far *= 2) {
    const bool upper = lane & far;
#pragma unroll
    for (int p = 0; p < V / 2; ++p) {
      if (p & far) continue;
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        float& low = pairs[2 * p + q];
        float& high = pairs[2 * (p + far) + q];
        const float other = __shfl_xor_sync(0xffffffff, upper ? low : high, far);
        (upper ? low : high) = other;
      }
    }
  }
}
"""
