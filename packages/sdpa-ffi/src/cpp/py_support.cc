#include "py_support.h"

namespace sdpa_ffi::py {
namespace {

// sdpa_core owns the exception of a broken environment, so that one `except` serves all packages.
// It is looked up only when needed: importing this module needs nothing.
Ref EnvironmentErrorType() {
  const Ref errors(PyImport_ImportModule("sdpa_core.errors"));
  if (errors == nullptr) return nullptr;
  return Ref(PyObject_GetAttrString(errors.get(), "SdpaEnvironmentError"));
}

}  // namespace

PyObject* Raise(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      PyErr_SetString(PyExc_ValueError, status.message().c_str());
      break;
    case StatusCode::kEnvironment:
      if (const Ref type = EnvironmentErrorType()) {
        PyErr_SetString(type.get(), status.message().c_str());
      }
      break;
    case StatusCode::kOk:
    case StatusCode::kRuntime:
      PyErr_SetString(PyExc_RuntimeError, status.message().c_str());
      break;
  }
  return nullptr;
}

}  // namespace sdpa_ffi::py
