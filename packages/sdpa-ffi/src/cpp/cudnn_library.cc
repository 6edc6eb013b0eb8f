#include "cudnn_library.h"

#include <memory>
#include <mutex>
#include <utility>

namespace sdpa_ffi {
namespace {

constexpr char kSoname[] = "libcudnn.so.9";

struct Process {
  std::mutex mutex;
  std::string path_hint;                  // guarded by mutex
  const CudnnLibrary* library = nullptr;  // guarded by mutex; set once
};

// Leaked: threads of the frameworks may outlive static destruction.
Process& TheProcess() {
  static auto* process = new Process;
  return *process;
}

SharedLibrary OpenCudnn(const std::string& path_hint) {
  if (auto loaded = SharedLibrary::AlreadyLoaded(kSoname)) return loaded;
  if (!path_hint.empty()) {
    if (auto hinted = SharedLibrary::Open(path_hint)) return hinted;
  }
  return SharedLibrary::Open(kSoname);
}

// 91900 -> "9.19.0"
std::string Dotted(std::uint32_t version) {
  return Concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

void CudnnLibrary::SetPathHint(std::string path) {
  auto& process = TheProcess();
  std::lock_guard<std::mutex> lock(process.mutex);
  process.path_hint = std::move(path);
}

Result<const CudnnLibrary*> CudnnLibrary::Get() {
  auto& process = TheProcess();
  std::lock_guard<std::mutex> lock(process.mutex);
  if (process.library == nullptr) {
    auto candidate = std::make_unique<CudnnLibrary>();
    candidate->library_ = OpenCudnn(process.path_hint);
    SDPA_FFI_RETURN_IF_ERROR(candidate->Resolve());
    process.library = candidate.release();
  }
  return process.library;
}

Status CudnnLibrary::Resolve() {
  std::size_t (*get_version)() = nullptr;
  if (!library_) {
    return EnvironmentError("cuDNN is not installed: ", kSoname,
                            " is neither loaded nor found; run: pip install nvidia-cudnn-cu13");
  }
  const bool complete = library_.Resolve("cudnnGetVersion", &get_version) &&
                        library_.Resolve("cudnnGetCudartVersion", &get_cudart_version_) &&
                        library_.Resolve("cudnnGetErrorString", &get_error_string_) &&
                        library_.Resolve("cudnnCreate", &create_) &&
                        library_.Resolve("cudnnSetStream", &set_stream_);
  if (!complete) {
    return EnvironmentError(kSoname,
                            " is damaged: it lacks basic functions; run: pip install "
                            "--force-reinstall nvidia-cudnn-cu13");
  }
  version_ = static_cast<std::uint32_t>(get_version());
  return Status();
}

Status CudnnLibrary::CheckVersion(std::uint32_t plan_version) const {
  if (version_ == plan_version) return Status();
  return EnvironmentError("the plan was built with cuDNN ", Dotted(plan_version),
                          ", the process has cuDNN ", Dotted(version_),
                          "; rebuild the plan, or run: pip install nvidia-cudnn-cu",
                          get_cudart_version_() / 1000, "==", Dotted(plan_version), ".*");
}

Result<CudnnHandle> CudnnLibrary::CreateHandle() const {
  CudnnHandle handle = nullptr;
  if (const int status = create_(&handle); status != 0) return Failure("cudnnCreate", status);
  return handle;
}

Status CudnnLibrary::SetStream(CudnnHandle handle, void* stream) const {
  const int status = set_stream_(handle, stream);
  return status == 0 ? Status() : Failure("cudnnSetStream", status);
}

Status CudnnLibrary::Failure(const char* call, int status) const {
  return RuntimeFailure(call, " failed: ", get_error_string_(status), " (", status, ")");
}

}  // namespace sdpa_ffi
