// Streams, devices and error checks of CUDA, by torch's current stream and the CUDA runtime.
#pragma once

#include <cuda_runtime.h>

#include "operators.h"

#define C10_CUDA_CHECK(expression)                                                         \
  do {                                                                                     \
    const cudaError_t kernelpro_light_status = (expression);                               \
    if (C10_UNLIKELY(kernelpro_light_status != cudaSuccess)) {                             \
      (void)cudaGetLastError();                                                            \
      ::kernelpro_light::fail<::c10::Error>("", "CUDA error: ",                            \
                                            cudaGetErrorString(kernelpro_light_status));   \
    }                                                                                      \
  } while (false)
#define AT_CUDA_CHECK(expression) C10_CUDA_CHECK(expression)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define C10_CUDA_CHECK_WARN(expression) \
  do {                                  \
    (void)(expression);                 \
  } while (false)

namespace c10::cuda {

inline DeviceIndex current_device() {
  int device = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  return DeviceIndex(device);
}
inline void set_device(DeviceIndex device) {
  if (device >= 0 && device != current_device()) C10_CUDA_CHECK(cudaSetDevice(device));
}
inline DeviceIndex device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? DeviceIndex(count) : DeviceIndex(0);
}
inline void device_synchronize() { C10_CUDA_CHECK(cudaDeviceSynchronize()); }

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream, DeviceIndex device) : stream_(stream), device_(device) {}
  cudaStream_t stream() const { return stream_; }
  operator cudaStream_t() const { return stream_; }
  DeviceIndex device_index() const { return device_; }
  Device device() const { return Device(kCUDA, device_); }
  void synchronize() const { C10_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_;
  DeviceIndex device_;
};

inline CUDAStream getCurrentCUDAStream(DeviceIndex device = -1) {
  if (device < 0) device = current_device();
  kernelpro_light::Gil gil;
  const auto number =
      kernelpro_light::call(KERNELPRO_LIGHT_TORCH("_C._cuda_getCurrentRawStream"), int(device));
  void* stream = PyLong_AsVoidPtr(number.get());
  if (PyErr_Occurred()) throw kernelpro_light::PythonError();
  return CUDAStream(static_cast<cudaStream_t>(stream), device);
}
inline CUDAStream getDefaultCUDAStream(DeviceIndex device = -1) {
  return CUDAStream(nullptr, device < 0 ? current_device() : device);
}

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex device) : before_(current_device()) { set_device(device); }
  explicit CUDAGuard(const Device& device) : CUDAGuard(device.index()) {}
  ~CUDAGuard() { (void)cudaSetDevice(before_); }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;

 private:
  DeviceIndex before_;
};

class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device && device->is_cuda()) guard_.emplace(device->index());
  }

 private:
  std::optional<CUDAGuard> guard_;
};

}  // namespace c10::cuda

namespace c10 { using DeviceGuard = cuda::CUDAGuard; }

namespace at {

using c10::DeviceGuard;

namespace cuda {

using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStream;
using c10::cuda::current_device;
using c10::cuda::device_count;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::OptionalCUDAGuard;
using c10::cuda::set_device;

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device) {
  static cudaDeviceProp known[64];
  static std::atomic<bool> read[64];
  if (!read[int(device)]) {
    C10_CUDA_CHECK(cudaGetDeviceProperties(&known[int(device)], device));
    read[int(device)] = true;
  }
  return &known[int(device)];
}
inline cudaDeviceProp* getCurrentDeviceProperties() {
  return getDeviceProperties(current_device());
}

}  // namespace cuda
}  // namespace at
