// What the programs of this folder have in common: an object that executes one plan in a loop.
//
// The functions below are called from Python. Those that fail leave a text in `loop_error`.
#pragma once

#include <cudnn.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// A plan with everything an execution takes; owned by the caller, as long as the loop lives.
struct LoopPlan {
  const char* libcudnn;
  const void* data;  // what the implementation reads: cuDNN's plan, or the frontend's graph
  std::size_t bytes;
  void* stream;
  std::int64_t count;
  const std::int64_t* uids;  // ascending
  void* const* pointers;     // of device memory; of host memory for scalars
  void* workspace;
};

class Loop {
 public:
  virtual ~Loop() = default;
  virtual void Execute() = 0;       // as if for operands that differ from call to call
  virtual void ExecuteAgain() = 0;  // with what can be kept of the operands kept
};

// Defined by each program.
Loop* MakeLoop(const LoopPlan& plan);

inline void* OpenLibrary(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

template <typename Function>
Function Symbol(void* library, const char* name) {
  void* address = dlsym(library, name);
  if (address == nullptr) throw std::runtime_error(std::string("cuDNN lacks ") + name);
  return reinterpret_cast<Function>(address);
}

inline void Check(cudnnStatus_t status, const char* action) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw std::runtime_error(std::string(action) + ": cuDNN status " +
                           std::to_string(static_cast<int>(status)));
}

namespace loop_detail {

inline std::string error;

template <typename Body>
int Guarded(Body body) {
  try {
    body();
    return 0;
  } catch (const std::exception& caught) {
    error = caught.what();
    return 1;
  }
}

}  // namespace loop_detail

extern "C" {

const char* loop_error() { return loop_detail::error.c_str(); }

Loop* loop_open(const LoopPlan* plan) {
  Loop* loop = nullptr;
  loop_detail::Guarded([&] { loop = MakeLoop(*plan); });
  return loop;
}

int loop_execute(Loop* loop, int calls) {
  return loop_detail::Guarded([&] {
    for (int i = 0; i < calls; ++i) loop->Execute();
  });
}

int loop_execute_again(Loop* loop, int calls) {
  return loop_detail::Guarded([&] {
    for (int i = 0; i < calls; ++i) loop->ExecuteAgain();
  });
}

void loop_close(Loop* loop) { delete loop; }

}  // extern "C"
