#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "xla/ffi/api/c_api.h"

namespace sdpa_ffi::testing {

// What a handler answered.
struct Answer {
  XLA_FFI_Error_Code code = XLA_FFI_Error_Code_OK;
  std::string message;

  bool ok() const { return code == XLA_FFI_Error_Code_OK; }
};

// An array of bytes that XLA would pass: `size` elements of one dimension.
struct Buffer {
  XLA_FFI_DataType dtype;
  std::uintptr_t address;
  std::int64_t size;
};

// A call site of the custom call, as XLA keeps it: made once, then run on devices and streams. It
// calls the handlers through XLA's C interface, with an implementation of the part they use.
class CallSite {
 public:
  CallSite();
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  Answer Instantiate(const std::string& plan, std::vector<float> scalars);
  Answer Initialize(int device, std::uintptr_t stream);
  Answer Execute(int device, std::uintptr_t stream, std::vector<Buffer> arguments,
                 std::vector<Buffer> results);

  bool has_state() const { return state_ != nullptr; }

 private:
  Answer Call(void* handler, XLA_FFI_CallFrame* frame, int device, std::uintptr_t stream);

  void* state_ = nullptr;
};

// What a handler says about itself when it is registered.
XLA_FFI_Metadata MetadataOf(void* handler);

}  // namespace sdpa_ffi::testing
