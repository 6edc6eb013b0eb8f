#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "shared_library.h"
#include "status.h"

// cuDNN's own opaque handle type, declared here so that only graph.cc includes cuDNN's headers.
struct cudnnContext;

namespace sdpa_ffi {

using CudnnHandle = cudnnContext*;

// The process's libcudnn.so.9.
class CudnnLibrary {
 public:
  // A file to open when no libcudnn is loaded yet; set from Python, which knows site-packages.
  static void SetPathHint(std::string path);

  // In order: the copy the process already has (a second one beside PyTorch's or JAX's would keep
  // its own state and may have another version), the hint, the loader's search path.
  // Fails with kEnvironment while there is none; a later call tries again.
  static Result<const CudnnLibrary*> Get();

  // kEnvironment unless the library has exactly the version a plan was built with: cuDNN gives no
  // promise that another one can read it.
  Status CheckVersion(std::uint32_t plan_version) const;

  Result<CudnnHandle> CreateHandle() const;
  Status SetStream(CudnnHandle handle, void* stream) const;

  std::uint32_t version() const { return version_; }
  void* dl_handle() const { return library_.handle(); }

 private:
  Status Resolve();
  Status Failure(const char* call, int status) const;

  SharedLibrary library_;
  std::uint32_t version_ = 0;
  std::size_t (*get_cudart_version_)() = nullptr;
  const char* (*get_error_string_)(int) = nullptr;
  int (*create_)(CudnnHandle*) = nullptr;
  int (*set_stream_)(CudnnHandle, void*) = nullptr;
};

}  // namespace sdpa_ffi
