#pragma once

#include <cstdint>

namespace sdpa_ffi {

// The handlers of the custom call "sdpa_ffi.execute.v1", as XLA FFI function pointers.
struct XlaHandlers {
  void* instantiate;
  void* initialize;
  void* execute;
};

// The state that instantiate makes, as type "sdpa_ffi.plan.v1".
struct XlaStateType {
  void* type_id;  // XLA writes the registered id here
  void* type_info;
};

XlaHandlers GetXlaHandlers();
XlaStateType GetXlaStateType();

// Major and minor version of the XLA FFI API compiled against.
struct XlaApiVersion {
  int major;
  int minor;
};
XlaApiVersion GetXlaApiVersion();

}  // namespace sdpa_ffi
