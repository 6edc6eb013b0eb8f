#pragma once

#include <dlfcn.h>

#include <string>

namespace sdpa_ffi {

// A library opened at run time. It is never closed: its code may be needed until the process ends,
// and unloading CUDA libraries is not safe.
class SharedLibrary {
 public:
  SharedLibrary() = default;

  static SharedLibrary Open(const std::string& name) {
    return SharedLibrary(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL));
  }
  static SharedLibrary AlreadyLoaded(const std::string& name) {
    return SharedLibrary(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
  }

  explicit operator bool() const { return handle_ != nullptr; }
  void* handle() const { return handle_; }

  // Stores the address of `name` and says whether it was found.
  template <typename Function>
  bool Resolve(const char* name, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(handle_, name));
    return *function != nullptr;
  }

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}

  void* handle_ = nullptr;
};

}  // namespace sdpa_ffi
