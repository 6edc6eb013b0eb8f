#include "cuda_driver.h"

#include "shared_library.h"

namespace sdpa_ffi {

Result<const CudaDriver*> CudaDriver::Get() {
  static std::mutex mutex;
  static const CudaDriver* driver = nullptr;  // never freed: other threads use it until the end
  std::lock_guard<std::mutex> lock(mutex);
  if (driver == nullptr) {
    auto candidate = std::make_unique<CudaDriver>();
    SDPA_FFI_RETURN_IF_ERROR(candidate->Resolve());
    driver = candidate.release();
  }
  return driver;
}

Status CudaDriver::Resolve() {
  const auto library = SharedLibrary::Open("libcuda.so.1");
  if (!library) {
    return EnvironmentError(
        "no CUDA driver: libcuda.so.1 cannot be loaded; install the NVIDIA driver, then check it "
        "with: nvidia-smi");
  }
  const bool complete =
      library.Resolve("cuInit", &init_) &&
      library.Resolve("cuGetErrorString", &get_error_string_) &&
      library.Resolve("cuDeviceGetCount", &device_get_count_) &&
      library.Resolve("cuDeviceGet", &device_get_) &&
      library.Resolve("cuDeviceGetAttribute", &device_get_attribute_) &&
      library.Resolve("cuDevicePrimaryCtxRetain", &primary_ctx_retain_) &&
      library.Resolve("cuCtxGetCurrent", &ctx_get_current_) &&
      library.Resolve("cuCtxSetCurrent", &ctx_set_current_) &&
      library.Resolve("cuCtxGetDevice", &ctx_get_device_) &&
      library.Resolve("cuMemsetD8Async", &memset_d8_async_) &&
      library.Resolve("cuMemcpyHtoDAsync_v2", &memcpy_htod_async_) &&
      library.Resolve("cuThreadExchangeStreamCaptureMode", &exchange_capture_mode_);
  if (!complete) {
    return EnvironmentError(
        "no usable CUDA driver: libcuda.so.1 lacks functions of CUDA 12; upgrade the NVIDIA "
        "driver, "
        "then check it with: nvidia-smi");
  }
  if (const CUresult result = init_(0); result != CUDA_SUCCESS) {
    return EnvironmentError(Failure("cuInit", result).message(),
                            "; check the driver and the visible devices with: nvidia-smi");
  }
  return Status();
}

Status CudaDriver::Failure(const char* call, CUresult result) const {
  const char* text = nullptr;
  get_error_string_(result, &text);
  return RuntimeFailure(call, " failed: ", text == nullptr ? "unknown error" : text, " (",
                        static_cast<int>(result), ")");
}

Result<const CudaDevice*> CudaDriver::Device(int ordinal) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto& slot = devices_[ordinal];
  if (slot == nullptr) {
    SDPA_FFI_ASSIGN_OR_RETURN(slot, OpenDevice(ordinal));
  }
  return slot.get();
}

Result<std::unique_ptr<CudaDevice>> CudaDriver::OpenDevice(int ordinal) const {
  int count = 0;
  if (const CUresult result = device_get_count_(&count); result != CUDA_SUCCESS) {
    return Failure("cuDeviceGetCount", result);
  }
  if (ordinal < 0 || ordinal >= count) {
    return InvalidArgument("device ", ordinal, " does not exist; the process sees ", count,
                           " CUDA device(s)");
  }
  auto device = std::make_unique<CudaDevice>();
  device->ordinal = ordinal;
  if (const CUresult result = device_get_(&device->device, ordinal); result != CUDA_SUCCESS) {
    return Failure("cuDeviceGet", result);
  }
  int major = 0;
  int minor = 0;
  device_get_attribute_(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->device);
  device_get_attribute_(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->device);
  device->sm = major * 10 + minor;
  if (const CUresult result = primary_ctx_retain_(&device->primary, device->device);
      result != CUDA_SUCCESS) {
    return Failure("cuDevicePrimaryCtxRetain", result);
  }
  return device;
}

Status CudaDriver::MemsetZero(void* address, std::uint64_t bytes, CUstream stream) const {
  const CUresult result =
      memset_d8_async_(reinterpret_cast<CUdeviceptr>(address), 0, bytes, stream);
  return result == CUDA_SUCCESS ? Status() : Failure("cuMemsetD8Async", result);
}

Status CudaDriver::CopyToDevice(void* address, const void* source, std::uint64_t bytes,
                                CUstream stream) const {
  const CUresult result =
      memcpy_htod_async_(reinterpret_cast<CUdeviceptr>(address), source, bytes, stream);
  return result == CUDA_SUCCESS ? Status() : Failure("cuMemcpyHtoDAsync", result);
}

ContextScope::ContextScope(const CudaDriver& driver, const CudaDevice& device) : driver_(driver) {
  if (const CUresult result = driver_.ctx_get_current_(&previous_); result != CUDA_SUCCESS) {
    status_ = driver_.Failure("cuCtxGetCurrent", result);
    return;
  }
  if (previous_ == device.primary) return;
  CUdevice current;
  if (previous_ != nullptr && driver_.ctx_get_device_(&current) == CUDA_SUCCESS &&
      current == device.device) {
    return;
  }
  const CUresult result = driver_.ctx_set_current_(device.primary);
  changed_ = result == CUDA_SUCCESS;
  if (!changed_) status_ = driver_.Failure("cuCtxSetCurrent", result);
}

ContextScope::~ContextScope() {
  if (changed_) driver_.ctx_set_current_(previous_);
}

RelaxedCaptureScope::RelaxedCaptureScope(const CudaDriver& driver) : driver_(driver) {
  if (const CUresult result = driver_.exchange_capture_mode_(&mode_); result != CUDA_SUCCESS) {
    status_ = RuntimeFailure(driver_.Failure("cuThreadExchangeStreamCaptureMode", result).message(),
                             "; run the call once before the capture, which loads its plan");
  }
}

RelaxedCaptureScope::~RelaxedCaptureScope() {
  if (status_.ok()) driver_.exchange_capture_mode_(&mode_);
}

}  // namespace sdpa_ffi
