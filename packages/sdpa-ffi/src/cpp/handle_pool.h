#pragma once

#include <optional>

#include "cuda_driver.h"
#include "cudnn_library.h"
#include "status.h"

namespace sdpa_ffi {

// This thread's cuDNN handle for `device`, which must be current. It is set to `stream`; without
// one, it stays on the stream that it was last set to.
//
// cuDNN handles are not thread safe, so each (thread, device) pair has its own. They are never
// destroyed: when a thread ends, its handles wait for the next thread that needs one. Destroying
// them in a thread_local or static destructor would call into CUDA during shutdown.
Result<CudnnHandle> HandleForThisThread(const CudnnLibrary& cudnn, const CudaDriver& driver,
                                        const CudaDevice& device, std::optional<CUstream> stream);

}  // namespace sdpa_ffi
