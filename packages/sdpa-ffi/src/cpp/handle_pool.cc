#include "handle_pool.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "counters.h"

namespace sdpa_ffi {
namespace {

struct PooledHandle {
  int device;
  CudnnHandle handle;
  CUstream stream;  // what the handle is set to; cudnnSetStream costs microseconds on some devices
};

using Handles = std::vector<PooledHandle>;

auto FindDevice(Handles& handles, int device) {
  return std::find_if(handles.begin(), handles.end(),
                      [device](const PooledHandle& pooled) { return pooled.device == device; });
}

// Handles of threads that have ended.
class IdleHandles {
 public:
  static IdleHandles& Get() {
    static auto* idle = new IdleHandles;  // leaked, see HandleForThisThread
    return *idle;
  }

  std::optional<PooledHandle> Take(int device) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = FindDevice(handles_, device);
    if (found == handles_.end()) return std::nullopt;
    const PooledHandle pooled = *found;
    handles_.erase(found);
    return pooled;
  }

  void Return(const Handles& handles) {
    std::lock_guard<std::mutex> lock(mutex_);
    handles_.insert(handles_.end(), handles.begin(), handles.end());
  }

 private:
  std::mutex mutex_;
  Handles handles_;  // guarded by mutex_
};

struct ThreadHandles {
  Handles handles;
  ~ThreadHandles() { IdleHandles::Get().Return(handles); }
};

Result<PooledHandle> NewHandle(const CudnnLibrary& cudnn, const CudaDriver& driver, int device) {
  if (const auto idle = IdleHandles::Get().Take(device)) return *idle;
  const RelaxedCaptureScope relaxed(driver);
  SDPA_FFI_RETURN_IF_ERROR(relaxed.status());
  const StageTimer timer(counters.handle_ns);
  SDPA_FFI_ASSIGN_OR_RETURN(const CudnnHandle handle, cudnn.CreateHandle());
  Add(counters.handles_created);
  return PooledHandle{device, handle, nullptr};  // a new handle is on the null stream
}

}  // namespace

Result<CudnnHandle> HandleForThisThread(const CudnnLibrary& cudnn, const CudaDriver& driver,
                                        const CudaDevice& device, std::optional<CUstream> stream) {
  thread_local ThreadHandles mine;
  auto found = FindDevice(mine.handles, device.ordinal);
  if (found == mine.handles.end()) {
    SDPA_FFI_ASSIGN_OR_RETURN(const PooledHandle pooled, NewHandle(cudnn, driver, device.ordinal));
    found = mine.handles.insert(mine.handles.end(), pooled);
  }
  if (stream.has_value() && found->stream != *stream) {
    SDPA_FFI_RETURN_IF_ERROR(cudnn.SetStream(found->handle, *stream));
    found->stream = *stream;
  }
  return found->handle;
}

}  // namespace sdpa_ffi
