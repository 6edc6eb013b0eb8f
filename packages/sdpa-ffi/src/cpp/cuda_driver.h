#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "status.h"

namespace sdpa_ffi {

// A device and its primary context, which is retained until the process ends.
struct CudaDevice {
  int ordinal;
  CUdevice device;
  CUcontext primary;
  int sm;  // compute capability, major * 10 + minor
};

// The few driver calls needed, resolved from libcuda.so.1 on first use.
//
// The driver rather than the CUDA runtime: a process has exactly one libcuda, while several
// libcudart (one per wheel, some linked statically) may coexist and none need be loadable by name.
class CudaDriver {
 public:
  // Fails with kEnvironment while there is no driver; a later call tries again.
  static Result<const CudaDriver*> Get();

  Result<const CudaDevice*> Device(int ordinal) const;

  Status MemsetZero(void* address, std::uint64_t bytes, CUstream stream) const;

  // `source` is read when the stream gets there, by a captured graph at each replay.
  Status CopyToDevice(void* address, const void* source, std::uint64_t bytes,
                      CUstream stream) const;

 private:
  friend class ContextScope;
  friend class RelaxedCaptureScope;

  Status Resolve();
  Status Failure(const char* call, CUresult result) const;
  Result<std::unique_ptr<CudaDevice>> OpenDevice(int ordinal) const;

  decltype(&cuInit) init_ = nullptr;
  decltype(&cuGetErrorString) get_error_string_ = nullptr;
  decltype(&cuDeviceGetCount) device_get_count_ = nullptr;
  decltype(&cuDeviceGet) device_get_ = nullptr;
  decltype(&cuDeviceGetAttribute) device_get_attribute_ = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primary_ctx_retain_ = nullptr;
  decltype(&cuCtxGetCurrent) ctx_get_current_ = nullptr;
  decltype(&cuCtxSetCurrent) ctx_set_current_ = nullptr;
  decltype(&cuCtxGetDevice) ctx_get_device_ = nullptr;
  decltype(&cuMemsetD8Async) memset_d8_async_ = nullptr;
  decltype(&cuMemcpyHtoDAsync) memcpy_htod_async_ = nullptr;
  decltype(&cuThreadExchangeStreamCaptureMode) exchange_capture_mode_ = nullptr;

  mutable std::mutex mutex_;
  mutable std::map<int, std::unique_ptr<CudaDevice>> devices_;  // guarded by mutex_
};

// Makes `device` the thread's current one for the scope, and restores what was there before.
// A context of the same device (a green context, say) is left alone: the stream may belong to it.
class ContextScope {
 public:
  ContextScope(const CudaDriver& driver, const CudaDevice& device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  const Status& status() const { return status_; }

 private:
  const CudaDriver& driver_;
  CUcontext previous_ = nullptr;
  bool changed_ = false;
  Status status_;
};

// Lets this thread make calls that would otherwise invalidate a stream capture in progress, such as
// the allocations of cudnnCreate and of loading a plan. Those touch no captured stream. Check
// status(): without the relaxed mode such a call would end the capture.
class RelaxedCaptureScope {
 public:
  explicit RelaxedCaptureScope(const CudaDriver& driver);
  ~RelaxedCaptureScope();
  RelaxedCaptureScope(const RelaxedCaptureScope&) = delete;
  RelaxedCaptureScope& operator=(const RelaxedCaptureScope&) = delete;

  const Status& status() const { return status_; }

 private:
  const CudaDriver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the one to restore
  Status status_;
};

}  // namespace sdpa_ffi
